"""Qdrant as vector arm: one collection for all tenants, parted by tenant and owner.

    point       id      16 bytes that an entry of the index log gives
                vector  one, named after the model, so that no other can be put beside it
                payload part, tenant, owner
    mark        id      of the part
                payload part, tenant, owner, mark; no vector

`part` is a digest of tenant and owner, and the collection's tenant index: the
server looks at one user's points and at no others, so a small one is never
crowded out. Every request carries part and tenant as values of a filter, never
as a text that is put together. (A third condition made searches five times slower.)
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NoReturn

import msgspec

from pagefile.errors import Forbidden, Invalid, PagefileError, Unavailable, Unsupported, shown
from pagefile.recall.arms.arm import NOTHING, Found, Mark, Part
from pagefile.recall.embed.embedder import Floats
from pagefile.recall.extras import required
from pagefile.store.arguments import require_count, require_flag, require_seconds
from pagefile.store.codec.decoder import convert

_PAGE = 10_000
_MARK = "mark"
_NAMED_MOST = 255
_COLLECTION = "use 1 to 255 letters, digits, '-', '_' and '.'"
_HTTP = {401: Forbidden, 403: Forbidden}
_DENIED = ("UNAUTHENTICATED", "PERMISSION_DENIED")


class _Missing(Exception):
    """There is no such collection, or vector in it."""


class QdrantArm:
    """Vectors in a collection of a Qdrant server, over HTTP or gRPC.

    The collection is made when it is first filled. `exact=True` compares every
    vector of a user; otherwise the server may use its graph for large ones.
    """

    name = "qdrant"

    def __init__(
        self,
        url: str,
        *,
        collection: str = "pagefile",
        api_key: str | None = None,
        prefer_grpc: bool = False,
        grpc_port: int = 6334,
        timeout_seconds: float = 10.0,
        exact: bool = False,
    ) -> None:
        if not isinstance(url, str) or not url.startswith(("http://", "https://")):
            raise Invalid("qdrant_url", "it is no URL", "write http://host:6333 or https://…")
        if not _is_name(collection):
            raise Invalid("qdrant_collection", shown(collection), _COLLECTION)
        if api_key is not None and (not isinstance(api_key, str) or not api_key):
            raise Invalid("qdrant_api_key", "it is no key", "give a text, or None for none")
        require_flag("prefer_grpc", prefer_grpc)
        require_flag("exact", exact)
        require_count(grpc_port, "grpc_port", 1, 65_535)
        require_seconds(timeout_seconds, "timeout_seconds")
        self._place = f"Qdrant at {url.split('@')[-1]}"
        self._collection = collection
        self._exact = exact
        self._models = required("qdrant_client.models", "qdrant")
        self._client = required("qdrant_client", "qdrant").QdrantClient(
            url=url,
            api_key=api_key,
            prefer_grpc=prefer_grpc,
            grpc_port=grpc_port,
            timeout=max(1, round(timeout_seconds)),
            check_compatibility=False,
        )
        #: What the client raises, over either wire.
        self._failures = (
            required("qdrant_client.http.exceptions", "qdrant").ApiException,
            required("qdrant_client.common.client_exceptions", "qdrant").QdrantException,
            required("grpc", "qdrant").RpcError,
            required("httpx", "qdrant").HTTPError,
        )
        self._lock = threading.Lock()
        self._prepared: tuple[str, int] | None = None

    def __repr__(self) -> str:
        # Without the key.
        return f"<QdrantArm {self._place} collection {self._collection!r}>"

    # Making room

    def prepare(self, model: str, dimensions: int) -> None:
        with self._lock:
            if self._prepared == (model, dimensions) and self._exists():
                return
            self._prepared = None
            if not self._exists():
                self._create(model, dimensions)
            self._require_model(model, dimensions)
            self._prepared = (model, dimensions)

    def _exists(self) -> bool:
        with self._asking():
            return bool(self._client.collection_exists(self._collection))

    def _create(self, model: str, dimensions: int) -> None:
        m = self._models
        vector = m.VectorParams(size=dimensions, distance=m.Distance.COSINE)
        with self._asking(exists=True):
            self._client.create_collection(
                self._collection,
                vectors_config={vector_name(model, dimensions): vector},
                # No graph over all users, which a filter would thin out: one for each part.
                hnsw_config=m.HnswConfigDiff(m=0, payload_m=16),
            )
        keyword = m.PayloadSchemaType.KEYWORD
        with self._asking():
            self._client.create_payload_index(
                self._collection,
                "part",
                m.KeywordIndexParams(type=m.KeywordIndexType.KEYWORD, is_tenant=True),
            )
            self._client.create_payload_index(self._collection, "tenant", keyword)
            self._client.create_payload_index(self._collection, _MARK, m.PayloadSchemaType.BOOL)

    def _require_model(self, model: str, dimensions: int) -> None:
        with self._asking():
            held = self._client.get_collection(self._collection).config.params.vectors
        names = sorted(held) if isinstance(held, dict) else []
        if names != [vector_name(model, dimensions)]:
            self._refuse(model, dimensions, ", ".join(names) or "something else")

    def _refuse(self, model: str, dimensions: int, held: str) -> NoReturn:
        raise Unsupported(
            f"collection {self._collection!r} holds vectors of {held}, not of "
            f"{vector_name(model, dimensions)}",
            "name another collection (qdrant_collection), or delete this one",
        )

    # Keeping

    def upsert(self, part: Part, ids: Sequence[bytes], vectors: Floats) -> None:
        m = self._models
        named = vector_name(part.model, part.dimensions)
        payload = _payload(part)
        points = [
            m.PointStruct(id=_text(one), vector={named: row}, payload=payload)
            for one, row in zip(ids, vectors.tolist(), strict=True)
        ]
        self._put(points)

    def _put(self, points: list[Any]) -> None:
        try:
            with self._asking():
                self._client.upsert(self._collection, points=points, wait=True)
        except _Missing as error:
            self._prepared = None
            raise Unavailable(
                f"collection {self._collection!r} is gone, or another model's",
                "do it again: it is made anew and filled from the store",
            ) from error

    def delete(self, part: Part, ids: Sequence[bytes]) -> None:
        m = self._models
        chosen = m.HasIdCondition(has_id=[_text(one) for one in ids])
        self._remove(m.Filter(must=[*self._of(part), chosen]))

    def forget(self, part: Part) -> None:
        self._remove(self._models.Filter(must=self._of(part)))

    def _remove(self, chosen: Any) -> None:
        selector = self._models.FilterSelector(filter=chosen)
        self._or_nothing(
            lambda: self._client.delete(self._collection, points_selector=selector, wait=True)
        )

    def set_mark(self, part: Part, mark: Mark) -> None:
        payload = {**_payload(part), _MARK: True, **msgspec.to_builtins(mark)}
        point = self._models.PointStruct(id=_mark_id(part), vector={}, payload=payload)
        self._put([point])

    # Asking

    def nearest(self, part: Part, query: Floats, count: int, named: Sequence[bytes] = ()) -> Found:
        m = self._models
        asked, using = query.tolist(), vector_name(part.model, part.dimensions)
        requests = []
        if count:
            # A mark has no vector, and is near to nothing.
            chosen = m.Filter(must=self._of(part))
            requests.append(self._request(m, asked, using, chosen, count, self._exact))
        if named:
            by_name = m.HasIdCondition(has_id=[_text(one) for one in named])
            chosen = m.Filter(must=[*self._of(part), by_name])
            requests.append(self._request(m, asked, using, chosen, len(named), True))
        if not requests:
            return NOTHING
        try:
            with self._asking():
                answers = self._client.query_batch_points(self._collection, requests=requests)
        except _Missing:
            self._require_some_model(part)
            return NOTHING
        lists = [[(_bytes(p.id), float(p.score)) for p in one.points] for one in answers]
        return Found(lists[0] if count else [], dict(lists[-1]) if named else {})

    def _require_some_model(self, part: Part) -> None:
        if self._exists():
            self._require_model(part.model, part.dimensions)

    @staticmethod
    def _request(
        m: Any, asked: list[float], using: str, chosen: Any, count: int, exact: bool
    ) -> Any:
        return m.QueryRequest(
            query=asked,
            using=using,
            filter=chosen,
            limit=count,
            params=m.SearchParams(exact=exact),
            with_payload=False,
            with_vector=False,
        )

    def ids(self, part: Part) -> set[bytes]:
        chosen = self._models.Filter(must=self._of(part), must_not=[self._is_mark()])
        return {_bytes(point.id) for point in self._scrolled(chosen)}

    def count(self, part: Part) -> int:
        chosen = self._models.Filter(must=self._of(part), must_not=[self._is_mark()])
        found = self._or_nothing(
            lambda: self._client.count(self._collection, count_filter=chosen, exact=True)
        )
        return 0 if found is None else int(found.count)

    def mark(self, part: Part) -> Mark | None:
        found = self._or_nothing(
            lambda: self._client.retrieve(self._collection, ids=[_mark_id(part)], with_payload=True)
        )
        if not found or not _is_of(found[0].payload, part):
            return None
        try:
            return convert(found[0].payload, Mark)
        except msgspec.ValidationError:
            return None  # Nobody's mark: everything is looked at again.

    def owners(self, tenant: str) -> list[str]:
        m = self._models
        chosen = m.Filter(must=[self._is("tenant", tenant), self._is_mark()])
        points = self._scrolled(chosen, payload=["owner"])
        return sorted({str(point.payload["owner"]) for point in points})

    def close(self) -> None:
        self._client.close()

    def _scrolled(self, chosen: Any, payload: list[str] | bool = False) -> Iterator[Any]:
        scroll = partial(
            self._client.scroll,
            self._collection,
            scroll_filter=chosen,
            limit=_PAGE,
            with_payload=payload,
            with_vectors=False,
        )
        offset: Any = None
        while (found := self._or_nothing(partial(scroll, offset=offset))) is not None:
            points, offset = found
            yield from points
            if offset is None:
                return

    # Filters and errors

    def _of(self, part: Part) -> list[Any]:
        return [self._is("part", part.digest), self._is("tenant", part.tenant)]

    def _is(self, field: str, value: str | bool) -> Any:
        m = self._models
        return m.FieldCondition(key=field, match=m.MatchValue(value=value))

    def _is_mark(self) -> Any:
        return self._is(_MARK, True)

    def _or_nothing(self, call: Callable[[], Any]) -> Any:
        """What the call gives; None where there is no collection to ask."""
        try:
            with self._asking():
                return call()
        except _Missing:
            return None

    @contextmanager
    def _asking(self, *, exists: bool = False) -> Iterator[None]:
        """Driver errors as typed ones; `exists` lets pass that somebody else made it."""
        try:
            yield
        except self._failures as error:
            code, said = _told(error)
            if exists and code in (409, "ALREADY_EXISTS"):
                return
            if code in (404, "NOT_FOUND") or "Not existing vector name" in said:
                raise _Missing from error
            raise self._typed(code, said) from error

    def _typed(self, code: int | str, said: str) -> PagefileError:
        if code in _HTTP or code in _DENIED:
            return Forbidden(
                f"{self._place} does not let this client in ({said})",
                "check qdrant_api_key (QDRANT_API_KEY)",
            )
        return Unavailable(
            f"{self._place} does not answer ({said})",
            "start it or check the URL, then retry; alpha=0 searches by words alone meanwhile",
        )


def vector_name(model: str, dimensions: int) -> str:
    """What a model's vectors are called in a collection: the record of which model it is."""
    named = f"{model}@{dimensions}"
    if len(named.encode()) <= _NAMED_MOST and named.isprintable():
        return named
    return f"{uuid.uuid5(uuid.NAMESPACE_URL, model).hex}@{dimensions}"


