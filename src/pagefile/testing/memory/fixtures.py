"""What every suite over memory starts from: a memory, a clock, an embedder, a few verbs."""

from __future__ import annotations

import asyncio
import hashlib
import io
import json
import re
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from pagefile.context.conversations import Conversations
from pagefile.context.registry import ThreadRegistry
from pagefile.dispatch import HandlerResponse, Identity, Organism
from pagefile.errors import PagefileError
from pagefile.handle import Pagefile
from pagefile.memory.episodes.episode import Episode, Message, Role, ToolCall
from pagefile.memory.extraction.candidate import Candidate, Exchange
from pagefile.memory.facts.fact import Fact
from pagefile.memory.memory import Memory
from pagefile.memory.privacy.forget_receipt import ForgetReceipt
from pagefile.recall.text.analysis import terms
from pagefile.runs.config import RunConfig
from pagefile.store.store import Store
from pagefile.testing.backend import Backend
from pagefile.testing.contract import ContractFixtures

START = datetime(2026, 3, 2, 9, 0, tzinfo=UTC)
HOUR = timedelta(hours=1)
_WORD = re.compile(r"\w+")


class MemoryFixtures(ContractFixtures):
    """One place, and the memory of one tenant in it."""

    @pytest.fixture
    def handle(self, backend: Backend) -> Pagefile:
        return backend.open()

    @pytest.fixture
    def memory(self, handle: Pagefile) -> Memory:
        return Memory(handle, embedder=None)


class Clock:
    """A clock that stands still until it is told to go on."""

    def __init__(self, now: datetime = START) -> None:
        self.now = now

    def __call__(self) -> datetime:
        return self.now

    def passes(self, **time: float) -> None:
        self.now += timedelta(**time)

    def microseconds(self) -> int:
        """The same moment, for a store's own clock."""
        return round(self.now.timestamp() * 1_000_000)


class HashedWords:
    """Words as directions: texts that share words are near each other. No model, no chance."""

    def __init__(self, name: str = "hashed-words", dimensions: int = 64) -> None:
        self.name = name
        self.dimensions = dimensions
        self.texts = 0

    def embed(self, text: str) -> list[float]:
        self.texts += 1
        vector = [0.0] * self.dimensions
        # So that a text without words has a direction too.
        vector[0] = 0.01
        for word in _WORD.findall(text.casefold()):
            digest = hashlib.sha256(word.encode()).digest()
            vector[1 + int.from_bytes(digest[:4], "big") % (self.dimensions - 1)] += 1.0
        return vector

    def embed_batch(self, texts: Sequence[str]) -> list[list[float]]:
        return [self.embed(text) for text in texts]


#: What an extractor does with an episode: returns candidates, or raises.
Reading = Callable[[Exchange], Sequence[Candidate]]


class Scripted:
    """An extractor that does what it is told, and notes what it was given."""

    name = "scripted"
    version = "1"

    def __init__(self, reading: Reading | None = None) -> None:
        self._reading = reading
        self._lock = threading.Lock()
        self.read: list[str] = []

    def extract(
        self, exchange: Exchange, *, cancel: threading.Event | None = None
    ) -> list[Candidate]:
        with self._lock:
            self.read.append(exchange.input)
        return list(likes(exchange) if self._reading is None else self._reading(exchange))


def likes(exchange: Exchange, confidence: float = 0.9) -> list[Candidate]:
    """That the user likes the last word of what was said."""
    return [Candidate("user", "likes", exchange.input.split()[-1], confidence)]


def episode(
    text: str,
    user: str | None = "ann",
    session: str = "s",
    *,
    at: datetime = START,
    id: str | None = None,
    **fields: Any,
) -> Episode:
    """An episode in which somebody said the text."""
    if id is not None:
        fields["id"] = id
    return Episode(input=text, user_id=user, session_id=session, occurred_at=at, **fields)


def say(
    memory: Memory, *texts: str, user: str | None = "ann", session: str = "s", at: datetime = START
) -> list[str]:
    """One episode for each text, a minute apart; their ids."""
    return [
        memory.remember(episode(text, user, session, at=at + n * timedelta(minutes=1)))
        for n, text in enumerate(texts)
    ]


def fact(object_: str, user: str | None = "ann", **fields: Any) -> Fact:
    """That the user lives somewhere, since the start."""
    fields.setdefault("subject", "user")
    fields.setdefault("predicate", "lives_in")
    fields.setdefault("valid_from", START)
    return Fact(object=object_, user_id=user, **fields)


def item_request(content: str, user: str | None) -> dict[str, Any]:
    """A request to keep something for the long term, as a model would send it."""
    return {
        "_schema_version": "2.1",
        "op": "add",
        "type": "fact",
        "scope": "user",
        "content": content,
        "confidence": 0.8,
        "rationale": "said so",
        "source_refs": ["slot:1"],
        "user_id": user,
    }


def inputs(episodes: Iterable[Episode]) -> list[str]:
    return [one.input for one in episodes]


def objects(facts: Iterable[Fact]) -> list[str]:
    return [one.object for one in facts]


