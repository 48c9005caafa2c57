"""The thread registry: the contract on each engine, many processes, odd input, isolation."""

from __future__ import annotations

import inspect
import itertools
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import pagefile
from pagefile import Batch, Corrupt, Invalid, Limits, Options, PagefileError, Put, Store
from pagefile.context import path as paths
from pagefile.context.path import parse, text_of
from pagefile.context.registry import ThreadRegistry
from pagefile.context.shared_backend import get_registry, reset_registry
from pagefile.testing.backend import Backend, FileBackend, SharedBackend
from pagefile.testing.context.registry import RegistryContract, rooted
from tests import ROOT

_RACER = str(ROOT / "tests/context/registry_racer.py")
_REFERENCE = ROOT / "docs/reference/registry.md"
_SOAK = os.environ.get("PAGEFILE_SOAK") == "1"


class TestMemory(RegistryContract):
    @pytest.fixture
    def place(self) -> Backend:
        return SharedBackend("memory:")


class TestSqlite(RegistryContract):
    @pytest.fixture
    def place(self, tmp_path: Path) -> Backend:
        return FileBackend(str(tmp_path / "store.db"))


@pytest.fixture
def url(tmp_path: Path) -> str:
    return str(tmp_path / "store.db")


@pytest.fixture(params=["memory", "file"])
def store(request: pytest.FixtureRequest, url: str) -> Iterator[Store]:
    with pagefile.open("memory:" if request.param == "memory" else url) as pf:
        yield pf.store


# Many processes


_PROCESSES = 8


def in_processes(url: str, task: str, count: int) -> list[list[Any]]:
    """What each of eight was told; all are let go together once all have opened the store."""
    command = [sys.executable, _RACER, url, task, str(count)]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    running: list[Any] = [subprocess.Popen(command, **pipes) for _ in range(_PROCESSES)]
    assert [process.stdout.readline() for process in running] == ["ready\n"] * _PROCESSES
    for process in running:
        process.stdin.write("go\n")
        process.stdin.flush()
    return [json.loads(process.communicate(timeout=300)[0]) for process in running]


@pytest.mark.xdist_group("races")
def test_threads_R06_eight_processes_never_mint_two_ids_for_one_path(url: str) -> None:
    told = in_processes(url, "make_paths", 200 if _SOAK else 30)

    assert told == told[:1] * _PROCESSES
    assert len(set(told[0])) == len(told[0])
    with ThreadRegistry(url) as registry:
        assert sorted(registry.debug_dump()) == sorted(told[0])


@pytest.mark.xdist_group("races")
def test_threads_R11_calls_of_eight_processes_from_one_thread_stay_apart(url: str) -> None:
    count = 200 if _SOAK else 20
    told = in_processes(url, "hold_conversations", count)
    flat = list(itertools.chain.from_iterable(told))

    assert len({thread for thread, _, _ in flat}) == _PROCESSES * 2 * count
    for one in told:
        for (callee, inner_told, _), (_, callee_told, _) in zip(one[::2], one[1::2], strict=True):
            assert (inner_told, callee_told) == (["worker", callee], ["agent", "shared"])
    assert {text for _, _, text in flat} == {None}
    with ThreadRegistry(url) as registry:
        assert registry.debug_dump() == {"shared": "user.agent"}


@pytest.mark.xdist_group("races")
def test_of_eight_processes_that_answer_one_is_told(url: str) -> None:
    count = 200 if _SOAK else 30
    with ThreadRegistry(url) as registry:
        for n in range(count):
            registry.register_thread(f"t{n}", "user", "agent")
    told = in_processes(url, "answer_for_all", count)

    for each in zip(*told, strict=True):
        assert sorted(each, key=str) == [["user", None]] + [[None, None]] * (_PROCESSES - 1)


# Isolation

#: What happens in a conversation: a call from one of its threads, an answer, a release.
STEPS = st.tuples(
    st.sampled_from(["call", "answer", "release"]), st.integers(0, 5), st.sampled_from("abc")
)
STORIES = st.lists(st.lists(STEPS, max_size=12), min_size=1, max_size=4)


class Conversation:
    """Tells a story to a registry and keeps what it saw, its ids by the order it met them."""

    def __init__(self, registry: ThreadRegistry, name: str) -> None:
        self.registry = registry
        # Everybody is called the same: only ids tell conversations apart.
        self.threads = [registry.register_thread(name, "user", "agent", user_id=name)]
        self.seen: list[Any] = []

    def step(self, act: str, which: int, name: str) -> None:
        thread = self.threads[which % len(self.threads)]
        try:
            if act == "call":
                self.threads.append(self.registry.extend_chain(thread, name))
                self.seen.append(self.registry.lookup(self.threads[-1]))
            elif act == "answer":
                target, caller = self.registry.prune_for_response(thread)
                self.seen.append((target, caller and self.threads.index(caller)))
            else:
                self.registry.cleanup(thread)
        except PagefileError as error:
            self.seen.append(error.code)
        self.seen.append([self.registry.lookup(thread) for thread in self.threads])


