"""Something marked in every tier of a store, and how it is found and counted."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable

from pagefile.handle import Pagefile
from pagefile.memory.episode import Episode
from pagefile.memory.extraction.candidate import Candidate
from pagefile.memory.forget_receipt import ForgetReceipt
from pagefile.memory.memory import Memory
from pagefile.memory.message import Message, Role, ToolCall
from pagefile.recall.analysis import terms
from pagefile.testing.memory.ground import (
    START,
    HashedWords,
    Scripted,
    fact,
    item_request,
)

OF_EPISODES = ("input", "output", "transcript", "argument", "speaker", "candidate", "quote")
OF_MEMORY = ("block", "oldblock", "goneblock", "factobject", "alias", "sessionname")
_OF_OTHERS = ("slot", "run", "milestone", "item", "staged")
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
    """Something marked in the other rooms."""
    handle.context.append("t", {"said": MARKS["slot"]}, "a", "b", user_id=user)
    run = handle.runs.boot(MARKS["run"], ["done"], [], user_id=user)
    run.milestone(MARKS["milestone"])
    handle.items.commit(
        handle.items.propose([item_request(MARKS["item"], user)], user_id=user).batch_id,
        reviewer="rev",
    )
    handle.items.propose([item_request(MARKS["staged"], user)], user_id=user)


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