def _payload(part: Part) -> dict[str, str]:
    return {"part": part.digest, "tenant": part.tenant, "owner": part.owner}


def _is_of(payload: Any, part: Part) -> bool:
    wanted = _payload(part)
    return isinstance(payload, dict) and all(payload.get(k) == v for k, v in wanted.items())


def _mark_id(part: Part) -> str:
    return _text(part.point(_MARK, -1, -1))


def _text(one: bytes) -> str:
    return str(uuid.UUID(bytes=one))


def _bytes(one: Any) -> bytes:
    return bytes.fromhex(str(one).replace("-", ""))


def _told(error: Exception) -> tuple[int | str, str]:
    """The code, and the server's words in one short line."""
    code = getattr(error, "status_code", None)
    if callable(rpc := getattr(error, "code", None)):
        code = getattr(rpc(), "name", str(rpc()))
    details = error.details() if callable(getattr(error, "details", None)) else str(error)  # type: ignore[attr-defined]
    said = " ".join(str(details).split())
    return code or type(error).__name__, said if len(said) <= 200 else f"{said[:200]}…"


def _is_name(text: object) -> bool:
    return (
        isinstance(text, str)
        and 0 < len(text) <= _NAMED_MOST
        and text.isascii()
        and text.replace("-", "").replace("_", "").replace(".", "").isalnum()
    )
