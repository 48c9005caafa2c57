"""API keys: made once, shown once, kept as digests.

    pf_<12 hexadecimal digits: which key>_<43 characters: 256 random bits>

The store holds a SHA-256 of the secret under the key's own salt. A slow hash
would add nothing: nobody guesses 256 bits, and a quick one cannot be made to
burn the server's time.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import msgspec

from pagefile.errors import Conflict, Invalid, NotFound, shown
from pagefile.handle import Admin, machine_clock
from pagefile.store.arguments import Naming, require_count
from pagefile.store.batch import Absent, Batch, Put, VersionIs
from pagefile.store.codec.decoder import convert
from pagefile.store.records import Document
from pagefile.surfaces.access.identity import (
    ACCESS_TENANT,
    Identity,
    Right,
    require_rights,
    require_tenant,
    require_user,
)
from pagefile.surfaces.kinds import KEYS

_KEY = re.compile(r"pf_([0-9a-f]{12})_([A-Za-z0-9_-]{43})")
_ID = re.compile(r"[0-9a-f]{12}")
_PAGE = 1_000
_MOST_DAYS = 36_500
_NAMES = Naming(128)
#: Compared with when there is no such key, so that looking takes as long.
_NOBODYS_DIGEST = "0" * 64
_MOST_REMEMBERED = 10_000
#: How long an answer about a key counts; a revoked one may be let in for so long elsewhere.
REMEMBERED_SECONDS = 2.0


class Key(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a key. The secret is not: it was shown when the key was made."""

    key_id: str
    tenant: str
    rights: tuple[Right, ...]
    user_id: str | None = None
    name: str = ""
    created_at: datetime
    expires_at: datetime | None = None
    revoked_at: datetime | None = None


class MadeKey(msgspec.Struct, frozen=True):
    """A new key and its secret, which nobody can be told again."""

    key: Key
    secret: str

    def __repr__(self) -> str:
        """Without the secret, which must not end up in a log."""
        return f"<MadeKey {self.key.key_id}>"


class _Stored(msgspec.Struct, frozen=True):
    key: Key
    salt: str
    digest: str


class KeyStore:
    """The keys of all tenants of a store; for operators, through their `Admin`."""

    def __init__(
        self,
        admin: Admin,
        *,
        remembered_seconds: float = REMEMBERED_SECONDS,
        clock: Callable[[], int] = machine_clock,
    ) -> None:
        self._store = admin.open(ACCESS_TENANT).store
        self._clock = clock
        self._remembered_seconds = remembered_seconds
        # By the text itself: a dictionary compares it only with one of the same hash, which is
        # seeded anew in every process, so that a lookup tells nothing of how much was right.
        self._remembered: OrderedDict[str, tuple[float, Identity | None]] = OrderedDict()
        self._lock = threading.Lock()

    def create(
        self,
        tenant: str,
        rights: object = ("read", "write"),
        *,
        user_id: str | None = None,
        name: str = "",
        days: int | None = None,
    ) -> MadeKey:
        """Make a key; only its digest is stored.

        Raises:
            Invalid: tenant, rights, user, name or days are none.
        """
        _NAMES.check_text("name", name, may_be_empty=True)
        now = self._now()
        until = None
        if days is not None:
            require_count(days, "days", least=1, most=_MOST_DAYS)
            until = now + timedelta(days=days)
        key = Key(
            key_id=secrets.token_hex(6),
            tenant=require_tenant(tenant),
            rights=tuple(sorted(require_rights(rights))),
            user_id=require_user(user_id),
            name=name,
            created_at=now,
            expires_at=until,
        )
        secret, salt = secrets.token_urlsafe(32), secrets.token_hex(16)
        stored = _Stored(key, salt, _digest(salt, secret))
        document = KEYS + key.key_id
        put = Put(document, msgspec.to_builtins(stored), kind="key")
        self._store.commit(Batch([put], [Absent(document)]))
        return MadeKey(key, f"pf_{key.key_id}_{secret}")

    def list(self, tenant: str | None = None) -> list[Key]:
        """All keys, revoked and expired ones too, or those of one tenant; oldest first."""
        found: list[Key] = []
        after = ""
        while names := self._store.names("document", prefix=KEYS, after=after, limit=_PAGE):
            documents = self._store.get_many(names)
            found += [_stored(each).key for each in documents if each is not None]
            after = names[-1]
        of_tenant = (key for key in found if tenant is None or key.tenant == tenant)
        return sorted(of_tenant, key=lambda key: (key.created_at, key.key_id))

    def revoke(self, key_id: str) -> Key:
        """Let a key in no more. Doing it again changes nothing.

        Raises:
            NotFound: there is no such key.
        """
        if type(key_id) is not str or _ID.fullmatch(key_id) is None:
            raise Invalid("key_id", shown(key_id), "give the 12 digits between the underscores")
        document = KEYS + key_id
        while True:
            found = self._store.get(document)
            if found is None:
                raise NotFound(f"there is no key {key_id!r}", "list the keys")
            stored = _stored(found)
            if stored.key.revoked_at is not None:
                return stored.key
            key = msgspec.structs.replace(stored.key, revoked_at=self._now())
            put = Put(document, msgspec.to_builtins(_Stored(key, stored.salt, "")), kind="key")
            try:
                self._store.commit(Batch([put], [VersionIs(document, found.version)]))
            except Conflict:
                continue
            with self._lock:
                self._remembered.clear()
            return key

    def is_empty(self) -> bool:
        """Whether no key was ever made here."""
        return not self._store.names("document", prefix=KEYS, limit=1)

    def remembered(self, text: str) -> Identity | None:
        """Whose key this is, if that was asked moments ago; reads nothing."""
        known = self._remembered.get(text)
        if known is None or known[0] < time.monotonic():
            return None
        return known[1]

    def authenticate(self, text: str) -> Identity | None:
        """Whose key this is; None when it is nobody's, revoked or expired."""
        shape = _KEY.fullmatch(text) if isinstance(text, str) else None
        if shape is None:
            return None
        key_id, secret = shape.groups()
        found = self._store.get(KEYS + key_id)
        stored = None if found is None else _stored(found)
        salt, digest = ("", _NOBODYS_DIGEST) if stored is None else (stored.salt, stored.digest)
        is_right = hmac.compare_digest(_digest(salt, secret).encode(), digest.encode())
        if stored is None or not is_right or not self._counts(stored.key):
            return None
        key = stored.key
        identity = Identity(f"key:{key.key_id}", key.tenant, frozenset(key.rights), key.user_id)
        self._remember(text, identity, key)
        return identity

    def _remember(self, text: str, identity: Identity, key: Key) -> None:
        seconds = self._remembered_seconds
        if key.expires_at is not None:
            seconds = min(seconds, (key.expires_at - self._now()).total_seconds())
        with self._lock:
            self._remembered[text] = (time.monotonic() + seconds, identity)
            while len(self._remembered) > _MOST_REMEMBERED:
                self._remembered.popitem(last=False)

    def _counts(self, key: Key) -> bool:
        if key.revoked_at is not None:
            return False
        return key.expires_at is None or self._now() < key.expires_at

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self._clock() / 1e6, UTC)


def _stored(document: Document) -> _Stored:
    return convert(document.value, _Stored)


def _digest(salt: str, secret: str) -> str:
    return hashlib.sha256(f"{salt}:{secret}".encode()).hexdigest()