@given(STORIES, st.randoms(use_true_random=False))
def test_what_a_conversation_sees_does_not_depend_on_others(
    stories: list[list[tuple[str, int, str]]], random: Any
) -> None:
    alone = []
    for n, story in enumerate(stories):
        with pagefile.open("memory:") as pf:
            conversation = Conversation(rooted(pf.store), f"t{n}")
            for step in story:
                conversation.step(*step)
            alone.append(conversation.seen)
    with pagefile.open("memory:") as pf:
        registry = rooted(pf.store)
        together = [Conversation(registry, f"t{n}") for n in range(len(stories))]
        turns = [n for n, story in enumerate(stories) for _ in story]
        random.shuffle(turns)
        waiting = [iter(story) for story in stories]
        for n in turns:
            together[n].step(*next(waiting[n]))

    assert [conversation.seen for conversation in together] == alone


# Text

NAMES = st.text(
    st.one_of(st.sampled_from(".\\a"), st.characters(exclude_categories=("Cs", "Cc"))),
    min_size=1,
    max_size=20,
)


@given(st.lists(NAMES, min_size=1, max_size=6).map(tuple))
def test_threads_R01_text_gives_back_the_names_it_was_made_of(names: tuple[str, ...]) -> None:
    assert parse(text_of(names)) == names


@given(st.text(st.sampled_from(".\\ab"), max_size=12))
def test_text_that_is_accepted_is_the_text_of_its_names(text: str) -> None:
    try:
        names = parse(text)
    except Invalid:
        return

    assert text_of(names) == text


# Bad input

REFUSED: list[tuple[str, Callable[[ThreadRegistry], object]]] = [
    ("thread_id", lambda r: r.register_thread("", "user", "agent")),
    ("thread_id", lambda r: r.register_thread("x" * 506, "user", "agent")),
    ("thread_id", lambda r: r.register_thread("a\nb", "user", "agent")),
    ("thread_id", lambda r: r.register_thread(None, "user", "agent")),  # type: ignore[arg-type]
    ("initiator", lambda r: r.register_thread("n", "", "agent")),
    ("target", lambda r: r.register_thread("n", "user", 7)),  # type: ignore[arg-type]
    ("user_id", lambda r: r.register_thread("n", "user", "agent", user_id="")),
    ("user_id", lambda r: r.register_thread("t", "user", "agent", user_id="bob")),
    ("table", lambda r: r.register_thread("n", "user", "agent", table="system")),
    ("initiator", lambda r: r.start_chain("\x00", "agent")),
    ("target", lambda r: r.start_chain("user", "x" * 513)),
    ("user_id", lambda r: r.start_chain("user", "agent", user_id=b"ann")),  # type: ignore[arg-type]
    ("current_uuid", lambda r: r.extend_chain(None, "worker")),  # type: ignore[arg-type]
    ("next_hop", lambda r: r.extend_chain("t", "")),
    ("thread_id", lambda r: r.prune_for_response("")),
    ("thread_id", lambda r: r.cleanup(None)),  # type: ignore[arg-type]
    ("thread_id", lambda r: r.lookup(b"t")),  # type: ignore[arg-type]
    ("thread_id", lambda r: r.get_table_for_thread("")),
    ("chain[0]", lambda r: r.get_or_create("")),
    ("chain[1]", lambda r: r.get_or_create("a..b")),
    ("chain[1]", lambda r: r.get_or_create(("a", 7))),  # type: ignore[arg-type]
    ("chain", lambda r: r.get_or_create(())),
    ("chain", lambda r: r.get_or_create(None)),  # type: ignore[arg-type]
    ("chain", lambda r: r.get_or_create("a\\")),
    ("chain", lambda r: r.get_or_create(r"a\b")),
    ("organism_name", lambda r: r.initialize_root("")),
    ("organism_name", lambda r: r.initialize_root("other")),
    ("table", lambda r: r.initialize_table_root("", "org")),
    ("table", lambda r: r.initialize_table_root("system", "org")),
    ("organism", lambda r: r.initialize_table_root("guests", "")),
    ("table", lambda r: r.get_table_root(None)),  # type: ignore[arg-type]
    ("new_id", lambda r: ThreadRegistry(r._store, new_id=lambda: "").start_chain("user", "agent")),
    ("new_id", lambda r: ThreadRegistry(r._store, new_id="x")),  # type: ignore[arg-type]
    ("on_release", lambda r: ThreadRegistry(r._store, on_release="drop")),  # type: ignore[arg-type]
    ("backend", lambda r: ThreadRegistry(7)),  # type: ignore[arg-type]
    ("url", lambda r: ThreadRegistry(":memory:")),
]


@pytest.mark.parametrize("number", range(len(REFUSED)))
def test_bad_input_is_refused_by_field_and_changes_nothing(store: Store, number: int) -> None:
    registry = rooted(store)
    registry.register_thread("t", "ann", "agent", user_id="ann")
    before = registry.debug_dump(), store.head()
    field, act = REFUSED[number]
    with pytest.raises(Invalid) as caught:
        act(registry)

    assert (caught.value.field, bool(caught.value.fact), bool(caught.value.rule)) == (
        field,
        True,
        True,
    )
    assert (registry.debug_dump(), store.head()) == before


