"""Something marked in every tier of a store, and how it is found and counted."""

from __future__ import annotations

import asyncio
import io
import json
import tempfile
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pagefile.context.conversations import Conversations
from pagefile.context.registry import ThreadRegistry
from pagefile.dispatch import HandlerResponse, Identity, Organism
from pagefile.handle import Pagefile
from pagefile.memory.episodes.episode import Episode, Message, Role, ToolCall
from pagefile.memory.extraction.candidate import Candidate
from pagefile.memory.memory import Memory
from pagefile.memory.privacy.forget_receipt import ForgetReceipt
from pagefile.recall.text.analysis import terms
from pagefile.runs.config import RunConfig
from pagefile.testing.memory.ground import (
    START,
    HashedWords,
    Scripted,
    fact,
    item_request,
)

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