def export_lines(memory: Memory, user: str | None = "ann") -> list[bytes]:
    """The records of an export, without the first line and the last."""
    return list(memory.export(user_id=user))[1:-1]


def outcome(work: Callable[..., Any], *given: Any, **named: Any) -> str:
    """What came of a call: the name of a typed error, or what was raised instead."""
    try:
        work(*given, **named)
    except PagefileError as error:
        return type(error).__name__
    except Exception as error:  # noqa: BLE001  Whatever it is, it is told.
        return f"raw {type(error).__name__}: {error}"[:200]
    return "done"


class Meanwhile:
    """A store on which something else happens just before the next commit, once."""

    def __init__(self, store: Store, work: Callable[[], Any]) -> None:
        self._store = store
        self._work: Callable[[], Any] | None = work

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def commit(self, batch: Any) -> Any:
        self._happen()
        return self._store.commit(batch)

    def erase(self, selector: Any, *, dry_run: bool = False, **options: Any) -> Any:
        if not dry_run:
            self._happen()
        return self._store.erase(selector, dry_run=dry_run, **options)

    def _happen(self) -> None:
        work, self._work = self._work, None
        if work is not None:
            work()


def kept(handle: Pagefile) -> list[str]:
    """Everything that is stored of a tenant, past versions and all, as text."""
    store = handle.store
    told: list[str] = []
    for log in _all(lambda after: store.names("log", after=after, limit=1_000)):
        told += [f"{log} {_told(entry)}" for entry in store.read(log, limit=10_000)]
    for name in _all(lambda after: store.names("document", after=after, limit=1_000)):
        told += [f"{name} {_told(one)}" for one in store.history(name, limit=10_000)]
    return told


def _told(record: Any) -> str:
    if record.erased:
        return "erased"
    content = record.content
    parts = (content.body, content.keys, content.tenant_keys, content.notes)
    return f"{content.user} {content.actor} {content.sources} {parts}"


def _all(page: Callable[[str], list[str]]) -> Iterable[str]:
    after = ""
    while names := page(after):
        yield from names
        after = names[-1]


def traces(backend: Backend, handle: Pagefile, words: Iterable[str]) -> list[tuple[str, str]]:
    """Where the words are still found: in what is stored, and in any byte beneath it.

    Beneath are files, or the rows of a server whose files are its own.
    """
    wanted = list(words)
    found = [(line, word) for line in kept(handle) for word in wanted if word in line]
    for name, stored in backend.remains():
        raw = stored.lower()
        found += [(name, word) for word in wanted if word.lower().encode() in raw]
    return found


OF_EPISODES = ("input", "output", "transcript", "argument", "speaker", "candidate", "quote")
OF_MEMORY = ("block", "oldblock", "goneblock", "factobject", "alias", "sessionname")
_OF_OTHERS = (
    *("slot", "usagetext", "givenkey", "handleslot", "notes", "threadname", "forkname", "forkslot"),
    *("deletedthread", "touchedthread", "expiredthread", "chain", "target"),
    *("run", "runname", "criterion", "milestone", "event", "writer", "evicted"),
    *("deletedrun", "importedrun", "restoredrun"),
    *("item", "staged", "reviewer", "rationale"),
    *("caller", "message", "messageid", "answer"),
)
#: What may be gone before, or is stored as a digest alone: it must not turn up afterwards.
UNSEEN = ("givenkey", "deletedthread", "deletedrun")
#: Words that nobody else uses, one for each place they are planted in.
MARKS = {place: f"zyq{place}vorbling" for place in (*OF_EPISODES, *OF_MEMORY, *_OF_OTHERS)}


def spoken(words: Iterable[str]) -> list[str]:
    """The words, and what the index makes of them."""
    told = list(words)
    return sorted({*told, *(term for word in told for term in terms(word))})


def plant(handle: Pagefile, user: str | None) -> Memory:
    """Something marked in every tier."""
    memory = Memory(
        handle,
        embedder=HashedWords(),
        record_use=True,
        extractor=Scripted(
            lambda one: [Candidate("user", "likes", MARKS["candidate"], 0.2, quote=MARKS["quote"])]
        ),
    )
    call = ToolCall(tool="t", args={"q": MARKS["argument"]})
    said = [
        Message(Role.ASSISTANT, "", tool_calls=(call,)),
        Message(Role.TOOL, MARKS["transcript"], tool_call_id=call.id),
    ]
    memory.remember(
        Episode(
            session_id=MARKS["sessionname"],
            user_id=user,
            input=MARKS["input"],
            output=MARKS["output"],
            speaker=MARKS["speaker"],
            occurred_at=START,
            tool_calls=(call,),
            tool_transcript=tuple(said),
        )
    )
    memory.update_block("b", MARKS["oldblock"], user_id=user)
    memory.update_block("b", MARKS["block"], user_id=user)
    memory.update_block("c", MARKS["goneblock"], user_id=user)
    memory.delete_block("c", user_id=user)
    memory.facts.append(fact(MARKS["factobject"], user))
    memory.facts.alias(MARKS["alias"], "user", user_id=user)
    memory.consolidate()
    memory.recall(MARKS["input"], user_id=user)
    memory.recall_facts(MARKS["factobject"], user_id=user)
    return memory


