"""Memory, items, prompts and the store itself, remote."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, ClassVar

import msgspec

from pagefile.assembly.assembly import Assembly
from pagefile.assembly.options import AssemblyOptions
from pagefile.assembly.prompt import Prompt
from pagefile.assembly.receipt import AssemblyReceipt, ReceiptPage, Verification
from pagefile.client.calls import Listing, Reading, Room, not_offered
from pagefile.client.runs import RemoteRun
from pagefile.client.threads import RemoteThread
from pagefile.client.transport import Exchange, Talk, answered
from pagefile.client.values import MatchShown, StoredShown, document_of, entry_of
from pagefile.errors import Invalid, NotFound, shown
from pagefile.memory.episodes.episode import Episode
from pagefile.memory.facts.fact import Fact
from pagefile.memory.facts.graph import StoredGraph, Walk
from pagefile.memory.facts.proposal import Decision, ProposedFact, ProposedFacts
from pagefile.memory.facts.store import FactStore
from pagefile.memory.items.reader import Hit
from pagefile.memory.items.store import LongTermItems, Proposal
from pagefile.memory.memory import Memory
from pagefile.memory.privacy.export import MemoryExport
from pagefile.memory.privacy.forget_receipt import ForgetReceipt
from pagefile.memory.privacy.importer import ImportReceipt
from pagefile.memory.recaller import EpisodeMatch, FactMatch
from pagefile.operations.answer import cursor_of
from pagefile.operations.facts import Asserted, NewFact
from pagefile.operations.items import Token
from pagefile.operations.memory import NewEpisode, Remembered, RememberedAll
from pagefile.operations.privacy import Forgotten
from pagefile.operations.prompts import ContextAnswer, ReceiptVerified
from pagefile.operations.store import HeadShown, ReportShown, Synced, VectorsShown
from pagefile.recall.arms.synchronizer import VectorStatus
from pagefile.store.records import Change, Document, Entry, Head, Report, Stats
from pagefile.store.store import Store

#: What a server writes down itself, and what is computed on reading.
_SERVERS_OWN = frozenset({"actor", "status", "superseded_by", "closed", "asserted"})
_Lines = Iterable[bytes] | str | os.PathLike[str]


class RemoteFacts(Room):
    """What is held to be true."""

    library = FactStore
    place = "memory.facts"

    def append(self, fact: Fact) -> Talk[str]:
        """Assert one fact; its id."""
        return (yield from RemoteFacts.append_many(self, [fact]))[0]

    def append_many(self, facts: Sequence[Fact]) -> Talk[list[str]]:
        """Assert facts in one commit, all or none; their ids."""
        if not facts:
            return []
        made = [_fields(self, "facts", each, Fact, NewFact) for each in facts]
        answer = yield Exchange(
            self._ask("memory.facts.append_many", body={"facts": made}), Asserted
        )
        return list(answer.ids)


class RemoteGraph(Room):
    """Facts as a graph."""

    library = StoredGraph
    place = "memory.graph"

    def paths(
        self,
        start: str,
        *,
        hops: int = 2,
        valid_at: datetime | None = None,
        known_at: datetime | None = None,
        user_id: str | None = None,
        limit: int = 50,
        fan_out: int = 50,
        entities: int = 1_000,
    ) -> Talk[Walk]:
        """Paths from an entity."""
        return (
            yield from self._walk(
                entities,
                start=start,
                hops=hops,
                valid_at=valid_at,
                known_at=known_at,
                user_id=user_id,
                limit=limit,
                fan_out=fan_out,
            )
        )

    def recall(
        self,
        query: str,
        *,
        hops: int = 2,
        valid_at: datetime | None = None,
        known_at: datetime | None = None,
        user_id: str | None = None,
        limit: int = 10,
        fan_out: int = 50,
        entities: int = 1_000,
    ) -> Talk[Walk]:
        """Paths from the entities that a question names."""
        return (
            yield from self._walk(
                entities,
                q=query,
                hops=hops,
                valid_at=valid_at,
                known_at=known_at,
                user_id=user_id,
                limit=limit,
                fan_out=fan_out,
            )
        )

    def _walk(self, entities: int, **given: Any) -> Talk[Walk]:
        if entities != 1_000:
            raise not_offered(RemoteGraph, "paths(entities=…)")
        return (yield from answered(self._ask("memory.graph.paths", given), Walk))


class RemoteProposals(Room):
    """Candidates for facts that an extractor was not sure of."""

    library = ProposedFacts
    place = "memory.proposals"

    def waiting(
        self, status: Decision = "proposed", *, user_id: str | None = None, limit: int = 100
    ) -> Talk[list[ProposedFact]]:
        """Candidates of a user, oldest first."""
        given = {"status": status, "user_id": user_id}
        return (yield from self._pages("list_proposals", given, ProposedFact, limit))

    def waiting_everywhere(
        self, status: Decision = "proposed", *, limit: int = 100
    ) -> Talk[list[ProposedFact]]:
        """Candidates of everybody, oldest first."""
        given = {"status": status, "everyone": True}
        return (yield from self._pages("list_proposals", given, ProposedFact, limit))


class RemoteMemory(Room):
    """What the tenant's agents remember, for each user apart."""

    library = Memory
    place = "memory"

    @property
    def facts(self) -> Any:
        return self._new(RemoteFacts)

    @property
    def graph(self) -> Any:
        return self._new(RemoteGraph)

    @property
    def proposals(self) -> Any:
        return self._new(RemoteProposals)

    readings: ClassVar[Mapping[str, Reading]] = {
        "recall": Reading(
            "memory.recall_scored",
            Listing[EpisodeMatch],
            lambda page: [each.episode for each in page.items],
        ),
        "recall_facts": Reading(
            "memory.recall_facts_scored",
            Listing[FactMatch],
            lambda page: [each.fact for each in page.items],
        ),
        "search": Reading(
            "memory.search",
            Listing[MatchShown],
            lambda page: [each.match() for each in page.items],
        ),
        "vector_status": Reading(
            "memory.vector_status",
            VectorsShown,
            lambda status: VectorStatus(
                arm=status.arm, indexed=status.indexed, waiting=status.waiting
            ),
        ),
        "sync_vectors": Reading("memory.sync_vectors", Synced, lambda synced: synced.given),
        "reindex": Reading("memory.reindex", dict[str, int], lambda made: made["entries"]),
    }

    def remember(self, episode: Episode) -> Talk[str]:
        """Store one exchange, and make it findable, in one commit; its id."""
        body = _fields(self, "episode", episode, Episode, NewEpisode)
        return str((yield Exchange(self._ask("memory.remember", body=body), Remembered)).id)

    def remember_many(self, episodes: Sequence[Episode]) -> Talk[list[str]]:
        """Store exchanges in one commit, all or none; their ids."""
        made = [_fields(self, "episodes", each, Episode, NewEpisode) for each in episodes]
        if not made:
            return []
        ask = self._ask("memory.remember_many", body={"episodes": made})
        return list((yield Exchange(ask, RememberedAll)).ids)

    def delete_block(
        self, name: str, *, user_id: str | None = None, expected_version: int | None = None
    ) -> Talk[None]:
        """Remove a block; its history stays."""
        given = {"name": name, "user_id": user_id}
        yield Exchange(self._ask("memory.delete_block", given, if_match=expected_version), bytes)

    def export(self, *, user_id: str | None = None) -> Talk[Any]:
        """Everything that is kept of a user, fetched whole."""
        ask = self._ask("memory.export", {"user_id": user_id})
        lines = yield Exchange(ask, bytes)
        return (AsyncRemoteExport if self._link.is_awaited else RemoteExport)(lines)

    def import_(self, source: _Lines, *, own_only: bool = False) -> Talk[ImportReceipt]:
        """Take an export in; what is there is left, what was forgotten stays forgotten."""
        if own_only:
            # A server decides that by the rights of the key.
            raise not_offered(RemoteMemory, "import_(own_only=True)")
        content: Any = source
        if not isinstance(source, (str, os.PathLike, bytes)):
            content = b"".join(source)
        return (yield from answered(self._ask("memory.import_"), ImportReceipt, content=content))

    def forget(
        self,
        *,
        user_id: str | None = None,
        session_id: str | None = None,
        episode_id: str | None = None,
        before: datetime | None = None,
        dry_run: bool = False,
        scrub: bool = True,
    ) -> Talk[ForgetReceipt]:
        """Erase what is kept of a user, or part of it, for good."""
        if not scrub:
            raise not_offered(RemoteMemory, "forget(scrub=False)")
        body = {
            "user_id": self._user(user_id),
            "session_id": session_id,
            "episode_id": episode_id,
            "before": before,
            "dry_run": dry_run,
        }
        answer = yield Exchange(self._ask("memory.forget", body=body), Forgotten)
        return ForgetReceipt(answer.counts, dry_run=answer.dry_run, receipt=answer.receipt)

    def close(self) -> Talk[None]:
        """Nothing of its own to let go of: the handle has the connections."""
        yield from ()


