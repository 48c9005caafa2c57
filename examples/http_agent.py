"""An agent that works over HTTP, killed in the middle and resumed elsewhere.

    pagefile serve --local &
    python examples/http_agent.py http://127.0.0.1:8000

The key is read from PAGEFILE_API_KEY where the server asks for one. The model is
played by a function: it gets what a model would get, and answers what one would.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

from pagefile.client import Client
from pagefile.errors import Conflict

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

    def __init__(self, client: Client, run_id: str) -> None:
        self.client = client
        self.run = client.runs(run_id)

    def step(self, number: int) -> None:
        """Read, think, write; if somebody else wrote meanwhile, read again."""
        prompt = self.client.context.assemble(
            run_id=self.run.run_id, budget=1_000, format="text"
        ).text
        action = model(prompt or "", number)
        self.client.ledger.log(self.run.run_id, "MODEL_ACTION", payload={"action": action})

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


def main(base_url: str) -> None:
    with Client(base_url) as client:
        run_id = client.runs.boot(
            "Plan a trip to Lisbon", acceptance_criteria=["a booked ticket"]
        ).run_id
        agent = Agent(client, run_id)
        agent.step(0)

        # A second writer who did not look first is told so, and nothing is lost.
        try:
            client.runs.patch(run_id, set={"status": "DONE"}, expected_seq=0)
        except Conflict as conflict:
            print(f"expected {conflict.expected}, found {conflict.current}")

        # The first agent is gone; another one goes on, knowing the id alone.
        agent = Agent(client, run_id)
        for number in (1, 2):
            agent.step(number)
        print(client.runs.get(run_id)["last_action_summary"])

        # What was learnt is proposed, and becomes true with the milestone.
        staged = client.batches.propose_for_run(run_id, [LEARNT])
        client.ledger.milestone(run_id, reason="task_complete", memory_batch_id=staged.batch_id)
        print(f"learnt: {client.items.search(q='night trains').items[0].item.content}")

        # All of it fits into a file, and comes back as another run.
        with tempfile.TemporaryDirectory() as folder:
            pack = Path(folder, "run.zip")
            client.packs.download(client.packs.make(run_id).pack_id, pack)
            again = client.packs.upload(pack, new_run_id=f"{run_id}-again")
        print(f"resumed at {again.ws['_update_seq']}: {client.runs.rebuild(again.run_id).ok}")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        usage = "usage: python examples/http_agent.py http://127.0.0.1:8000"
        sys.exit(f"{usage} (start it with `pagefile serve`)")
    main(sys.argv[1])
