"""`pagefile add` and `pagefile update`: what is to be remembered."""

from __future__ import annotations

from contextlib import nullcontext
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from pagefile.errors import Invalid, NotFound, Unsupported
from pagefile.surfaces.cli.answer import Answer
from pagefile.surfaces.cli.call import Call
from pagefile.surfaces.cli.memory_view import count, unseen
from pagefile.surfaces.cli.parameters import Session, given_text, moment

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
