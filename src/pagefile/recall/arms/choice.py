"""Which vector arm a memory uses: this process, unless another is asked for."""

from __future__ import annotations

from pagefile.errors import Invalid, shown
from pagefile.recall.arms.arm import VectorArm
from pagefile.recall.arms.store_arm import KeptVectors
from pagefile.settings import Settings
from pagefile.store.store import Store

_WORDS = "use 'auto', 'memory', 'qdrant', 'pgvector', 'redis', or an arm of your own"
_METHODS = ("prepare", "upsert", "delete", "forget", "nearest", "ids", "count", "mark", "owners")


def chosen_arm(store: Store, wanted: VectorArm | str) -> VectorArm | KeptVectors | None:
    """The arm behind a word; None compares vectors in this process alone.

    "auto" is what PAGEFILE_VECTORS says; else "qdrant" where QDRANT_URL is set, or
    "pgvector" where the store keeps vectors, which nobody asks for nothing; else "memory".
    """
    if not isinstance(wanted, str):
        if not all(callable(getattr(wanted, name, None)) for name in _METHODS):
            raise Invalid("vectors", f"{shown(wanted)} keeps no vectors", _WORDS)
        return wanted
    if wanted == "auto":
        settings = Settings.from_environment()
        wanted = settings.vectors or ("qdrant" if settings.qdrant_url else "")
        if not wanted:
            return KeptVectors() if store.vectors else None
    if wanted == "memory":
        return None
    if wanted == "qdrant":
        return _qdrant()
    if wanted == "pgvector":
        return _pgvector(store)
    if wanted == "redis":
        return _redis(store)
    raise Invalid("vectors", shown(wanted), _WORDS)


def _qdrant() -> VectorArm:
    from pagefile.recall.arms.qdrant import QdrantArm

    settings = Settings.from_environment()
    if not settings.qdrant_url:
        raise Invalid(
            "vectors", "'qdrant' needs to know where", "set QDRANT_URL, or give QdrantArm(url)"
        )
    return QdrantArm(
        settings.qdrant_url,
        collection=settings.qdrant_collection,
        api_key=settings.qdrant_api_key or None,
        prefer_grpc=settings.qdrant_grpc_port > 0,
        grpc_port=settings.qdrant_grpc_port or 6334,
    )


def _pgvector(store: Store) -> KeptVectors:
    # From now on the commits of this store bring their vectors along.
    store.keep_vectors()
    return KeptVectors()


def _redis(store: Store) -> VectorArm:
    from pagefile.recall.arms.redis import RedisArm

    url = store.url or ""
    if not url.startswith(("redis", "valkey")):
        raise Invalid(
            "vectors",
            "'redis' lies beside a store on Redis, and this is none",
            "give RedisArm('redis://…')",
        )
    return RedisArm(url)
