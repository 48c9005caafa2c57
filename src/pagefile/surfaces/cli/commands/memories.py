"""`pagefile add`, `update`, `search`, `list`, `get` and `review`: memories, in and out."""

from __future__ import annotations

import getpass
from contextlib import nullcontext
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

import msgspec
import typer

from pagefile.errors import Invalid, NotFound, Unsupported, shown
from pagefile.store.arguments import bounded
from pagefile.surfaces.cli.call import Answer, Call, people_of, plain
from pagefile.surfaces.cli.memory_view import count, day, short, tree, unseen
from pagefile.surfaces.cli.parameters import Limit, Session, given_text, last_moment, moment
from pagefile.surfaces.cli.screen import Screen

if TYPE_CHECKING:
    from pagefile.handle import Pagefile


_AT_ONCE = 1_000
_SESSION = "cli"

Text = Annotated[
    str | None,
    typer.Argument(metavar="TEXT", help="The text; '-', or nothing and a pipe, is standard input."),
]
At = Annotated[
    str | None, typer.Option("--at", help="When it happened, or since when.", metavar="MOMENT")
]
Block = Annotated[
    str | None, typer.Option("--block", help="The block of this name.", metavar="NAME")
]


def add(
    context: typer.Context,
    text: Text = None,
    session: Session = None,
    output: Annotated[
        str, typer.Option("--output", help="What was answered.", metavar="TEXT")
    ] = "",
    speaker: Annotated[
        str | None, typer.Option("--speaker", help="Who said it.", metavar="NAME")
    ] = None,
    at: At = None,
    identity: Annotated[
        str | None, typer.Option("--id", help="An id of your own.", metavar="ID")
    ] = None,
    lines: Annotated[
        bool, typer.Option("--lines", help="Each line of the text is an episode of its own.")
    ] = False,
    block: Block = None,
    fact: Annotated[
        tuple[str, str, str] | None,
        typer.Option("--fact", help="Assert a fact instead.", metavar="SUBJECT PREDICATE OBJECT"),
    ] = None,
    consolidate: Annotated[
        bool, typer.Option("--consolidate", help="Read facts out of it at once.")
    ] = False,
) -> Answer:
    """Remember something: an episode, a fact, or text at the end of a block."""
    call = Call.of(context)
    if fact is not None and block is not None:
        raise Invalid("fact", "and --block are two things", "give one of them")
    beside = {
        "session": session is not None,
        "output": output != "",
        "speaker": speaker is not None,
        "lines": lines,
        "consolidate": consolidate,
    }
    if fact is not None:
        _require_none("--fact", beside)
        return _add_fact(call, fact, text, at, identity)
    if block is not None:
        _require_none("--block", beside | {"id": identity is not None, "at": at is not None})
    given = given_text("text", text)
    if block is not None:
        with call.open(create=True) as pf:
            made = pf.memory.append_block(block, given, user_id=call.user)
        return Answer(made, lambda screen: screen.done(f"block {block}, version {made.version}"))
    if not given.strip() and not output.strip():
        raise Invalid("text", "is empty", "give some text")
    common: dict[str, Any] = {
        "session_id": _SESSION if session is None else session,
        "user_id": call.user,
        "speaker": speaker,
    }
    if (when := moment("at", at)) is not None:
        common["occurred_at"] = when
    said = [line for line in given.splitlines() if line.strip()] if lines else [given]
    if identity is not None and len(said) > 1:
        raise Invalid("id", "is one for several lines", "leave --id or --lines out")
    if identity is not None:
        common["id"] = identity
    return _add_episodes(call, said, output, common, consolidate)


def _add_episodes(
    call: Call, said: list[str], output: str, common: dict[str, Any], consolidate: bool
) -> Answer:
    from pagefile.memory.episodes.episode import Episode

    episodes = [Episode(input=each, output=output, **common) for each in said]
    facts = proposed = 0
    # One is stored before a bar could say anything.
    bar = call.screen.progress("storing") if len(episodes) > 1 else nullcontext()
    with call.open(create=True) as pf, bar as progress:
        ids: list[str] = []
        for start in range(0, len(episodes), _AT_ONCE):
            ids += pf.memory.remember_many(episodes[start : start + _AT_ONCE])
            if progress is not None:
                progress(len(ids), len(episodes))
        if consolidate:
            report = pf.memory.consolidate()
            facts, proposed = report.facts, report.proposed
    told = [{"id": each, "kind": "episode"} for each in ids]

    def show(screen: Any) -> None:
        if len(ids) == 1:
            screen.line(ids[0])
        else:
            screen.done(f"{count(len(ids), 'episode')} remembered")
        if consolidate:
            screen.note(f"{count(facts, 'fact')} read")
        if proposed:
            screen.note(f"{proposed:,} to be reviewed: 'pagefile list proposals'")

    return Answer(told, show)


