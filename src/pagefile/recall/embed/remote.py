"""An embedder behind HTTP: any server that speaks the OpenAI form of `/embeddings`."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Self

import numpy as np

from pagefile.errors import Invalid, Unavailable, shown
from pagefile.recall.embed.embedder import MOST_DIMENSIONS, Floats, unit_rows
from pagefile.store.arguments import require_count, require_seconds

_MOST_RETRIES = 20
_MOST_BATCH = 2_048
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 30.0
#: Worth another try: too many requests, and whatever the server calls its own fault.
_BUSY = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
_MOST_SHOWN = 200


class RemoteEmbedder:
    """Vectors from a server; nothing is sent until a text is embedded.

    A request that times out, or is answered by 429 or a 5xx, is sent again up to
    `retries` times, after twice the pause each time, or the pause the server asks
    for. `dimensions` is what the model gives; another length is refused.

    Raises, from every embedding:
        Unavailable: the server did not answer, or was busy to the end.
        Invalid: it refused the request, or its answer is no list of vectors.
    """

    def __init__(
        self,
        base_url: str,
        *,
        model: str,
        dimensions: int,
        key: str = "",
        timeout: float = 30.0,
        retries: int = 4,
        batch: int = 128,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        if not base_url.startswith(("http://", "https://")):
            raise Invalid("base_url", f"{shown(base_url)} is no HTTP address", "give http(s)://…")
        if not model:
            raise Invalid("model", "is empty", "name the model that the server shall use")
        require_seconds(timeout)
        self.name = model
        self.dimensions = require_count(dimensions, "dimensions", 1, MOST_DIMENSIONS)
        self._url = base_url.rstrip("/") + "/embeddings"
        self._key = key
        self._timeout = timeout
        self._retries = require_count(retries, "retries", 0, _MOST_RETRIES)
        self._batch = require_count(batch, "batch", 1, _MOST_BATCH)
        self._sleep = sleep
        self._client: Any = None

    def __repr__(self) -> str:  # without the key
        return f"RemoteEmbedder({self._url!r}, model={self.name!r})"

    def close(self) -> None:
        """Give back the connections."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def embed(self, text: str) -> Floats:
        vector: Floats = self.embed_batch([text])[0]
        return vector

    def embed_batch(self, texts: Sequence[str]) -> Floats:
        rows = [self._some(texts[i : i + self._batch]) for i in range(0, len(texts), self._batch)]
        return np.concatenate(rows) if rows else np.empty((0, self.dimensions), np.float32)

    def _some(self, texts: Sequence[str]) -> Floats:
        # A server may refuse an empty text; a space is as empty, and is none.
        asked = {"model": self.name, "input": [text or " " for text in texts]}
        answer = self._post(asked)
        try:
            vectors = [row["embedding"] for row in sorted(answer["data"], key=lambda r: r["index"])]
        except (TypeError, KeyError) as error:
            raise Invalid(
                "answer", f"{shown(answer)} has no embeddings", "check base_url and model"
            ) from error
        return unit_rows(vectors, len(texts), self.dimensions)

    def _post(self, asked: dict[str, Any]) -> Any:
        import httpx

        if self._client is None:
            headers = {"Authorization": f"Bearer {self._key}"} if self._key else {}
            self._client = httpx.Client(headers=headers, timeout=self._timeout)
        pause = _FIRST_PAUSE
        for left in range(self._retries, -1, -1):
            cause: Exception | None = None
            wait = pause
            try:
                response = self._client.post(self._url, json=asked)
            except httpx.TransportError as error:
                # Embedding changes nothing on the server, so asking twice is harmless.
                cause, fact = error, f"{self._url} did not answer ({type(error).__name__})"
            else:
                if response.is_success:
                    return _json(response)
                fact = f"{self._url} answered {response.status_code}"
                if response.status_code not in _BUSY:
                    said = " ".join(response.text[:_MOST_SHOWN].split())
                    raise Invalid("request", f"{fact}: {said}", "check key, model and input")
                wait = _asked_pause(response.headers.get("retry-after"), pause)
            if left:
                self._sleep(min(wait, _LONGEST_PAUSE))
                pause *= 2
        raise Unavailable(f"{fact}, {self._retries + 1} times", "try again later") from cause


def _json(response: Any) -> Any:
    try:
        return response.json()
    except ValueError as error:
        raise Invalid(
            "answer", f"{shown(response.text)} is no JSON", "check base_url and model"
        ) from error


def _asked_pause(header: str | None, pause: float) -> float:
    """The seconds that the server asks for; a date or nonsense counts as nothing."""
    try:
        return max(pause, float(header)) if header else pause
    except ValueError:
        return pause
