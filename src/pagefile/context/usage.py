"""Usage texts: each stored once, under its digest, and referred to by slots.

The same text goes with every message of an agent and can be many times as long
as the message. A slot notes its digest; the text is a document of its own.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from contextlib import suppress
from hashlib import sha256

from pagefile.batch import Absent, Batch, Put
from pagefile.context.names import USAGE, require_text
from pagefile.errors import Conflict
from pagefile.store import Store

_TEXTS_KEPT = 1_024
#: A text may have been erased: after so many seconds the store is asked again.
_TRUSTED_SECONDS = 1.0


class UsageShelf:
    """The usage texts of one store, with those met lately at hand."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._texts: OrderedDict[str, tuple[str, float]] = OrderedDict()
        self._digests: dict[str, str] = {}

    def digest(self, text: str) -> str:
        """What slots note in place of the text."""
        require_text("usage_instructions", text)
        return self._digests.get(text) or sha256(text.encode()).hexdigest()

    def put(self, text: str) -> None:
        """Make sure that the store has the text.

        In a commit of its own: a repeated append must not differ from its first
        attempt in whether the text was new.
        """
        digest = self.digest(text)
        name = USAGE + digest
        if self._store.get(name) is None:
            # Whoever loses the race finds the same text there.
            with suppress(Conflict):
                self._store.commit(Batch([Put(name, text, kind="usage")], [Absent(name)]))
        self._keep(digest, text)

    def knows(self, text: str) -> bool:
        """Whether `put` needs no look into the store."""
        if not text:
            return True
        digest = self._digests.get(text)
        return digest is not None and self._trusted(digest) is not None

    def text(self, digest: str) -> str:
        """The text behind a digest; empty when it was erased."""
        trusted = self._trusted(digest)
        if trusted is not None:
            return trusted
        found = self._store.get(USAGE + digest)
        if found is None or found.erased:
            self._forget(digest)
            return ""
        text = str(found.value)
        self._keep(digest, text)
        return text

    def _trusted(self, digest: str) -> str | None:
        known = self._texts.get(digest)
        if known is None or time.monotonic() - known[1] > _TRUSTED_SECONDS:
            return None
        return known[0]

    def _keep(self, digest: str, text: str) -> None:
        self._texts[digest] = (text, time.monotonic())
        self._digests[text] = digest
        if len(self._texts) > _TEXTS_KEPT:
            self._forget(next(iter(self._texts)))

    def _forget(self, digest: str) -> None:
        known = self._texts.pop(digest, None)
        if known is not None:
            self._digests.pop(known[0], None)
