"""`pagefile search`, `list` and `get`: what is remembered."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

import typer

from pagefile.errors import Invalid, NotFound, shown
from pagefile.store.arguments import bounded
from pagefile.surfaces.cli.answer import Answer
from pagefile.surfaces.cli.call import Call, people_of
from pagefile.surfaces.cli.envelope import plain
from pagefile.surfaces.cli.memory_view import day, short, tree, unseen
from pagefile.surfaces.cli.parameters import Limit, Session, given_text, last_moment, moment
from pagefile.surfaces.cli.screen import Screen

if TYPE_CHECKING:
    from pagefile.handle import Pagefile

Kind = Literal["episode", "fact", "item"]
Listed = Literal["episodes", "facts", "blocks", "users", "tenants", "proposals", "batches"]

Since = Annotated[
    str | None, typer.Option("--since", help="Not before this moment.", metavar="MOMENT")
]
Until = Annotated[
    str | None,
    typer.Option("--until", help="Not after this moment, or this day.", metavar="MOMENT"),
]


def search(
    context: typer.Context,
    query: Annotated[
        str | None, typer.Argument(metavar="QUERY", help="The question; '-' is standard input.")
    ] = None,
    limit: Limit = 10,
    kinds: Annotated[
        list[str] | None,
        typer.Option(
            "--kind",
            "-k",
            help="Look among episode, fact or item alone; may be repeated.",
            metavar="KIND",
        ),
    ] = None,
    session: Session = None,
    since: Since = None,
    until: Until = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Say how each score came about.")
    ] = False,
) -> Answer:
    """Find episodes, facts and long-term items that answer a question, best first."""
    call = Call.of(context)
    asked = given_text("query", query)
    span = (moment("since", since), last_moment("until", until))
    with call.open() as pf:
        by_words = pf.memory.embedder is None
        found = pf.memory.search(
            asked,
            limit=limit,
            kinds=_kinds(kinds),
            user_id=call.user,
            session_id=session,
            time_range=None if span == (None, None) else span,
        )
    told = [_match(match, explain) for match in found]

    def show(screen: Screen) -> None:
        rows = [(m.score, m.kind, day(m.at), short(m.text), m.id) for m in found]
        headings = ("score", "kind", "when", "text", "id")
        screen.table(headings, rows, none="nothing was found", stack=True)
        if not found and by_words:
            screen.note("only words were compared; with pagefile[embed] installed, meaning is too")
        if explain:
            for match in found:
                _explain(screen, match)

    return Answer(told, show)


def _kinds(named: list[str] | None) -> tuple[Kind, ...]:
    chosen = tuple(kind for kind in get_args(Kind) if not named or kind in named)
    for kind in named or ():
        if kind not in chosen:
            raise Invalid("kind", shown(kind), f"give {', '.join(get_args(Kind))}")
    return chosen


def _match(match: Any, explain: bool) -> dict[str, Any]:
    told = {
        "id": match.id,
        "kind": match.kind,
        "memory": match.text,
        "score": match.score,
        "at": match.at,
        "value": match.value,
    }
    return told | ({"hit": match.hit} if explain else {})


def _explain(screen: Screen, match: Any) -> None:
    screen.line()
    screen.line(f"{match.id}: {match.score:.3f}", "bold")
    if match.hit is None:
        return
    screen.line(f"  words in common: {', '.join(match.hit.matched) or 'none'}")
    for arm in match.hit.arms:
        screen.line(f"  {arm.name}: rank {arm.rank}, score {arm.score:.3f}, adds {arm.adds:.3f}")
    for boost in match.hit.boosts:
        screen.line(f"  {boost.name}: {boost.reason} (x{boost.times:.2f}, +{boost.adds:.3f})")


def list_(
    context: typer.Context,
    what: Annotated[
        Listed, typer.Argument(metavar="WHAT", help="Which kind of thing to list.")
    ] = "episodes",
    limit: Limit = 20,
    session: Session = None,
    since: Since = None,
    until: Until = None,
    history: Annotated[
        bool, typer.Option("--history", help="Facts: every window, also those that are over.")
    ] = False,
) -> Answer:
    """List episodes (newest first), facts, blocks, users, tenants, proposals or batches."""
    call = Call.of(context)
    if what == "tenants":
        with call.admin() as admin:
            names = people_of(admin)[: bounded(limit)]
        rows = [(name,) for name in names]
        return Answer(names, lambda screen: screen.table(("tenant",), rows, none="no tenants"))
    span = (moment("since", since), last_moment("until", until))
    with call.open() as pf:
        if what == "episodes":
            return _episodes(pf, call, limit, session, span)
        return _LISTS[what](pf, call, limit, history)


def _episodes(pf: Pagefile, call: Call, limit: int, session: str | None, span: Any) -> Answer:
    found = pf.memory.recall(
        "",
        limit=limit,
        user_id=call.user,
        session_id=session,
        time_range=None if span == (None, None) else span,
    )
    rows = [(day(e.occurred_at), e.session_id, short(e.text), e.id) for e in found]
    headings = ("when", "session", "text", "id")
    return Answer(found, lambda screen: screen.table(headings, rows, none="no episodes"))


def _facts(pf: Pagefile, call: Call, limit: int, history: bool) -> Answer:
    found = pf.memory.facts.query(user_id=call.user, limit=limit, history=history)
    rows = [(f"{f.subject} {f.predicate} {f.object}", _window(f), f.status, f.id) for f in found]
    headings = ("fact", "holds", "status", "id")
    return Answer(found, lambda screen: screen.table(headings, rows, none="no facts"))


def _window(fact: Any) -> str:
    until = "" if fact.valid_until is None else f" to {day(fact.valid_until)}"
    return f"{day(fact.valid_from)}{until}"


def _blocks(pf: Pagefile, call: Call, limit: int, history: bool) -> Answer:
    found = pf.memory.working(user_id=call.user)[:limit]
    rows = [(b.name, b.version, day(b.updated_at), short(b.content)) for b in found]
    headings = ("name", "version", "changed", "text")
    return Answer(found, lambda screen: screen.table(headings, rows, none="no blocks"))


def _users(pf: Pagefile, call: Call, limit: int, history: bool) -> Answer:
    found = [pf.memory.profile(user_id=name) for name in pf.memory.users(limit=limit)]
    told = [
        {
            "user_id": p.user_id,
            "episodes": p.episode_count,
            "facts": p.fact_count,
            "blocks": p.block_count,
            "last_seen": p.last_seen,
        }
        for p in found
    ]
    rows = [
        (p.user_id, p.episode_count, p.fact_count, p.block_count, day(p.last_seen)) for p in found
    ]
    headings = ("user", "episodes", "facts", "blocks", "last seen")
    return Answer(told, lambda screen: screen.table(headings, rows, none="no named users"))


def _proposals(pf: Pagefile, call: Call, limit: int, history: bool) -> Answer:
    found = pf.memory.proposals.waiting(user_id=call.user, limit=limit)
    rows = [(p.fact.text, p.fact.confidence, short(p.quote), p.fact.id) for p in found]
    headings = ("fact", "confidence", "quote", "id")
    return Answer(found, lambda screen: screen.table(headings, rows, none="no proposals wait"))


def _batches(pf: Pagefile, call: Call, limit: int, history: bool) -> Answer:
    found = list(pf.items.list_batches(limit=limit).items)
    rows = [(b.batch_id, b.status, len(b.changes), day(b.created_at)) for b in found]
    headings = ("batch", "status", "changes", "proposed")
    return Answer(found, lambda screen: screen.table(headings, rows, none="no batches"))


_LISTS = {
    "facts": _facts,
    "blocks": _blocks,
    "users": _users,
    "proposals": _proposals,
    "batches": _batches,
}


def get(
    context: typer.Context,
    identity: Annotated[
        str | None, typer.Argument(metavar="ID", help="An episode's, a fact's or an item's id.")
    ] = None,
    block: Annotated[
        str | None, typer.Option("--block", help="The block of this name.", metavar="NAME")
    ] = None,
) -> Answer:
    """Show one memory and where it comes from."""
    call = Call.of(context)
    if (identity is None) == (block is None):
        raise Invalid("id", "or --block: exactly one is wanted", "give one of them")
    with call.open() as pf:
        if block is not None:
            found = pf.memory.block(block, user_id=call.user)
            return Answer(found, lambda screen: screen.line(found.content))
        try:
            known = pf.memory.why(identity or "", user_id=call.user)
        except NotFound as error:
            raise unseen(error) from None
        told = plain(known)
        if known.kind == "episode":
            told["value"] = plain(pf.memory.episode(known.id, user_id=call.user))
    return Answer(told, lambda screen: tree(screen, told))
