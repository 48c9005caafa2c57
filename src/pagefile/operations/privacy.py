"""What is kept of a user: a profile, an export, an import, and forgetting."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import datetime
from pathlib import Path

import msgspec

from pagefile.errors import Forbidden, Invalid
from pagefile.memory.memory import Memory
from pagefile.memory.privacy.export import read_export
from pagefile.memory.privacy.importer import ImportReceipt
from pagefile.operations.answer import Lines, Page
from pagefile.operations.caller import Caller
from pagefile.operations.operation import get, operation, post
from pagefile.operations.packs import info_of
from pagefile.store.records import Receipt

NDJSON = "application/x-ndjson"
#: What a repeated request is answered with in place of steps that name things.
_SAID_ONCE = "the steps that finish it were in the first answer: forget again to see them"
_LINES_AT_ONCE = 100


class Forgetting(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Whose memories go; a session's, one episode, or what was before a moment.

    A key that is bound to no user has to say which of these is meant: `nobody`, or
    `user_id` null, is everything that belongs to no user. `dry_run` touches nothing.
    """

    user_id: str | msgspec.UnsetType | None = msgspec.UNSET
    nobody: bool = False
    session_id: str | None = None
    episode_id: str | None = None
    before: datetime | None = None
    dry_run: bool = False


class Forgotten(msgspec.Struct, kw_only=True):
    """What was removed, by kind, and how far the removal reaches."""

    count: int
    counts: dict[str, int]
    dry_run: bool
    receipt: Receipt | None


profile = operation(Memory.profile, http=get("/v1/profile", "privacy"))

list_users = operation(
    Memory.users,
    http=get("/v1/users", "privacy"),
    right="admin",
    whole_tenant=True,
    gives=Page,
    page="",
)


@operation(
    Memory.export,
    http=get("/v1/export", "privacy"),
    gives_file=NDJSON,
    says="Lines of JSON, each with its digest.",
)
async def export(caller: Caller, *, user_id: str | None = None) -> Lines:
    """Everything that is kept of a user."""
    memory = await caller.memory()
    coming = aiter(await memory.export(user_id=user_id))
    # The first line is read before the answer begins: what cannot be exported is refused.
    page = [await anext(coming)]

    async def lines() -> AsyncIterator[bytes]:
        async for line in coming:
            page.append(line)
            if len(page) >= _LINES_AT_ONCE:
                yield b"".join(page)
                page.clear()
        yield b"".join(page)

    return Lines(lines(), "export.jsonl")


@operation(Memory.import_, http=post("/v1/import", "privacy"), upload=NDJSON)
async def import_(caller: Caller, upload: Path) -> ImportReceipt:
    """Take an export in; what is there is left, what was forgotten stays forgotten."""
    memory = await caller.memory()
    own = caller.identity.user_id
    if own is not None:
        with upload.open("rb") as lines:
            if read_export(lines)[0].user_id != own:
                raise Forbidden("this key is bound to another user", "use another key")
    own_only = own is not None or "admin" not in caller.identity.rights
    return await memory.import_(upload, own_only=own_only)


@operation(
    Memory.forget,
    http=post("/v1/forget", "privacy"),
    may_be_empty=True,
    span="delete_memory",
)
async def forget(caller: Caller, body: Forgetting) -> Forgotten:
    """Erase what is kept of a user, for good, in one commit; needs `admin`."""
    memory = await caller.memory()
    if not body.dry_run:
        caller.require("admin")
    user_id = caller.user(_whose(caller, body))
    receipt = await memory.forget(
        user_id=user_id,
        session_id=body.session_id,
        episode_id=body.episode_id,
        before=body.before,
        dry_run=body.dry_run,
    )
    caller.leaves_nothing()
    counts = dict(receipt.counts)
    stored = receipt.receipt
    if user_id is not None and not body.dry_run:
        is_all = body.session_id is None and body.before is None and body.episode_id is None
        here, left = await asyncio.to_thread(_without_packs, caller, user_id, is_all)
        # Of those on this server's shelf there is nothing more to say.
        others = [step for step in stored.remaining if not any(pack in step for pack in here)]
        stored = msgspec.structs.replace(stored, remaining=(*others, *left))
    answer = Forgotten(count=int(receipt), counts=counts, dry_run=receipt.dry_run, receipt=stored)
    # Streams, threads and packs may be named after the person, and so nothing keeps their names.
    said = (_SAID_ONCE,) if stored.remaining else ()
    nameless = msgspec.structs.replace(stored, removed=(), remaining=said)
    caller.leaves_nothing(msgspec.structs.replace(answer, receipt=nameless))
    return answer


def _whose(caller: Caller, given: Forgetting) -> str | None:
    """The user that is named; that no user is meant has to be said, and not left out.

    Raises:
        Invalid: nothing says what is to be forgotten. Forbidden: the key is bound to a user.
    """
    user_id = given.user_id
    if given.nobody:
        if isinstance(user_id, str):
            raise Invalid("nobody", "is given beside user_id", "give one of them")
        caller.require_whole_tenant()
        return None
    if not isinstance(user_id, msgspec.UnsetType):
        return user_id
    is_part = given.session_id is not None or given.episode_id is not None
    if caller.identity.user_id is None and not is_part and given.before is None:
        rule = "name the user; `nobody` is everything that belongs to no user"
        raise Invalid("user_id", "is missing, and nothing else says what to forget", rule)
    return None


def _without_packs(caller: Caller, user_id: str, is_all: bool) -> tuple[list[str], list[str]]:
    """Remove the packs that wait here and hold something of the user; which, and what to do.

    Of a user who goes in part, a pack may hold what stays: that is for people to say.
    """
    found = caller.host.packs.of_user(caller.identity.tenant, user_id)
    infos = [info_of(path) for path in found]
    here = [info.pack_id for info in infos]
    if not is_all:
        return here, [f"a pack holds more of the user: DELETE {info.download}" for info in infos]
    for path in found:
        path.unlink(missing_ok=True)
    return here, []