def plant_beside(handle: Pagefile, user: str | None) -> None:
    """Something marked in the other rooms, by every way in, and in names that callers choose."""
    _plant_threads(handle, user)
    _plant_runs(handle, user)
    request = item_request(MARKS["item"], user) | {"rationale": MARKS["rationale"]}
    handle.items.commit(
        handle.items.propose([request], user_id=user).batch_id, reviewer=MARKS["reviewer"]
    )
    handle.items.propose([item_request(MARKS["staged"], user)], user_id=user)
    asyncio.run(_plant_messages(handle, user))


def _plant_threads(handle: Pagefile, user: str | None) -> None:
    context, thread = handle.context, MARKS["threadname"]
    conversations = Conversations(handle, ttl_seconds=3_600)
    context.append(MARKS["expiredthread"], "x", "a", "b", user_id=user)
    conversations.expire(now_us=(time.time_ns() // 1_000) + 7_200_000_000)
    context.append(
        thread,
        {"said": MARKS["slot"]},
        "a",
        "b",
        usage_instructions=MARKS["usagetext"],
        todo_nudge=MARKS["notes"],
        user_id=user,
        key=MARKS["givenkey"],
    )
    # What a worker answers belongs to whom it answers.
    context.handle(thread, write=True).append(MARKS["handleslot"], "worker", "b")
    context.fork(thread, new_id=MARKS["forkname"])
    fork = context.fork(thread)
    context.handle(fork, write=True).append(MARKS["forkslot"], "worker", "b")
    context.append(MARKS["deletedthread"], "x", "a", "b", user_id=user)
    context.delete_thread(MARKS["deletedthread"])
    context.append(MARKS["touchedthread"], "x", "a", "b", user_id=user)
    conversations.touch(MARKS["touchedthread"])
    ThreadRegistry(handle).start_chain(MARKS["chain"], MARKS["target"], user_id=user)


def _plant_runs(handle: Pagefile, user: str | None) -> None:
    small = RunConfig(ws_max_tokens=200)
    run = handle.runs.boot(
        MARKS["run"], [MARKS["criterion"]], run_id=MARKS["runname"], user_id=user, config=small
    )
    run.milestone(MARKS["milestone"])
    run.log("ERROR", {"error_type": "x", "message": MARKS["event"]}, writer_id=MARKS["writer"])
    slide = {"timestamp": "2026-01-01T00:00:00Z", "priority": 1}
    left = [slide | {"id": f"s{n}", "content": f"{MARKS['evicted']} {'x ' * 90}"} for n in range(9)]
    fields = {"sliding_context": left}
    run.apply_patch({"_schema_version": "2.1", "expected_seq": 0, "set": fields})
    assert run.evicted()
    lines = io.StringIO()
    run.ledger.export_jsonl(lines)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "ledger.jsonl")
        file.write_text(lines.getvalue())
        handle.runs.import_jsonl(file, new_run_id=MARKS["importedrun"], user_id=user)
        pack = run.create_resume_pack(Path(folder))
        handle.runs.restore_from_pack(pack, MARKS["restoredrun"])
    handle.runs.boot("x", run_id=MARKS["deletedrun"], user_id=user).milestone("gone")
    handle.runs.delete(MARKS["deletedrun"])


async def _plant_messages(handle: Pagefile, user: str | None) -> None:
    organism = Organism(handle, name="canaries")

    @organism.listener("listener", payload=dict)
    def listener(payload: Any, metadata: Any) -> HandlerResponse:
        return HandlerResponse.respond({"answer": MARKS["answer"]})

    caller = Identity(MARKS["caller"], user_id=user)
    async with organism:
        said = {"said": MARKS["message"]}
        sent = await organism.inject(
            said, "listener", caller=caller, message_id=MARKS["messageid"], timeout=60
        )
        await organism.answer(sent, timeout=60)


_KINDS = {
    "memory/episode/": "episodes",
    "memory/block/": "blocks",
    "memory/candidate/": "candidates",
    "memory/extraction/": "extractions",
    "memory/use/": "uses",
    "fact/": "facts",
    "fact-retraction/": "retractions",
    "fact-alias/": "aliases",
    "item/": "items",
    "run/": "runs",
    "episode/": "milestones",
    "thread/": "slots",
    "ledger/": "events",
    "usage/": "usage_texts",
}


def counted(lines: Iterable[bytes]) -> Counter[str]:
    """How many things an export holds: a document is one, and so is an entry of a log."""
    told: Counter[str] = Counter()
    seen: set[str] = set()
    for line in lines:
        record = json.loads(line)
        name = record["name"]
        kind = next((kind for prefix, kind in _KINDS.items() if name.startswith(prefix)), "other")
        if record["stream"] == "log" or name not in seen:
            told[kind] += 1
        seen.add(name)
    return told


def forgotten_things(receipt: ForgetReceipt) -> dict[str, int]:
    """What went, without what is made from the rest and in no export."""
    derived = ("index", "receipts", "versions")
    return {kind: n for kind, n in receipt.counts.items() if kind not in derived}
