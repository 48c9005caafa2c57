"""`pagefile review`: what was proposed is let in, or turned away."""

from __future__ import annotations

import getpass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pagefile.errors import Invalid, NotFound
from pagefile.surfaces.cli.answer import Answer
from pagefile.surfaces.cli.call import Call
from pagefile.surfaces.cli.envelope import plain
from pagefile.surfaces.cli.memory_view import count, tree, unseen

if TYPE_CHECKING:
    from pagefile.handle import Pagefile


def review(
    context: typer.Context,
    identity: Annotated[
        str, typer.Argument(metavar="ID", help="A proposed fact's id, or a batch's.")
    ],
    commit: Annotated[
        bool | None, typer.Option("--commit/--reject", help="Let it in, or turn it away.")
    ] = None,
    by: Annotated[
        str | None, typer.Option("--by", help="Who decides; you, by default.", metavar="NAME")
    ] = None,
    reason: Annotated[
        str, typer.Option("--reason", help="Why a fact is turned away.", metavar="TEXT")
    ] = "",
) -> Answer:
    """Decide about a proposed fact, or a batch of long-term items; without a choice, show it."""
    call = Call.of(context)
    if reason and commit is not False:
        raise Invalid("reason", "is for --reject", "leave it out, or add --reject")
    with call.open() as pf:
        is_batch = _is_batch(pf, identity)
        if is_batch and reason:
            raise Invalid("reason", "is kept of facts alone", "leave it out")
        if commit is None:
            told = plain(pf.items.batch(identity) if is_batch else _candidate(pf, call, identity))
            return Answer(told, lambda screen: tree(screen, told))
        reviewer = by or _who()
        try:
            decided = _decided(pf, call, identity, is_batch, commit, reviewer, reason)
        except NotFound as error:
            raise unseen(error) from None
    words = f"{identity} {'committed' if commit else 'rejected'} by {reviewer}"
    if is_batch and commit:
        words += f": {count(len(decided.memory_ids), 'item')}"
    return Answer(plain(decided), lambda screen: screen.done(words))


def _is_batch(pf: Pagefile, identity: str) -> bool:
    try:
        pf.items.batch(identity)
        return True
    except NotFound:
        return False


def _candidate(pf: Pagefile, call: Call, identity: str) -> Any:
    try:
        known = pf.memory.why(identity, user_id=call.user)
    except NotFound as error:
        raise unseen(error) from None
    if known.kind != "candidate":
        raise NotFound(
            f"{identity!r} is no proposal but of kind {known.kind}",
            "'pagefile list proposals' and 'pagefile list batches' show what waits",
        )
    return known


def _decided(
    pf: Pagefile,
    call: Call,
    identity: str,
    is_batch: bool,
    commit: bool,
    reviewer: str,
    reason: str,
) -> Any:
    if is_batch:
        return pf.items.commit(identity, reviewer=reviewer) if commit else pf.items.abort(identity)
    proposals = pf.memory.proposals
    if commit:
        return proposals.commit(identity, reviewer=reviewer, user_id=call.user)
    return proposals.reject(identity, reviewer=reviewer, user_id=call.user, reason=reason)


def _who() -> str:
    """Who sits at this machine, if it says so."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # No variable names the user, and no list of users does.
        return "cli"