class RemoteExport(MemoryExport):
    """`MemoryExport`, fetched whole."""

    def __init__(self, lines: bytes) -> None:
        self._fetched = lines.splitlines(keepends=True)
        header = msgspec.json.decode(self._fetched[0])
        self.user_id = header["user_id"]
        self.exported_at = datetime.fromisoformat(header["exported_at"])

    @property
    def episodes(self) -> list[Episode]:
        raise not_offered(RemoteMemory, "export().episodes")

    @property
    def facts(self) -> list[Fact]:
        raise not_offered(RemoteMemory, "export().facts")

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._fetched)


class AsyncRemoteExport:
    """`RemoteExport`, awaited as `pagefile.aio` does."""

    def __init__(self, lines: bytes) -> None:
        self._sync = RemoteExport(lines)
        self.user_id = self._sync.user_id
        self.exported_at = self._sync.exported_at

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for line in self._sync:
            yield line

    async def write(self, path: str | os.PathLike[str]) -> int:
        """Write the lines into a file that is not there yet; the number of records."""
        return await asyncio.to_thread(self._sync.write, path)


class RemoteItems(Room):
    """What the tenant's agents know for the long term."""

    library = LongTermItems
    place = "items"

    def search(
        self,
        query: str,
        *,
        scope: str | None = None,
        user_id: str | None = None,
        project_id: str | None = None,
        status: str | None = "active",
        type: str | None = None,
        top_k: int = 8,
    ) -> Talk[list[Hit]]:
        """Items that share a word with the question, best first."""
        if not query.strip():
            return []
        given = {
            "q": query,
            "scope": scope,
            "user_id": user_id,
            "project_id": project_id,
            "status": "any" if status is None else status,
            "type": type,
        }
        return (yield from self._pages("items.search", given, Hit, top_k))

    def propose(
        self,
        mcrs: Sequence[Mapping[str, Any]],
        *,
        scope_filters: Mapping[str, Any] | None = None,
        run_id: str | None = None,
        user_id: str | None = None,
        project_id: str | None = None,
        ttl_seconds: int = 604_800,
        beside: Any = None,
    ) -> Talk[Proposal]:
        """Stage changes to long-term items; nothing holds before they are committed."""
        for name, value in (("run_id", run_id), ("beside", beside)):
            if value is not None:
                raise not_offered(RemoteItems, f"propose({name}=…)")
        given = {
            "mcrs": list(mcrs),
            "scope_filters": scope_filters,
            "user_id": user_id,
            "project_id": project_id,
            "ttl_seconds": ttl_seconds,
        }
        return (yield from answered(self._ask("items.propose", given), Proposal))

    def issue_token(
        self,
        run_id: str,
        *,
        ttl_seconds: int = 300,
        user_id: str | None = None,
        beside: Any = None,
    ) -> Talk[str]:
        """A token that lets one batch of the run pass, once."""
        if beside is not None:
            raise not_offered(RemoteItems, "issue_token(beside=…)")
        given = {"run_id": run_id, "ttl_seconds": ttl_seconds}
        return str((yield Exchange(self._ask("run.memory.issue_token", given), Token)).token)

    def close(self) -> Talk[None]:
        """Nothing of its own to let go of: the handle has the connections."""
        yield from ()


