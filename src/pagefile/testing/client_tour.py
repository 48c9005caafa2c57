"""A tour through every route, by a client: what is sent is taken, what is answered has its shape.

It is written for a client that blocks; `Blocking` makes one of a client that awaits.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

MCR = {
    "_schema_version": "2.1",
    "op": "add",
    "type": "fact",
    "scope": "global",
    "content": "water is wet",
    "confidence": 0.9,
    "rationale": "seen",
    "source_refs": [],
}


class Blocking:
    """Whatever is awaited, waited for: the face of a client that blocks over one that awaits."""

    def __init__(self, awaited: Any, loop: asyncio.AbstractEventLoop) -> None:
        self._awaited = awaited
        self._loop = loop

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._awaited, name)
        return found if isinstance(found, (str, int)) else Blocking(found, self._loop)

    def __call__(self, *args: Any, **options: Any) -> Any:
        plain = [each._awaited if isinstance(each, Blocking) else each for each in args]
        made = self._awaited(*plain, **options)
        if inspect.isawaitable(made):
            return self._loop.run_until_complete(made)
        return self._stepped(made) if hasattr(made, "__anext__") else Blocking(made, self._loop)

    def _stepped(self, made: Any) -> Iterator[Any]:
        async def step() -> Any:
            return await anext(made)

        try:
            while True:
                yield self._loop.run_until_complete(step())
        except StopAsyncIteration:
            return
        finally:
            self._loop.run_until_complete(made.aclose())


def tour(client: Any, folder: Path, mark: str) -> None:
    """Call everything once; `mark` keeps two tours apart."""
    _server(client)
    _threads(client, f"t-{mark}")
    _registry(client, mark)
    run_id = _runs(client, f"r-{mark}")
    _ledger(client, run_id, folder, mark)
    _batches(client, run_id)
    _packs(client, run_id, folder, mark)
    _memory(client, f"user-{mark}", folder)
    _facts(client, f"user-{mark}")
    _store(client)
    assert client.packs.delete(client.packs.make(run_id).pack_id).ok
    assert client.runs.delete(run_id).deleted
    assert client.privacy.forget(user_id=f"user-{mark}").count > 0


def _server(client: Any) -> None:
    assert (client.server.health().status, client.server.ready().status) == ("ok", "ready")
    assert "pagefile_http_requests_in_flight" in client.server.metrics()
    assert "admin" in client.server.whoami().rights
    assert client.server.refusals(limit=1) is not None


def _threads(client: Any, name: str) -> None:
    slot = client.threads.append(name, {"n": 0}, "user", "agent", expected_len=0)
    client.threads.append_many(name, [{"payload": n, "from_id": "a", "to_id": "b"} for n in (1, 2)])
    assert client.threads.slot(name, 0) == slot
    assert client.threads.get(name).length == 3
    assert client.threads.pin(name).pinned
    assert not client.threads.unpin(name).pinned
    assert [each.index for each in client.every(client.threads.slots, name, limit=2)] == [0, 1, 2]
    followed = list(client.threads.follow(name, after=0, seconds=0))
    assert [each.payload for each in followed] == [1, 2]
    assert client.threads.fork(name, at=1, new_id=f"{name}-fork").length == 1
    assert f"{name}-fork" in list(client.every(client.threads.list))
    assert client.threads.delete(f"{name}-fork").deleted
    assert client.context.assemble(thread_id=name, format="text", record=False).text


def _registry(client: Any, mark: str) -> None:
    registry = client.registry
    table = f"table-{mark}"
    assert registry.make_root(table=table) == registry.get_root(table=table)
    started = registry.register("console", "planner")
    assert registry.look_up(started.thread_id) == started
    called = registry.call(started.thread_id, "search")
    assert registry.respond(called.thread_id).name == "planner"
    assert registry.release(started.thread_id).ok
    assert registry.path(["a", mark]).path == ["a", mark]


def _runs(client: Any, run_id: str) -> str:
    runs = client.runs
    assert runs.boot("Plan a trip", run_id=run_id, config={"ws_max_tokens": 200}).ws
    assert runs.patch(run_id, set={"next_action": "ask"}, expected_seq=0).ws["_update_seq"] == 1
    note = {"timestamp": _MOMENT, "priority": 1}
    notes = [note | {"id": f"n{n}", "content": f"note {n} " * 9} for n in range(8)]
    client.runs(run_id).update(lambda ws: {"sliding_context": notes})
    [gone, *_] = runs.evicted(run_id, q="note").items
    client.runs(run_id).update(lambda ws: {"sliding_context": []})
    assert runs.page_in(run_id, gone["id"]).ok
    assert runs.get(run_id, seq=1)["next_action"] == "ask"
    assert runs.diff(run_id, 0, 1)
    assert runs.rebuild(run_id).ok
    assert not runs.repair(run_id).repaired
    assert runs.rollback(run_id, 1).ok
    assert runs.brief(run_id, max_tokens=500).context_brief
    assert runs.fork(run_id, new_run_id=f"{run_id}-fork").run_id == f"{run_id}-fork"
    assert run_id in list(client.every(runs.list))
    return run_id


_MOMENT = "2026-01-31T09:30:00Z"


def _ledger(client: Any, run_id: str, folder: Path, mark: str) -> None:
    ledger = client.ledger
    ledger.log(run_id, "MODEL_ACTION", payload={"action": {"do": "think"}})
    events = ledger.read(run_id).items
    assert len(list(ledger.follow(run_id, after=0, seconds=0))) == len(events)
    made = ledger.milestone(run_id, reason="manual")
    assert made.episode_id in ledger.episodes(run_id).items
    assert ledger.episode(run_id, made.episode_id)["episode_id"] == made.episode_id
    assert ledger.episode_events(run_id, made.episode_id).items


def _batches(client: Any, run_id: str) -> None:
    batches = client.batches
    first = batches.propose([MCR]).batch_id
    assert batches.get(first).batch_id == first
    assert batches.preview(first) is not None
    assert batches.commit(first, reviewer="ann")
    [item, *_] = client.items.search(q="water").items
    assert client.items.get(item.item.memory_id).content == "water is wet"
    assert client.items.history(item.item.memory_id).items
    assert batches.undo(first)
    assert batches.abort(batches.propose_for_run(run_id, [MCR]).batch_id)
    assert batches.issue_token(run_id).token
    assert batches.list(limit=5).items


def _packs(client: Any, run_id: str, folder: Path, mark: str) -> None:
    packs = client.packs
    made = packs.make(run_id)
    path = folder / f"{mark}.zip"
    assert packs.download(made.pack_id, path) == path.stat().st_size > 0
    assert packs.verify(path).run_id == run_id
    assert packs.upload(path, new_run_id=f"{run_id}-again").run_id == f"{run_id}-again"
    assert [each for each in packs.list().items if each.run_id == run_id]


def _memory(client: Any, user: str, folder: Path) -> None:
    first = client.episodes.remember("s1", input="I live in Lisbon.", user_id=user).id
    client.episodes.remember_many(
        [{"session_id": "s1", "input": "I like trains.", "user_id": user}]
    )
    assert client.episodes.get(first, user_id=user).input == "I live in Lisbon."
    assert len(client.episodes.list(user_id=user, session_id="s1", limit=1).items) == 1
    assert client.episodes.messages("s1", user_id=user).items
    assert client.episodes.duplicates(user_id=user).items == []
    assert client.episodes.consolidate() is not None
    assert client.memory.recall("Lisbon", user_id=user).items[0].episode.id == first
    assert client.memory.search("Lisbon", user_id=user).items[0].id == first
    assert client.memory.why(first, user_id=user).kind == "episode"
    client.blocks.put("persona", "helpful", user_id=user)
    assert client.blocks.append("persona", " and kind", user_id=user).version == 2
    assert client.blocks.get("persona", user_id=user).content == "helpful and kind"
    assert len(client.blocks.history("persona", user_id=user).items) == 2
    assert client.blocks.list(user_id=user).items
    made = client.context.assemble(query="Where do I live?", user_id=user, budget=500)
    receipt_id = made.receipt.receipt_id
    assert client.context.receipt(receipt_id, user_id=user).tokens == made.tokens
    assert client.context.receipts(user_id=user).items[0].receipt_id == receipt_id
    assert client.context.verify_receipt(receipt_id, query="Where do I live?", user_id=user).ok
    assert client.context.verify_receipt(receipt_id, query="else", user_id=user).differs
    assert client.blocks.delete("persona", user_id=user, expected_version=2).ok
    path = folder / f"{user}.jsonl"
    assert client.privacy.export(path, user_id=user) > 0
    assert client.privacy.import_(path).records == 0
    assert client.privacy.profile(user_id=user) is not None
    assert user in list(client.every(client.privacy.users))


def _facts(client: Any, user: str) -> None:
    facts = client.facts
    fact = {"subject": "ann", "predicate": "lives in", "object": "Lisbon", "user_id": user}
    [known, other] = facts.add([fact, fact | {"predicate": "likes", "object": "tea"}]).ids
    assert facts.query(subject="ann", user_id=user).items
    assert facts.history("ann", "lives in", user_id=user).rectangles
    assert facts.get(known, user_id=user) is not None
    assert client.memory.recall_facts("Lisbon", user_id=user).items
    assert client.graph.neighbors("ann", user_id=user).edges
    assert client.graph.paths(start="ann", user_id=user) is not None
    assert facts.retract(other, reason="no", user_id=user).ids
    assert facts.declare("lives in", "single").ok
    assert facts.put_alias("annie", "ann", user_id=user).ok
    assert facts.aliases(user_id=user).aliases
    assert facts.delete_alias("annie", user_id=user).ok
    assert facts.proposals(user_id=user) is not None


def _store(client: Any) -> None:
    store = client.store
    assert store.verify().ok
    assert store.check().ok
    assert store.stats().position <= store.head().position + 1_000
    assert store.changes(limit=5).items
    [name, *_] = store.names("log", limit=1).items
    assert store.log(name, limit=1).items
    [document, *_] = store.names("document", limit=1).items
    assert store.document(document).name == document
    assert store.document_history(document).items
    assert store.reindex() is not None
    assert store.vectors().waiting >= 0
    assert store.sync_vectors().ok
