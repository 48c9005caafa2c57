"""Greeter, shouter, response: three messages, each recorded once, and what is left in the store.

python examples/greeter.py [FOLDER]
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path

import msgspec

import pagefile
from pagefile import HandlerMetadata
from pagefile.dispatch import HandlerResponse, Identity, Organism


class Greeting(msgspec.Struct, frozen=True):
    name: str


class Shout(msgspec.Struct, frozen=True):
    text: str


class Shouted(msgspec.Struct, frozen=True):
    text: str


async def main(folder: Path) -> None:
    with pagefile.open(folder / "greeter.db") as pf:
        organism = Organism(pf, name="greetings")

        @organism.listener("greeter", payload=Greeting, peers=["shouter"], agent=True)
        async def greeter(
            payload: Greeting | Shouted, metadata: HandlerMetadata
        ) -> HandlerResponse:
            if isinstance(payload, Greeting):
                return HandlerResponse(Shout(f"hello {payload.name}"), to="shouter")
            return HandlerResponse.respond(payload)

        @organism.listener("shouter", payload=Shout)
        def shouter(payload: Shout, metadata: HandlerMetadata) -> HandlerResponse:
            return HandlerResponse.respond(Shouted(payload.text.upper() + "!"))

        async with organism:
            answer = await organism.ask(
                Greeting("Ann"), "greeter", caller=Identity("ann", user_id="u1")
            )
        print(f"answer: {answer.payload.text}")
        for slot in pf.context.get_or_create_thread(answer.thread_id):
            print(f"{slot.from_id} → {slot.to_id}: {slot.payload}")
        print(f"activations left: {len(pf.registry.debug_dump())}, intact: {bool(pf.verify())}")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        asyncio.run(main(Path(sys.argv[1])))
    else:
        with tempfile.TemporaryDirectory() as temporary:
            asyncio.run(main(Path(temporary)))