def test_a_document_that_something_else_wrote_is_corrupt(store: Store) -> None:
    store.commit(Batch([Put("path/t", {"names": 7})]))
    with pytest.raises(Corrupt, match="'path/t' is no path"):
        ThreadRegistry(store).lookup("t")


# Backends


def test_a_registry_is_shared_when_others_can_open_its_store(url: str) -> None:
    with ThreadRegistry() as private, ThreadRegistry(url) as shared:
        assert (private.is_shared, shared.is_shared) == (False, True)
    with ThreadRegistry() as another:
        assert another.debug_dump() == {}


def test_a_registry_closes_only_what_it_opened(url: str) -> None:
    with pagefile.open(url) as pf:
        for backend in (pf, pf.store):
            with ThreadRegistry(backend) as registry:
                registry.register_thread("t", "user", "agent")
        assert ThreadRegistry(pf).lookup("t") == "user.agent"
    with ThreadRegistry(Path(url)) as registry:
        assert registry.lookup("t") == "user.agent"
    with pytest.raises(PagefileError, match="closed"):
        registry.register_thread("u", "user", "agent")


def test_a_limit_of_the_store_is_kept(tmp_path: Path) -> None:
    options = Options(limits=Limits(documents=3))
    with pagefile.open(tmp_path / "small.db", options=options) as pf:
        registry = rooted(pf.store)
        with pytest.raises(pagefile.LimitExceeded):
            registry.register_thread("t", "user", "agent")
        assert registry.lookup("t") is None


def test_the_cost_of_a_change_does_not_grow_with_the_registry(url: str) -> None:
    with pagefile.open(url, durability="process") as pf:
        registry = rooted(pf.store)

        def reads_of_one_call() -> int:
            calls = 0

            def count(frame: Any, event: str, _: Any) -> None:
                nonlocal calls
                calls += event == "call" and "pagefile" in frame.f_code.co_filename

            sys.setprofile(count)
            try:
                thread = registry.register_thread("t", "user", "agent")
                registry.prune_for_response(registry.extend_chain(thread, "worker"))
                registry.prune_for_response(thread)
            finally:
                sys.setprofile(None)
            return calls

        reads_of_one_call()
        small = reads_of_one_call()
        for _ in range(400):
            registry.start_chain("user", "agent")
        # The committer wakes others or waits, now and then, which is a few calls.
        assert reads_of_one_call() <= small * 1.2


# One per process


@pytest.fixture
def no_registry() -> Iterator[None]:
    reset_registry()
    yield
    reset_registry()


@pytest.mark.usefixtures("no_registry")
def test_a_process_has_one_registry_and_another_backend_is_refused(url: str) -> None:
    with pagefile.open(url) as pf:
        registry = get_registry(pf)
        assert get_registry() is get_registry(pf) is get_registry(pf.store) is registry
        for other in ("memory:", url):
            with pytest.raises(Invalid, match="reset_registry") as caught:
                get_registry(other)
            assert caught.value.field == "backend"
        registry.register_thread("t", "user", "agent")
        reset_registry()

        assert get_registry(pf) is not registry
        assert get_registry().lookup("t") == "user.agent"


@pytest.mark.usefixtures("no_registry")
def test_a_registry_by_url_is_closed_and_not_wiped_by_reset(url: str) -> None:
    registry = get_registry(url)
    assert get_registry(Path(url)) is registry
    registry.register_thread("t", "user", "agent")
    reset_registry()

    assert get_registry(url).lookup("t") == "user.agent"


@pytest.mark.usefixtures("no_registry")
def test_a_backend_that_cannot_be_opened_leaves_no_registry_behind() -> None:
    with pytest.raises(Invalid):
        get_registry(":memory:")

    assert get_registry().debug_dump() == {}


# Docs


@pytest.mark.parametrize("module", [paths])
def test_every_public_name_of_a_module_is_in_the_reference(module: Any) -> None:
    text = _REFERENCE.read_text(encoding="utf-8")
    own = [
        name
        for name, value in vars(module).items()
        if getattr(value, "__module__", "") == module.__name__ and not name.startswith("_")
    ]

    assert own
    assert [name for name in own if not re.search(rf"`{name}\b", text)] == []


def test_every_method_of_the_registry_has_a_heading_with_its_parameters() -> None:
    text = _REFERENCE.read_text(encoding="utf-8")
    headings = re.findall(r"^### ThreadRegistry\.(\w+)\((.*?)\)(?: |$)", text, re.MULTILINE)
    shown = {name: re.findall(r"(?:^|, )(\w+)", parameters) for name, parameters in headings}
    methods = inspect.getmembers(ThreadRegistry, inspect.isfunction)
    real = {
        name: list(inspect.signature(method).parameters)[1:]
        for name, method in methods
        if not name.startswith("_")
    }
    properties = [
        n for n, _ in inspect.getmembers(ThreadRegistry, lambda m: isinstance(m, property))
    ]

    assert shown == real
    assert [name for name in properties if f"`{name}`" not in text] == []
