"""Which call path a thread id stands for, and who is answered when it responds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Literal, TypeVar

import msgspec

from pagefile.context import registry_documents
from pagefile.context.backend import Backend, ClosesItsStore, store_behind
from pagefile.context.names import PATHS, THREADS
from pagefile.context.path import (
    MOST_NAME_BYTES,
    ROOT_NAMES,
    SYSTEM,
    Path,
    parse,
    require_names,
    text_of,
)
from pagefile.context.registry_documents import Activation, Meant
from pagefile.context.residency import ending
from pagefile.errors import Conflict, Invalid, NotFound, PagefileError, shown
from pagefile.store import clock
from pagefile.store.arguments import Naming, require_callable
from pagefile.store.batch import Absent, Batch, Condition, Operation
from pagefile.store.store import Store


class Claim(msgspec.Struct, frozen=True):
    """Whose the path is once `operations` are committed; it is already when there are none."""

    thread: str
    operations: list[Operation]
    when: list[Condition]


def claim(store: Store, names: tuple[str, ...], new_id: Callable[[], str]) -> Claim:
    """The thread of a path made by names alone."""
    chain = registry_documents.mark(store, registry_documents.chain_document(names))
    if chain.pointer is not None:
        return Claim(chain.pointer.thread, [], [chain.unchanged])
    made = new_id()
    root = registry_documents.root(store, names[0])
    is_below = root.pointer is not None and root.pointer.names == names[:ROOT_NAMES]
    path = Path(names, root=root_kind(names) if is_below else "")
    return Claim(
        made,
        [
            registry_documents.put_path(made, path),
            registry_documents.put_pointer(chain.document, path, made),
        ],
        [chain.unchanged, root.unchanged, Absent(PATHS + made)],
    )


def claim_root(
    store: Store, names: tuple[str, ...], field: str, new_id: Callable[[], str]
) -> Claim:
    """The thread of a root; a path made earlier by the same names becomes it.

    Raises:
        Invalid: the root has another name.
    """
    root = registry_documents.root(store, names[0])
    if root.pointer is not None:
        if root.pointer.names != names:
            raise Invalid(
                field,
                f"the root is {text_of(root.pointer.names)} already",
                "use that name, or clear() the registry to start over",
            )
        return Claim(root.pointer.thread, [], [root.unchanged])
    chain = registry_documents.mark(store, registry_documents.chain_document(names))
    if chain.pointer is None:
        thread_id = new_id()
        seen: Condition = Absent(PATHS + thread_id)
    else:
        thread_id = chain.pointer.thread
        seen = registry_documents.activation(store, thread_id).unchanged
    path = Path(names, root=root_kind(names))
    return Claim(
        thread_id,
        [
            registry_documents.put_path(thread_id, path),
            registry_documents.put_pointer(chain.document, path, thread_id),
            registry_documents.put_pointer(root.document, path, thread_id),
        ],
        [root.unchanged, chain.unchanged, seen],
    )


def root_kind(names: tuple[str, ...]) -> Literal["system", "table", ""]:
    """What the names of a root say it is; no names are no root."""
    if not names:
        return ""
    return "system" if names[0] == SYSTEM else "table"


Answer = TypeVar("Answer")
OnRelease = Literal["keep", "delete"]

#: How often a change is tried again after somebody else was faster.
_ATTEMPTS = 100
_PAGE = 100
#: A log that is to end may have been ended by somebody else.
_RELEASING = (Conflict, NotFound)


def made_id() -> str:
    """A new thread or conversation id."""
    return str(clock.uuid4())


class ThreadRegistry(ClosesItsStore):
    """Opaque thread ids and the call paths they stand for, in a store.

    Every change is one commit that holds only if what it was decided on still
    does, so it is atomic between threads and processes alike. Nothing is kept in
    this object, and nothing expires by itself.

    A conversation starts with `register_thread` or `start_chain`; `extend_chain`
    makes one activation, with an id of its own, for each call, and
    `prune_for_response` ends one and says whom to answer. Two activations never
    share an id, whatever their names. Only paths made by `get_or_create`, and the
    roots, are known by their names.

    `backend` is a store, a handle or a URL; None is a private `memory:`. With
    `on_release="delete"` a released thread's log ends in the same commit.
    `new_id` makes ids; a script may replace it.
    """

    def __init__(
        self,
        backend: Backend | None = None,
        *,
        on_release: OnRelease = "keep",
        new_id: Callable[[], str] = made_id,
    ) -> None:
        if on_release not in ("keep", "delete"):
            raise Invalid("on_release", f"is {shown(on_release)}", "use 'keep' or 'delete'")
        require_callable("new_id", new_id)
        self._store, self._close = store_behind(backend)
        self._ends_logs = on_release == "delete"
        self._new_id = new_id
        self._names = Naming(MOST_NAME_BYTES)
        # An id is part of the names of a document and a log, and both must fit.
        self._ids = Naming(MOST_NAME_BYTES - len(THREADS))

    @property
    def is_shared(self) -> bool:
        """True when other processes can open the same store."""
        return self._store.is_shared

    # Roots

    def initialize_root(self, organism_name: str = "organism") -> str:
        """The id of the root `system.<organism_name>`, made if there is none.

        Raises:
            Invalid: the root has another name already, on whatever engine.
        """
        self._names.check_text("organism_name", organism_name)
        return self._plant((SYSTEM, organism_name), "organism_name")

    @property
    def root_uuid(self) -> str | None:
        """The root's id; None before `initialize_root`."""
        pointer = registry_documents.root(self._store, SYSTEM).pointer
        return None if pointer is None else pointer.thread

    @property
    def root_chain(self) -> str:
        """The root's path as text; "system" before `initialize_root`."""
        pointer = registry_documents.root(self._store, SYSTEM).pointer
        return SYSTEM if pointer is None else text_of(pointer.names)

    def initialize_table_root(self, table: str, organism: str) -> str:
        """The id of the root `<table>.<organism>`, made if there is none.

        Raises:
            Invalid: the table has a root of another organism, or is called "system".
        """
        self._check_table(table)
        self._names.check_text("organism", organism)
        return self._plant((table, organism), "organism")

    def get_table_root(self, table: str) -> str | None:
        """The id of the table's root; None when it has none."""
        self._check_table(table)
        pointer = registry_documents.root(self._store, table).pointer
        return None if pointer is None else pointer.thread

    def get_table_for_thread(self, thread_id: str) -> str | None:
        """The table a thread stands on; None only for one that is on the system's root.

        Raises:
            NotFound: the thread is unknown, or on no root. Treat it as forbidden.
        """
        path = self.path(thread_id)
        if path is None:
            raise registry_documents.unknown(thread_id)
        if not path.root:
            raise NotFound(
                f"thread {shown(thread_id)} stands on no root",
                "initialize a root before registering threads, and allow it nothing",
            )
        return path.table

    # Reading

    def lookup(self, thread_id: str) -> str | None:
        """The thread's path as text; None when it is not registered."""
        path = self.path(thread_id)
        return None if path is None else path.text

    def path(self, thread_id: str) -> Path | None:
        """Where the thread stands; None when it is not registered."""
        self._ids.check_text("thread_id", thread_id)
        return registry_documents.activation(self._store, thread_id).path

    def debug_dump(self) -> dict[str, str]:
        """Every registered id and its path as text. Reads all of them, page by page."""
        found: dict[str, str] = {}
        for page in self._pages():
            for seen in page:
                if seen.path is not None:
                    found[seen.thread] = seen.path.text
        return found

    # Conversations

    def register_thread(
        self,
        thread_id: str,
        initiator: str,
        target: str,
        *,
        user_id: str | None = None,
        table: str | None = None,
    ) -> str:
        """Start a conversation on a given id, under the root if there is one; that id.

        An id that is registered stays as it is. With `table` the conversation
        stands on that table's root. With `user_id`, erasing the user forgets it
        and everything called from it.

        Raises:
            Invalid: the id is registered for another user.
            NotFound: the table has no root.
        """
        self._ids.check_text("thread_id", thread_id)
        self._check_ends(initiator, target, user_id)
        if table is not None:
            self._check_table(table)

        def attempt() -> str:
            seen = registry_documents.activation(self._store, thread_id)
            if seen.path is not None:
                if user_id is not None and seen.user != user_id:
                    raise Invalid(
                        "user_id",
                        f"thread {shown(thread_id)} is registered for another user",
                        "choose another thread id",
                    )
                return thread_id
            root = registry_documents.root(self._store, SYSTEM if table is None else table)
            if root.pointer is None and table is not None:
                raise NotFound(f"table {shown(table)} has no root", "initialize_table_root first")
            above = () if root.pointer is None else root.pointer.names
            path = Path((*above, initiator, target), self._made(), root=root_kind(above))
            operations = [registry_documents.put_path(thread_id, path, user_id)]
            self._commit(operations, [seen.unchanged, root.unchanged])
            return thread_id

        return self._settle(attempt)

    def start_chain(self, initiator: str, target: str, *, user_id: str | None = None) -> str:
        """Start a conversation on a new id, under no root; its id."""
        self._check_ends(initiator, target, user_id)

        def attempt() -> str:
            made = self._made()
            path = Path((initiator, target), self._made())
            self._commit([registry_documents.put_path(made, path, user_id)], [Absent(PATHS + made)])
            return made

        return self._settle(attempt)

    def get_or_create(self, chain: str | Sequence[str]) -> str:
        """The one id of a path given by its names alone, made if there is none.

        `chain` is text with dots, or the names. The path belongs to no
        conversation: all who ask for it share it.
        """
        names = parse(chain) if isinstance(chain, str) else require_names(chain)
        return self._settle(lambda: self._keep(claim(self._store, names, self._made)))

    def extend_chain(self, current_uuid: str, next_hop: str) -> str:
        """One call from a thread to a name: a new activation, with a new id each time.

        It inherits user and conversation; a call from a root or from a path
        made by `get_or_create` starts a conversation.

        Raises:
            NotFound: the calling thread is unknown, or was released.
            LimitExceeded: the path would be deeper than 1,000 names.
        """
        self._ids.check_text("current_uuid", current_uuid)
        self._names.check_text("next_hop", next_hop)

        meant = Meant()

        def attempt() -> str:
            caller = registry_documents.activation(self._store, current_uuid)
            if caller.path is None or meant.another(caller.path):
                raise registry_documents.unknown(current_uuid)
            made = self._made()
            conversation = caller.path.conversation or self._made()
            path = caller.path.called(next_hop, caller=current_uuid, conversation=conversation)
            operations = [registry_documents.put_path(made, path, caller.user)]
            self._commit(operations, [caller.unchanged, Absent(PATHS + made)])
            return made

        return self._settle(attempt)

    def prune_for_response(self, thread_id: str) -> tuple[str | None, str | None]:
        """End an activation; say whom to answer, on which thread. Of all who ask, one is told.

            (name, id)    its caller waits on thread `id`: deliver it there
            (name, None)  it was the first of its conversation: tell the
                          initiator, who stands outside and has no thread
            (None, None)  nobody waits: top of the stack, unknown, or ended

        The initiator is told by name, or the one who ended the conversation could
        not be told apart from one who came late. Released callers count as nobody:
        what answers their name would start them anew, without what they knew. The
        callee keeps its path until it ends itself. A path made by `get_or_create`
        has no caller; it is answered to the path one name shorter, made if need
        be. Roots are never answered and never freed by this.
        """
        self._ids.check_text("thread_id", thread_id)

        meant = Meant()

        def attempt() -> tuple[str | None, str | None]:
            seen = registry_documents.activation(self._store, thread_id)
            if seen.path is None or seen.path.is_root or meant.another(seen.path):
                return None, None
            operations, when = registry_documents.release(
                self._store, seen, with_log=self._ends_logs
            )
            answered: tuple[str | None, str | None] = None, None
            path = seen.path
            if path.caller is not None:
                above = registry_documents.activation(self._store, path.caller)
                when.append(above.unchanged)
                if above.path is not None and above.path.awaits(path):
                    answered = above.path.names[-1], path.caller
            elif path.conversation is not None:
                answered = path.names[-2], None
            elif len(path.names) > (ROOT_NAMES + 1 if path.root else 1):
                shorter = claim(self._store, path.names[:-1], self._made)
                operations, when = operations + shorter.operations, when + shorter.when
                answered = path.names[-2], shorter.thread
            self._commit(operations, when)
            return answered

        return self._settle(attempt, _RELEASING)

    def cleanup(self, thread_id: str) -> None:
        """Release a thread without an answer; nothing happens when it is not registered.

        Raises:
            Invalid: it is a root.
        """
        self._ids.check_text("thread_id", thread_id)

        meant = Meant()

        def attempt() -> None:
            seen = registry_documents.activation(self._store, thread_id)
            if seen.path is None or meant.another(seen.path):
                return
            if seen.path.is_root:
                raise Invalid(
                    "thread_id",
                    f"{shown(thread_id)} is the root {seen.path.text}",
                    "release the threads below it, or clear() everything",
                )
            self._commit(*registry_documents.release(self._store, seen, with_log=self._ends_logs))

        self._settle(attempt, _RELEASING)

    def clear(self) -> None:
        """Release every thread and root, some at a time: what comes in between may stay."""
        for page in self._pages():
            self._settle(partial(self._free, [seen.thread for seen in page]), _RELEASING)

    # Inside: each attempt reads, decides, and commits on condition that what it read holds

    def _settle(
        self, attempt: Callable[[], Answer], again: tuple[type[PagefileError], ...] = (Conflict,)
    ) -> Answer:
        for _ in range(_ATTEMPTS - 1):
            try:
                return attempt()
            except again:
                continue
        return attempt()

    def _commit(self, operations: Sequence[Operation], when: Sequence[Condition]) -> None:
        with ending(self._store, operations):
            self._store.commit(Batch(operations, when))

    def _plant(self, names: tuple[str, ...], field: str) -> str:
        return self._settle(lambda: self._keep(claim_root(self._store, names, field, self._made)))

    def _keep(self, wanted: Claim) -> str:
        if wanted.operations:
            self._commit(wanted.operations, wanted.when)
        return wanted.thread

    def _free(self, threads: list[str]) -> None:
        operations: list[Operation] = []
        when: list[Condition] = []
        for thread_id in threads:
            seen = registry_documents.activation(self._store, thread_id)
            if seen.path is not None:
                changes = registry_documents.release(self._store, seen, with_log=self._ends_logs)
                operations += changes[0]
                when += changes[1]
        if operations:
            self._commit(operations, when)

    def _pages(self) -> Iterator[list[Activation]]:
        after = ""
        while found := self._store.names("document", prefix=PATHS, after=after, limit=_PAGE):
            threads = (name.removeprefix(PATHS) for name in found)
            yield [registry_documents.activation(self._store, thread) for thread in threads]
            after = found[-1]

    def _made(self) -> str:
        made = self._new_id()
        self._ids.check_text("new_id", made)
        return made

    def _check_table(self, table: str) -> None:
        self._names.check_text("table", table)
        if table == SYSTEM:
            raise Invalid("table", f"{SYSTEM!r} is the system's own root", "choose another name")

    def _check_ends(self, initiator: str, target: str, user_id: str | None) -> None:
        self._names.check_text("initiator", initiator)
        self._names.check_text("target", target)
        if user_id is not None:
            self._names.check_text("user_id", user_id)