class RemoteAssembly(Room):
    """Prompts within a token budget, each with its receipt."""

    library = Assembly
    place = "assembly"

    def assemble(
        self,
        source: Any = None,
        query: str | None = None,
        budget: int = 8_000,
        *,
        user_id: str | None = None,
        project_id: str | None = None,
        system: str = "",
        agent: str = "",
        counter: Any = None,
        at: int | None = None,
        record: bool = True,
        options: AssemblyOptions | None = None,
    ) -> Talk[Prompt]:
        """A prompt from a thread, a run or neither, pinned blocks and memory."""
        if counter is not None and not isinstance(counter, str):
            raise not_offered(RemoteAssembly, "assemble(counter=…) with a counter of your own")
        thread_id = run_id = None
        if isinstance(source, RemoteRun):
            run_id = source.run_id
        elif isinstance(source, RemoteThread):
            thread_id = source.thread_id
        elif source is None or isinstance(source, str):
            thread_id = source
        else:
            raise Invalid(
                "source", f"{shown(source)} is not a thread or a run", "give an id or a run"
            )
        given = {
            "query": query,
            "budget": budget,
            "thread_id": thread_id,
            "run_id": run_id,
            "user_id": user_id,
            "project_id": project_id,
            "system": system,
            "agent": agent,
            "counter": counter,
            "at": at,
            "record": record,
            "options": options,
        }
        answer = yield Exchange(self._ask("assembly.assemble", given), ContextAnswer)
        return Prompt(answer.messages, answer.receipt)

    def receipts(
        self, *, user_id: str | None = None, limit: int = 100, cursor: str | None = None
    ) -> Talk[ReceiptPage]:
        """Receipts of a user's prompts, newest first."""
        given = {"user_id": user_id, "limit": limit, "cursor": cursor}
        ask = self._ask("assembly.receipts", given)
        page = yield Exchange(ask, Listing[AssemblyReceipt])
        return ReceiptPage(tuple(page.items), page.cursor)

    def verify_receipt(
        self,
        receipt: AssemblyReceipt | str,
        *,
        user_id: str | None = None,
        query: str | None = None,
        system: str = "",
        counter: Any = None,
    ) -> Talk[Verification]:
        """Make a prompt again, at its position, and compare."""
        if counter is not None:
            raise not_offered(RemoteAssembly, "verify_receipt(counter=…)")
        if isinstance(receipt, AssemblyReceipt):
            receipt_id, user_id = receipt.receipt_id, receipt.user_id
        else:
            receipt_id = receipt
        given = {"receipt_id": receipt_id, "user_id": user_id, "query": query, "system": system}
        made = yield Exchange(self._ask("assembly.verify_receipt", given), ReceiptVerified)
        return Verification(made.receipt_id, tuple(made.differs), made.reason)

    def close(self) -> Talk[None]:
        """Nothing of its own to let go of: the handle has the connections."""
        yield from ()


