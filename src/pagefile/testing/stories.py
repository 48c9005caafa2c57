"""Random stories that an engine and the model live through side by side.

Hypothesis drives both through the same batches, forks, drops, prunings,
erasures, refusals, failures in mid-commit, crashes and reopenings, and after each
step what the store shows must be what the model shows, now and at earlier positions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from pagefile.errors import Conflict, PagefileError, Unavailable
from pagefile.store.batch import (
    Append,
    Batch,
    Delete,
    Drop,
    Fork,
    LengthIs,
    Operation,
    Prune,
    Put,
    Query,
    Selector,
    VersionIs,
)
from pagefile.store.store import Store
from pagefile.testing.backend import Backend
from pagefile.testing.faults import on_faulty_engine
from pagefile.testing.model import ERASED, Model, shown_by_model

LOGS = ("a", "b", "c")
DOCUMENTS = ("d", "e")
USERS: tuple[str | None, ...] = (None, "alice", "bob")


def shown_by_store(store: Store, names: set[str], at: int | None = None) -> dict[str, Any]:
    """What a reader sees of the store, in the words of `shown_by_model`."""
    logs = {}
    for name in LOGS:
        entries = [(e.index, ERASED if e.erased else e.value) for e in store.read(name, at=at)]
        if entries or name in names:
            logs[name] = entries
    documents = {}
    for name in DOCUMENTS:
        found = store.get(name, at=at)
        if found is not None:
            documents[name] = (found.version, ERASED if found.erased else found.value)
    return {"logs": logs, "documents": documents}


one_append = st.builds(
    Append,
    log=st.sampled_from(LOGS),
    value=st.integers(0, 99),
    user=st.sampled_from(USERS),
    keys=st.sampled_from([{}, {"k": "x"}, {"k": "y"}]),
)
operations_of_a_batch = st.lists(
    st.one_of(
        one_append,
        st.builds(
            Put,
            document=st.sampled_from(DOCUMENTS),
            value=st.integers(0, 99),
            user=st.sampled_from(USERS),
            keys=st.sampled_from([{}, {"k": "x"}, {"k": "y"}]),
        ),
        st.builds(Delete, document=st.sampled_from(DOCUMENTS)),
        st.builds(
            Fork,
            log=st.sampled_from(LOGS),
            base=st.sampled_from(LOGS),
            at=st.none() | st.integers(0, 5),
        ),
        st.builds(Drop, log=st.sampled_from(LOGS)),
        st.builds(Prune, before=st.none() | st.integers(0, 4), log=st.sampled_from(LOGS)),
    ),
    min_size=1,
    max_size=4,
)


class StoreMachine(RuleBasedStateMachine):
    """Drives one engine and the model side by side; subclasses say how to make a backend."""

    make_backend: Callable[[], Backend]

    def __init__(self) -> None:
        super().__init__()
        self.backend = type(self).make_backend()
        self.store = self.backend.open().store
        self.model = Model()
        self.last_batch: Batch | None = None

    @rule(operations=operations_of_a_batch)
    def commit(self, operations: list[Operation]) -> None:
        batch = Batch(operations)
        expected = self._refusal(lambda: self.model.commit(operations))
        refused = self._refusal(lambda: self.store.commit(batch))
        assert refused == expected, (operations, refused, expected)
        if refused is None:
            self.last_batch = batch

    @rule(operation=one_append)
    def append(self, operation: Append) -> None:
        """The other way in, which must come to the same."""
        expected = self._refusal(lambda: self.model.commit([operation]))
        refused = self._refusal(lambda: self.store.append(operation))
        assert refused == expected, (operation, refused, expected)

    def _refusal(self, act: Callable[[], Any]) -> type[PagefileError] | None:
        try:
            act()
        except PagefileError as error:
            return type(error)
        return None

    @rule(name=st.sampled_from(DOCUMENTS), offset=st.integers(-1, 1))
    def put_if_version(self, name: str, offset: int) -> None:
        versions = self.model.now.documents.get(name, [])
        expected = max(0, len(versions) + offset)
        batch = Batch([Put(name, "conditional")], [VersionIs(name, expected)])
        refused = self._refusal(lambda: self.store.commit(batch))
        assert refused == (None if expected == len(versions) else Conflict)
        if refused is None:
            self.model.commit(list(batch.operations))

    @rule(name=st.sampled_from(LOGS), offset=st.integers(-1, 1))
    def append_if_length(self, name: str, offset: int) -> None:
        log = self.model.now.logs.get(name)
        length = 0 if log is None else len(log.entries)
        expected = max(0, length + offset)
        batch = Batch([Append(name, "conditional")], [LengthIs(name, expected)])
        refused = self._refusal(lambda: self.store.commit(batch))
        assert refused == (None if expected == length else Conflict)
        if refused is None:
            self.model.commit(list(batch.operations))

    @precondition(lambda self: self.last_batch is not None)
    @rule()
    def repeat_the_last_batch(self) -> None:
        assert self.last_batch is not None
        assert self.store.commit(self.last_batch).repeated

    @rule(operations=operations_of_a_batch, stored=st.booleans(), crash=st.booleans())
    def commit_without_an_answer(
        self, operations: list[Operation], stored: bool, crash: bool
    ) -> None:
        """The engine fails before the batch is stored, or after: it can be committed again."""
        batch, before = Batch(operations), self.store.head().position
        store, engine = on_faulty_engine(self.backend.open().store)
        if stored:
            engine.fail_after()
        else:
            engine.fail_before()
        expected = self._refusal(lambda: self.model.commit(operations))
        told = self._refusal(lambda: store.commit(batch))
        assert told is Unavailable, (operations, told)
        if crash:
            self.crash_and_reopen()
        added = self.store.head().position - before
        assert added == (stored and expected is None), (operations, stored, added)
        if expected is None:
            assert self.store.commit(batch).repeated == stored
            self.last_batch = batch
        else:
            assert self._refusal(lambda: self.store.commit(batch)) == expected

    @rule(user=st.sampled_from(USERS))
    def erase_a_user(self, user: str | None) -> None:
        selector = Selector(user=user, anonymous=user is None)
        rehearsal = self.store.erase(selector, dry_run=True)
        receipt = self.store.erase(selector)
        assert receipt.removed == rehearsal.removed
        self.model.erase_user(user)

    @rule()
    def reopen(self) -> None:
        self.store = self.backend.open().store

    @rule()
    def crash_and_reopen(self) -> None:
        self.backend.crash()
        self.store = self.backend.open().store

    @invariant()
    def the_store_shows_what_the_model_shows(self) -> None:
        state = self.model.now
        assert self.store.names("log") == sorted(state.logs)
        assert shown_by_store(self.store, set(state.logs)) == shown_by_model(state)
        assert self.store.head().position == len(self.model.states) - 1

    @invariant()
    def keys_find_what_the_model_finds(self) -> None:
        state = self.model.now
        for key in ("x", "y"):
            for user in USERS:
                expected = sorted(
                    name
                    for name, versions in state.documents.items()
                    if versions[-1].key == key and versions[-1].user == user
                )
                found = self.store.find(Query("k", key, user=user)).items
                assert sorted(d.name for d in found) == expected  # type: ignore[union-attr]
            for name, log in state.logs.items():
                wanted = [i for i, r in enumerate(log.entries) if r.key == key and i >= log.pruned]
                entries = self.store.find(Query("k", key, log=name)).items
                assert [e.index for e in entries] == wanted  # type: ignore[union-attr]

    @invariant()
    def the_past_is_what_it_was(self) -> None:
        position = len(self.model.states) - 1
        for at in {position // 2, max(0, position - 1)}:
            expected = self.model.shown_at(at)
            assert shown_by_store(self.store, set(expected["logs"]), at) == expected

    def teardown(self) -> None:
        problems = self.backend.finish()
        assert problems == []
