"""One scripted story through every room, to be told on any engine with the same words.

Clock, salts and ids are the script's. What comes out (exports, packs, briefs, what
is recalled, the head of the hash chain) must be the same bytes on every engine.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from pagefile.handle import Options, Pagefile
from pagefile.memory.episodes.episode import Episode
from pagefile.memory.facts.fact import Fact
from pagefile.memory.memory import Memory
from pagefile.recall.embed.embedder import Embedder
from pagefile.runs.config import RunConfig
from pagefile.store import clock

_START = datetime(2026, 3, 1, 9, tzinfo=UTC)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_USERS = ("ann", "bob")
_SAID = {
    "ann": (
        "My name is Ann and I live in Oslo.",
        "I prefer night trains to flights.",
        "I work as a botanist, and I am allergic to peanuts.",
        "I moved to Bergen last week.",
    ),
    "bob": (
        "I live in Lisbon with my dog Rex.",
        "I like espresso and fado.",
        "Please write short answers.",
    ),
}
_QUESTIONS = ("where does she live?", "which train?", "what about peanuts?", "espresso", "Rex")


class World:
    """Time that passes only when the script says so, and bytes that only look random."""

    def __init__(self) -> None:
        self.moment = _START
        self._drawn: dict[str, int] = {}

    def pass_time(self, minutes: int = 1) -> None:
        self.moment += timedelta(minutes=minutes)

    def clock_us(self) -> int:
        return (self.moment - _EPOCH) // timedelta(microseconds=1)

    def entropy(self, of: str) -> Callable[[int], bytes]:
        """A stream of bytes of its own: how much is drawn at once does not matter."""

        def draw(count: int) -> bytes:
            start = self._drawn.get(of, 0)
            self._drawn[of] = start + count
            blocks = range(start // 32, (start + count) // 32 + 1)
            whole = b"".join(hashlib.sha256(f"{of} {n}".encode()).digest() for n in blocks)
            return whole[start % 32 : start % 32 + count]

        return draw

    def options(self) -> Options:
        """For the store of the story."""
        return Options(clock=self.clock_us, entropy=self.entropy("store"))


def tell(
    world: World, open_store: Callable[[Options], Pagefile], embedder: Embedder | None = None
) -> dict[str, bytes]:
    """Live through the story on a store that holds nothing; what came out, by name."""
    with clock.scripted(world.clock_us, world.entropy("rooms")):
        handle = open_store(world.options())
        told: dict[str, Any] = {}
        memory = Memory(handle.store, embedder=embedder, clock=lambda: world.moment)
        _threads(world, handle, told)
        _runs(world, handle, told)
        _memories(world, memory, told)
        told["verified"] = handle.verify().problems
        told["head"] = handle.store.head().digest
        memory.close()
        handle.close()
    return {name: _as_bytes(value) for name, value in told.items()}


def _as_bytes(value: Any) -> bytes:
    return value if isinstance(value, bytes) else msgspec.json.encode(value, order="sorted")


def _threads(world: World, handle: Pagefile, told: dict[str, Any]) -> None:
    buffer, registry = handle.context, handle.registry
    registry.initialize_root("desk")
    caller = registry.start_chain("console", "planner", user_id="ann")
    callee = registry.extend_chain(caller, "booker")
    for number in range(6):
        world.pass_time()
        buffer.append(caller, {"n": number, "text": f"slot {number}"}, "console", "planner")
    fork = buffer.fork(caller, 3)
    buffer.append(fork, {"text": "another way"}, "planner", "booker")
    buffer.append(callee, ["asked", callee], "planner", "booker")
    doomed = buffer.fork(caller)
    buffer.append(doomed, "to be gone", "console", "planner")
    buffer.delete_thread(doomed)
    world.pass_time()
    answered = registry.prune_for_response(callee)
    told["threads"] = [
        [slot.payload for slot in buffer.get_thread_slots(thread)]
        for thread in (caller, callee, fork, doomed)
    ]
    told["registry"] = [caller, callee, fork, answered, registry.debug_dump()]


def _slide(number: int) -> dict[str, Any]:
    return {
        "id": f"s{number}",
        "content": f"{number} " + "what was seen on the way " * 12,
        "timestamp": "2026-03-01T09:00:00Z",
        "priority": number % 3,
    }


def _runs(world: World, handle: Pagefile, told: dict[str, Any]) -> None:
    run = handle.runs.boot(
        "Plan a trip to Norway",
        ["has dates"],
        ["trains only"],
        run_id="trip",
        user_id="ann",
        config=RunConfig(ws_max_tokens=400),
    )
    for number in range(8):
        world.pass_time()
        operation = {"op": "append", "field": "sliding_context", "items": [_slide(number)]}
        patch = {"_schema_version": "2.1", "expected_seq": run.load()["_update_seq"]}
        run.apply_patch(patch | {"ops": [operation]})
    run.update(lambda ws: {"next_action": "book the night train", "status": "BUSY"})
    learned = {
        "_schema_version": "2.1",
        "op": "add",
        "type": "preference",
        "scope": "user",
        "user_id": "ann",
        "content": "Ann prefers night trains",
        "confidence": 0.9,
        "rationale": "she chose one twice",
        "source_refs": ["trip/1"],
    }
    batch = run.memory.propose([learned])
    world.pass_time()
    milestone = run.milestone("chosen", memory_batch_id=batch.batch_id, next_entry_point="book")
    told["milestone"] = milestone
    told["working set"] = run.load()
    told["brief"] = run.brief()
    told["rebuilt"] = bool(run.rebuild())
    told["ledger"] = run.ledger.read()
    told["items"] = [hit.item.to_v21() for hit in handle.items.search("trains", user_id="ann")]
    with tempfile.TemporaryDirectory() as folder:
        pack = run.create_resume_pack(folder)
        told["pack"] = pack.read_bytes()
        told["pack name"] = pack.name
        world.pass_time()
        restored = handle.runs.restore_from_pack(pack, new_run_id="trip-2")
        restored.update(lambda ws: {"status": "DONE"})
        told["restored"] = restored.load()
        told["second pack"] = restored.create_resume_pack(folder).read_bytes()


def _memories(world: World, memory: Memory, told: dict[str, Any]) -> None:
    for user in _USERS:
        for number, text in enumerate(_SAID[user]):
            world.pass_time(7)
            told_by = Episode(session_id=f"{user}-{number // 2}", input=text, user_id=user)
            memory.remember(told_by)
        memory.update_block("persona", f"Help {user}.", user_id=user)
        memory.append_block("persona", " Be brief.", user_id=user)
    world.pass_time()
    first = Fact(subject="Ann", predicate="lives_in", object="Oslo", user_id="ann")
    memory.facts.append(first)
    world.pass_time()
    memory.facts.append(Fact(subject="Ann", predicate="likes", object="ferns", user_id="ann"))
    memory.facts.retract(first.id, reason="moved", user_id="ann")
    told["consolidated"] = memory.consolidate()
    told["recalled"] = _recalled(memory)
    for user in _USERS:
        world.pass_time()
        told[f"export of {user}"] = b"".join(memory.export(user_id=user))
    receipt = memory.forget(user_id="bob", scrub=False)
    told["forgotten"] = [repr(receipt), receipt.receipt.removed, memory.users()]
    told["recalled after"] = _recalled(memory)
    told["export after"] = b"".join(memory.export(user_id="ann"))
    told["export of the forgotten"] = b"".join(memory.export(user_id="bob"))


def _recalled(memory: Memory) -> list[Any]:
    found: list[Any] = []
    for user in _USERS:
        for question in _QUESTIONS:
            episodes = memory.recall_scored(question, user_id=user, limit=3)
            facts = memory.recall_facts_scored(question, user_id=user, limit=3)
            found.append([(match.episode.id, match.score) for match in episodes])
            found.append([(match.fact.id, match.score) for match in facts])
    return found
