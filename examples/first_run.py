"""A working set in ten steps: start, read, patch, a stale patch, pack, restore, look back.

    python examples/first_run.py [FOLDER]

Whoever knows `WorkingSetManager` finds its calls here: `create_initial` is `runs.boot`,
the manager of one file is a `Run`, and a pack carries the whole run.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import pagefile


def main(folder: Path) -> None:
    with pagefile.open(folder / "runs.db") as pf:
        run = pf.runs.boot(
            "Build a feature",
            ["tests pass", "documented"],
            ["no new dependency"],
            task_id="task_123",
            thread_id="thread_456",
            run_id="run_789",
        )
        ws = run.load()
        print(ws["status"], ws["_update_seq"], ws["task_id"], ws["thread_id"])

        note = {
            "id": "note-1",
            "content": "the parser is in parse.py",
            "timestamp": "2026-01-01T10:00:00Z",
            "priority": 7,
        }
        patch = {
            "_schema_version": "2.1",
            "expected_seq": ws["_update_seq"],
            "set": {"status": "BUSY", "current_stage": "WORK", "sliding_context": [note]},
        }
        result = run.apply_patch(patch)
        assert result.new_ws is not None
        print(result.ok, result.new_ws["status"], result.new_ws["_update_seq"])
        print(run.apply_patch(patch).error)

        pack = run.create_resume_pack(folder / "packs")
    with pagefile.open(folder / "elsewhere.db") as elsewhere:
        again = elsewhere.runs.restore_from_pack(pack, new_run_id="run_790")
        ws = again.load()
        print(ws["run_id"], ws["status"], [item["id"] for item in ws["sliding_context"]])
        print(again.at(0)["status"], "->", again.at(1)["status"])


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as made:
            main(Path(made))
