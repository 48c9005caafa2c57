"""An agent that works over HTTP, killed in the middle and resumed elsewhere.

    pagefile serve --local &
    python examples/http_agent.py http://127.0.0.1:8000

The key is read from PAGEFILE_API_KEY where the server asks for one. The model is
played by a function: it gets what a model would get, and answers what one would.
"""

from __future__ import annotations

import sys
import tempfile
from typing import Any

import pagefile
from pagefile import Pagefile

PLAN = ["look up trains", "compare prices", "book the night train"]
LEARNT = {
    "_schema_version": "2.1",
    "op": "add",
    "type": "preference",
    "scope": "global",
    "content": "Night trains are preferred to flights.",
    "confidence": 0.9,
    "rationale": "The traveller said so.",
    "source_refs": ["step:2"],
}


def model(prompt: str, step: int) -> dict[str, Any]:
    """What to do next; a real one would read the prompt."""
    assert "Plan a trip" in prompt
    return {"summary": f"done: {PLAN[step]}", "next": (*PLAN, "")[step + 1]}


class Agent:
    """Holds nothing but an id: whatever it knows is on the server."""

    def __init__(self, pf: Pagefile, run_id: str) -> None:
        self.pf = pf
        self.run = pf.runs.open(run_id)

    def step(self, number: int) -> None:
        """Read, think, write; if somebody else wrote meanwhile, read again."""
        prompt = self.pf.assemble(self.run, budget=1_000).text()
        action = model(prompt, number)
        self.run.log("MODEL_ACTION", {"action": action})

        def change(ws: dict[str, Any]) -> dict[str, Any]:
            note = {
                "id": f"step-{number}",
                "content": action["summary"],
                "timestamp": "2026-01-31T09:30:00Z",
                "priority": 5,
            }
            return {
                "status": "BUSY",
                "last_action_summary": action["summary"],
                "next_action": action["next"],
                "sliding_context": [*ws["sliding_context"], note],
            }

        self.run.update(change)


def main(url: str) -> None:
    # The same code runs on a file: `pagefile.open("agent.db")`.
    with pagefile.open(url) as pf:
        run_id = pf.runs.boot("Plan a trip to Lisbon", ["a booked ticket"]).run_id
        agent = Agent(pf, run_id)
        agent.step(0)

        # A second writer who did not look first is told so, and nothing is lost.
        late = {"_schema_version": "2.1", "expected_seq": 0, "set": {"status": "DONE"}}
        print(f"refused: {agent.run.apply_patch(late).code}")

        # The first agent is gone; another one goes on, knowing the id alone.
        agent = Agent(pf, run_id)
        for number in (1, 2):
            agent.step(number)
        print(agent.run.load()["last_action_summary"])

        # What was learnt is proposed, and becomes true with the milestone.
        staged = agent.run.memory.propose([LEARNT])
        agent.run.milestone("task_complete", memory_batch_id=staged.batch_id)
        print(f"learnt: {pf.items.search('night trains')[0].item.content}")

        # All of it fits into a file, and comes back as another run.
        with tempfile.TemporaryDirectory() as folder:
            pack = agent.run.create_resume_pack(folder)
            again = pf.runs.restore_from_pack(pack, f"{run_id}-again")
        print(f"resumed at {again.load()['_update_seq']}: {bool(again.rebuild())}")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        usage = "usage: python examples/http_agent.py http://127.0.0.1:8000"
        sys.exit(f"{usage} (start it with `pagefile serve`)")
    main(sys.argv[1])