def _require_none(instead: str, given: dict[str, bool]) -> None:
    """Refuse options that are about episodes, rather than leave them unheeded."""
    for name, is_given in given.items():
        if is_given:
            raise Invalid(name, f"has no meaning with {instead}", f"leave --{name} out")


def _add_fact(
    call: Call, fact: tuple[str, str, str], text: str | None, at: str | None, own_id: str | None
) -> Answer:
    from pagefile.memory.facts.fact import Fact

    if text is not None:
        raise Invalid("text", "is given beside a fact", "leave it out")
    subject, predicate, object_ = fact
    made = Fact(
        subject=subject,
        predicate=predicate,
        object=object_,
        user_id=call.user,
        actor="cli",
        valid_from=moment("at", at) or datetime.now(UTC),
    )
    if own_id is not None:
        made = msgspec.structs.replace(made, id=own_id)
    with call.open(create=True) as pf:
        identity = pf.memory.facts.append(made)
    return Answer([{"id": identity, "kind": "fact"}], lambda screen: screen.line(identity))


def update(
    context: typer.Context,
    identity: Annotated[
        str | None, typer.Argument(metavar="ID", help="An episode's or a fact's id.")
    ] = None,
    text: Text = None,
    block: Block = None,
    expected_version: Annotated[
        int | None,
        typer.Option("--expected-version", help="Refuse unless the block is at it.", metavar="N"),
    ] = None,
    at: At = None,
) -> Answer:
    """Change an episode's text, a fact's object, or a block's text; the past stays readable."""
    call = Call.of(context)
    if block is not None:
        if identity is not None and text is not None:
            raise Invalid("id", "is given beside --block", "give the text alone")
        _require_none("--block", {"at": at is not None})
        given = given_text("text", text if identity is None else identity)
        with call.open(create=True) as pf:
            made = pf.memory.update_block(
                block, given, user_id=call.user, expected_version=expected_version
            )
        return Answer(made, lambda screen: screen.done(f"block {block}, version {made.version}"))
    if identity is None:
        raise Invalid("id", "is missing", "give the id of an episode or fact, or --block NAME")
    if expected_version is not None:
        raise Invalid("expected_version", "is for blocks", "leave it out")
    given = given_text("text", text)
    with call.open() as pf:
        told = _updated(pf, call, identity, given, at)
    return Answer([told], lambda screen: screen.done(f"{told['kind']} {told['id']}"))


def _updated(pf: Pagefile, call: Call, identity: str, text: str, at: str | None) -> dict[str, Any]:
    try:
        kind = pf.memory.why(identity, user_id=call.user).kind
    except NotFound as error:
        raise unseen(error) from None
    if kind == "episode":
        if at is not None:
            raise Invalid("at", "is for facts", "leave it out")
        episode = pf.memory.episode(identity, user_id=call.user)
        # The vector was made of the old text.
        changed = msgspec.structs.replace(episode, input=text, embedding=None)
        return {"id": pf.memory.remember(changed), "kind": kind}
    if kind == "fact":
        from pagefile.memory.facts.store import give_new_object

        new = give_new_object(
            pf.memory.facts,
            identity,
            text,
            datetime.now(UTC),
            since=moment("at", at),
            user_id=call.user,
            actor="cli",
        )
        return {"id": new, "kind": kind, "replaces": identity}
    if kind == "candidate":
        raise Unsupported(
            f"{identity} is a candidate, which waits for review",
            "commit or reject it with Memory.proposals",
        )
    raise Unsupported(
        f"{identity} is a long-term item, which changes by a batch that somebody reviews",
        "propose a change with LongTermItems.propose",
    )


# `pagefile search`, `list` and `get`: what is remembered.


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


# `pagefile review`: what was proposed is let in, or turned away.


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