class RemoteStore(Room):
    """The store of the tenant, as far as a server shows it: what was committed, and proofs."""

    library = Store
    place = "store"
    readings: ClassVar[Mapping[str, Reading]] = {
        "changes": Reading(
            "store.changes", Listing[Change], lambda page: page.items, {"since": "after"}
        ),
    }

    def get(
        self, document: str, *, version: int | None = None, at: int | None = None
    ) -> Talk[Document | None]:
        """A document now, at a version, or as of a position; None when there is none."""
        ask = self._ask("store.get", {"name": document, "version": version, "at": at})
        try:
            found = yield Exchange(ask, StoredShown)
        except NotFound:
            return None
        return document_of(found)

    def history(self, document: str, *, after: int = 0, limit: int = 100) -> Talk[list[Document]]:
        """Versions of a document, oldest first."""
        given = {"name": document, "cursor": cursor_of(after) if after else None}
        found = yield from self._pages("store.history", given, StoredShown, limit)
        return [document_of(each) for each in found]

    def read(
        self,
        log: str,
        start: int = 0,
        stop: int | None = None,
        *,
        limit: int = 10_000,
        at: int | None = None,
    ) -> Talk[list[Entry]]:
        """Entries of a log, oldest first, now or as of a position."""
        if start < 0 or (stop is not None and stop < 0):
            raise not_offered(RemoteStore, "read of entries counted from the end")
        if stop is not None:
            limit = min(limit, stop - start)
        if limit <= 0:
            return []
        given = {"name": log, "cursor": cursor_of(start) if start else None, "at": at}
        found = yield from self._pages("store.read", given, StoredShown, limit)
        return [entry_of(each) for each in found]

    def head(self) -> Talk[Head]:
        """The last position, and the digest of everything up to it."""
        return _head((yield Exchange(self._ask("store.head"), HeadShown)))

    def verify(self, *, head: Head | None = None, progress: Any = None) -> Talk[Report]:
        """Walk the hash chain of the tenant; with a head, prove that nothing is cut."""
        if progress is not None:
            raise not_offered(RemoteStore, "verify(progress=…)")
        given = {} if head is None else {"position": head.position, "digest": head.digest.hex()}
        return _report((yield Exchange(self._ask(".verify", given), ReportShown)))

    def check(self) -> Talk[Report]:
        """Examine the engine's structures: files, indexes, counters."""
        return _report((yield Exchange(self._ask(".check"), ReportShown)))

    def stats(self) -> Talk[Stats]:
        """Numbers about the tenant, and the engine that holds it."""
        return (yield from answered(self._ask(".stats"), Stats))


def _head(shown_head: HeadShown) -> Head:
    return Head(shown_head.position, bytes.fromhex(shown_head.digest))


def _report(found: ReportShown) -> Report:
    return Report(found.commits, found.records, tuple(found.problems), _head(found.head))


def _fields(room: Room, field: str, value: Any, shape: Any, travels: Any) -> dict[str, Any]:
    """What of a value travels, under the names that it has there.

    Raises:
        Invalid: it is something else. Unsupported: part of it would be lost.
    """
    if not isinstance(value, shape):
        raise Invalid(field, f"{shown(value)} is not {shape.__name__}", f"give {shape.__name__}(…)")
    names = travels.__struct_fields__
    fields: dict[str, Any] = {}
    for field_of in msgspec.structs.fields(shape):
        name = field_of.name
        each = getattr(value, name)
        if name in names:
            if each is not field_of.default and each != field_of.default:
                fields[name] = each
        elif name not in _SERVERS_OWN and each != field_of.default:
            raise not_offered(type(room), f"{shape.__name__}({name}=…)")
    user_id = room._user(value.user_id)
    if user_id is not None:
        fields["user_id"] = user_id
    return fields
