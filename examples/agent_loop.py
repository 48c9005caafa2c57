"""An agent's loop, whole: boot, read, patch, conflict, propose, milestone, pack, go on elsewhere.

    python examples/agent_loop.py [FOLDER]

No model and no key: what an agent would decide is written down here.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import pagefile

LEARNED = {
    "_schema_version": "2.1",
    "op": "add",
    "type": "preference",
    "scope": "user",
    "user_id": "ann",
    "content": "Ann prefers night trains",
    "confidence": 0.9,
    "rationale": "she chose one twice",
    "source_refs": ["thread-1/4"],
}


def main(folder: Path) -> None:
    with pagefile.open(folder / "agent.db") as pf:
        run = pf.runs.boot(
            "Plan a trip to Norway",
            ["has dates", "fits the budget"],
            ["trains only"],
            run_id="trip",
            user_id="ann",
        )
        seen = run.load()["_update_seq"]
        patch = {"_schema_version": "2.1", "expected_seq": seen, "set": {"status": "BUSY"}}
        print("patched:", run.apply_patch(patch).ok)
        print("a second writer:", pf.runs.open("trip").apply_patch(patch).error)
        run.update(lambda ws: {"next_action": "book the night train"})

        batch = run.memory.propose([LEARNED])
        print("would add:", len(run.memory.preview(batch.batch_id).added))
        milestone = run.milestone("chosen", memory_batch_id=batch.batch_id, next_entry_point="book")
        print("remembered:", len(milestone.committed_memory_ids))

    with pagefile.open(folder / "agent.db") as pf:  # Another process, another day.
        run = pf.runs.open("trip")
        known = pf.items.search("which train?", user_id="ann")
        print(run.brief(ltm_results=[hit.item.to_v21() for hit in known]).splitlines()[0])
        print("next:", run.load()["next_action"])
        pack = run.create_resume_pack(folder)

    with pagefile.open(folder / "elsewhere.db") as pf:  # Another machine.
        run = pf.runs.restore_from_pack(pack, new_run_id="trip-2")
        run.update(lambda ws: {"status": "DONE"})
        print("went on as", run.run_id, "at", run.load()["_update_seq"])
        print("the ledger tells the same:", bool(run.rebuild()), "intact:", bool(pf.verify()))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as made:
            main(Path(made))
