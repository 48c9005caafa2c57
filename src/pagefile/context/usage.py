"""Usage texts: each stored once for a user, under its digest, and referred to by slots.

The same text goes with every message of an agent and can be many times as long
as the message. A slot notes its digest; the text is a document of its own, in
the partition of the slot's user: who is forgotten takes it along.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from contextlib import suppress
from hashlib import sha256

from pagefile.context.names import require_text, usage_document
from pagefile.errors import Conflict
from pagefile.store.batch import Batch, Put, VersionIs
from pagefile.store.store import Store

_TEXTS_KEPT = 1_024
#: A text may have been erased: after so many seconds the store is asked again.
_TRUSTED_SECONDS = 1.0


class UsageShelf:
    """The usage texts of one store, with those met lately at hand."""

    def __init__(self, store: Store) -> None:
        self._store = store
        #: By their documents, with when they were read.
        self._texts: OrderedDict[str, tuple[str, float]] = OrderedDict()
        #: The digests of the texts.
        self._digests: dict[str, str] = {}

    def digest(self, text: str) -> str:
        """What slots note in place of the text."""
        require_text("usage_instructions", text)
        return self._digests.get(text) or sha256(text.encode()).hexdigest()

    def put(self, text: str, user_id: str | None) -> None:
        """Make sure that the store has the text, for this user.

        In a commit of its own: a repeated append must not differ from its first
        attempt in whether the text was new.
        """
        name = usage_document(self.digest(text), user_id)
        found = self._store.get(name)
        if found is None or found.erased:
            version = 0 if found is None else found.version
            put = Put(name, text, user=user_id, kind="usage")
            # Whoever loses the race finds the same text there.
            with suppress(Conflict):
                self._store.commit(Batch([put], [VersionIs(name, version)]))
        self._keep(name, text)

    def knows(self, text: str, user_id: str | None) -> bool:
        """Whether `put` needs no look into the store."""
        if type(text) is not str:
            return False
        if not text:
            return True
        digest = self._digests.get(text)
        if user_id is not None and type(user_id) is not str:
            return False  # Refused by who makes the slot.
        return digest is not None and self._trusted(usage_document(digest, user_id)) is not None

    def text(self, digest: str, user_id: str | None) -> str:
        """The text behind a digest of a user's slot; empty when it was erased."""
        name = usage_document(digest, user_id)
        trusted = self._trusted(name)
        if trusted is not None:
            return trusted
        text = stored_text(self._store, digest, user_id)
        if text is None:
            self._forget(name)
            return ""
        self._keep(name, text)
        return text

    def _trusted(self, name: str) -> str | None:
        known = self._texts.get(name)
        if known is None or time.monotonic() - known[1] > _TRUSTED_SECONDS:
            return None
        return known[0]

    def _keep(self, name: str, text: str) -> None:
        self._texts[name] = (text, time.monotonic())
        self._digests[text] = name.rpartition("/")[2]
        if len(self._texts) > _TEXTS_KEPT:
            self._forget(next(iter(self._texts)))

    def _forget(self, name: str) -> None:
        known = self._texts.pop(name, None)
        if known is not None:
            self._digests.pop(known[0], None)


def stored_text(
    store: Store, digest: str, user_id: str | None, at: int | None = None
) -> str | None:
    """The text that is stored behind a digest of a user's slot; None when there is none."""
    # Stores of before had one document for all users.
    for whose in (user_id, None):
        found = store.get(usage_document(digest, whose), at=at)
        if found is not None and not found.erased:
            return str(found.value)
        if user_id is None:
            break
    return None
