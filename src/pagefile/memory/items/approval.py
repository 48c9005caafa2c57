"""Who may let a batch pass: a reviewer by name, or a token that works once.

A token's document, `item-token/<token's own id>`, holds its run and a salted
digest of its secret; the secret is nowhere but in the answer of `issue`.
"""

from __future__ import annotations

import hashlib
import hmac
import re

import msgspec

from pagefile.errors import Forbidden
from pagefile.memory.items.item import Gate
from pagefile.memory.items.proposal import ItemBatch
from pagefile.memory.serializer import plain, shaped
from pagefile.store import clock
from pagefile.store.batch import Condition, Operation, Put, VersionIs
from pagefile.store.codec.decoder import convert
from pagefile.store.store import Store

TOKENS = "item-token/"
_FORM = re.compile(r"mst_([0-9a-f]{24})_([0-9a-f]{64})")
_ASK_AGAIN = "issue_token() for the run of the batch, and use it once, in time"


class Pass(msgspec.Struct, frozen=True):
    """By which gate a batch passes, and what commits with it for that."""

    gate: Gate
    by: str = ""
    operations: tuple[Operation, ...] = ()
    conditions: tuple[Condition, ...] = ()


class _Token(msgspec.Struct, frozen=True):
    run_id: str
    salt: str
    digest: str
    expires_us: int
    user_id: str | None = None
    used_by: str = ""


def issue(run_id: str, user_id: str | None, expires_us: int) -> tuple[str, Put]:
    """A new token, and what stores all of it but its secret."""
    name, secret, salt = clock.token_hex(12), clock.token_hex(32), clock.token_hex(16)
    token = _Token(run_id, salt, _digest(salt, secret), expires_us, user_id)
    return f"mst_{name}_{secret}", _put(name, token)


def spend(store: Store, text: object, batch: ItemBatch, now_us: int) -> Pass:
    """The pass that uses up a token for this batch.

    Raises:
        Forbidden: the token is no token, was used, is too old, or is another run's.
    """
    match = _FORM.fullmatch(text) if type(text) is str else None
    found = None if match is None else store.get(TOKENS + match[1])
    if match is None or found is None or found.erased:
        raise Forbidden("the token is unknown", _ASK_AGAIN)
    token = shaped(found, _Token)
    if not hmac.compare_digest(token.digest, _digest(token.salt, match[2])):
        raise Forbidden("the token is unknown", _ASK_AGAIN)
    if token.used_by:
        raise Forbidden(f"the token was used, for batch {token.used_by!r}", _ASK_AGAIN)
    if token.expires_us <= now_us:
        raise Forbidden("the token has expired", _ASK_AGAIN)
    if token.run_id != batch.run_id:
        raise Forbidden("the token is for another run than the batch", _ASK_AGAIN)
    used = msgspec.structs.replace(token, used_by=batch.batch_id)
    condition = VersionIs(found.name, found.version)
    return Pass("token", "", (_put(match[1], used),), (condition,))


def user_of_token(value: object) -> str | None:
    """Whose token the body of a token's document is."""
    return convert(value, _Token).user_id


def _put(name: str, token: _Token) -> Put:
    return Put(TOKENS + name, plain(token), user=token.user_id, kind="item-token")


def _digest(salt: str, secret: str) -> str:
    return hashlib.sha256(bytes.fromhex(salt) + bytes.fromhex(secret)).hexdigest()
