"""Usage texts: each stored once, under its digest, and referred to by slots.

The same text goes with every message of an agent and can be many times as long
as the message. A slot notes its digest; the text is a document of its own.
"""

from __future__ import annotations

from collections import OrderedDict
from contextlib import suppress
from hashlib import sha256

from pagefile.batch import Absent, Batch, Put
from pagefile.context.names import USAGE, require_text
from pagefile.errors import Conflict
from pagefile.store import Store

_TEXTS_KEPT = 1_024


class UsageShelf:
    """The usage texts of one store, with those met lately at hand."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._texts: OrderedDict[str, str] = OrderedDict()
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
        return not text or text in self._digests

    def text(self, digest: str) -> str:
        """The text behind a digest; empty when it was erased."""
        if digest not in self._texts:
            found = self._store.get(USAGE + digest)
            if found is None or found.erased:
                return ""
            self._keep(digest, str(found.value))
        return self._texts[digest]

    def _keep(self, digest: str, text: str) -> None:
        self._texts[digest] = text
        self._digests[text] = digest
        if len(self._texts) > _TEXTS_KEPT:
            _, oldest = self._texts.popitem(last=False)
            self._digests.pop(oldest, None)
