"""How much of what answers a question recall finds, on conversations with known answers.

    python benchmarks/recall.py --data PATH [--json] [--embedder bundled|none] [--no-pooled]
                                [--no-rerank] [--no-ablate] [--cache FILE] [--quick]

The data is a list of conversations in the form of LoCoMo; it is not part of the
project. One memory for each turn, with its speaker, its session and the session's
date; the question as it stands. No language model takes part, and two runs give
the same figures. Each conversation is searched alone, then all of them as one
user's memory; alone also with the reranker, and without each thing in turn. What
takes long can be left out; where it is under way is told on stderr. Questions
whose evidence is missing or malformed are left out, and counted.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import apsw
import msgspec
import numpy as np
from rich.console import Console
from rich.table import Table

from pagefile.recall.embed.bundled import BundledEmbedder
from pagefile.recall.embed.embedder import Floats
from pagefile.recall.embed.reranker import BundledReranker, reranked
from pagefile.recall.hit import Weights
from pagefile.recall.partition import PartitionIndex
from pagefile.recall.records import IndexEntry, entry_of, told
from pagefile.recall.text.analysis import STOP_WORDS, words
from pagefile.store.codec.sort_key import microseconds

_CATEGORIES = {1: "multi-hop", 2: "temporal", 3: "open-domain", 4: "single-hop"}
#: A first answer below this rank counts as none for MRR.
_DEPTH = 100
_FUSED = 60
#: recall@10, recall@5 and all@10 of the issue, each conversation alone.
_TARGETS = {"recall": (82.0, 73.0, 76.0), "recall, no embedder": (76.0, 68.0, 70.0)}
_MOST_LOST_POOLED = 3.0


@dataclass(frozen=True)
class Turn:
    key: str
    text: str
    caption: str
    speaker: str
    session: str
    time_us: int

    @property
    def whole(self) -> str:
        """With who said it, for everybody who reads text only."""
        return told(self.text, self.speaker, self.caption)


@dataclass(frozen=True)
class Asked:
    text: str
    category: int
    evidence: frozenset[str]


@dataclass
class Talk:
    """Turns that are searched together, and what is asked about them."""

    turns: list[Turn]
    asked: list[Asked]
    index: PartitionIndex = field(default_factory=PartitionIndex)
    bare: PartitionIndex = field(default_factory=PartitionIndex)


def read(path: Path) -> tuple[list[Talk], int]:
    """The conversations, and how many questions were left out."""
    talks, skipped = [], 0
    for sample in json.loads(path.read_text()):
        name, talk = sample["sample_id"], sample["conversation"]
        turns = [
            Turn(
                f"{name}/{turn['dia_id']}",
                turn["text"],
                turn.get("blip_caption") or "",
                turn["speaker"],
                f"{name}/{session}",
                _moment(talk[f"{session}_date_time"]),
            )
            for session in sorted(filter(_SESSION.fullmatch, talk), key=lambda s: int(s[8:]))
            for turn in talk[session]
        ]
        known = {turn.key for turn in turns}
        asked = []
        for qa in sample["qa"]:
            if qa["category"] not in _CATEGORIES:
                continue
            evidence = frozenset(f"{name}/{turn}" for turn in qa.get("evidence") or ())
            if evidence and evidence <= known:
                asked.append(Asked(qa["question"], qa["category"], evidence))
            else:
                skipped += 1
        talks.append(Talk(turns, asked))
    return talks, skipped


_SESSION = re.compile(r"session_\d+")


def _moment(text: str) -> int:
    return microseconds(datetime.strptime(text, "%I:%M %p on %d %B, %Y").replace(tzinfo=UTC))


class Remembering:
    """An embedder that embeds no text twice, not even in the next run when given a file."""

    def __init__(self, embedder: BundledEmbedder, file: Path | None) -> None:
        self.name, self.dimensions = embedder.name, embedder.dimensions
        self._embedder, self._file = embedder, file
        self._known: dict[str, Floats] = {}
        self.seconds, self.embedded = 0.0, 0
        if file is not None and file.exists():
            with np.load(file) as kept:
                self._known = dict(zip(kept["digests"].tolist(), kept["vectors"], strict=True))

    def embed(self, text: str) -> Floats:
        digest = hashlib.sha256(f"{self.name}\0{text}".encode()).hexdigest()
        if digest not in self._known:
            start = time.perf_counter()
            self._known[digest] = self._embedder.embed(text)
            self.seconds += time.perf_counter() - start
            self.embedded += 1
        return self._known[digest]

    def embed_batch(self, texts: Sequence[str]) -> Floats:
        return np.array([self.embed(text) for text in texts])

    def save(self) -> None:
        if self._file is not None and self.embedded:
            vectors = np.array(list(self._known.values()))
            np.savez(self._file, digests=np.array(list(self._known)), vectors=vectors)


#: From a talk and a question to the keys found, best first.
Subject = Callable[[Talk, str], list[str]]


def ours(weights: Weights, embedder: Remembering | None) -> Subject:
    def search(talk: Talk, query: str) -> list[str]:
        index = talk.bare if embedder is None else talk.index
        return [
            hit.key for hit in index.search(query, vector=embedder, limit=_DEPTH, weights=weights)
        ]

    return search


def with_reranker(embedder: Remembering | None) -> Subject:
    reranker = BundledReranker()

    def search(talk: Talk, query: str) -> list[str]:
        told = {turn.key: turn.whole for turn in talk.turns}
        hits = talk.index.search(query, vector=embedder, limit=_DEPTH)
        again = reranked(query, hits, lambda h: told[h.key], reranker)
        return [hit.key for hit in again]

    return search


def substrings(talk: Talk, query: str) -> list[str]:
    """The usual small store: how many words of the question a text holds, then the newer."""
    wanted = {word for word in words(query) if word not in STOP_WORDS}
    scored = []
    for place, turn in enumerate(talk.turns):
        text = turn.whole.lower()
        if held := sum(word in text for word in wanted):
            scored.append((-held, -turn.time_us, -place, turn.key))
    return [key for *_, key in sorted(scored)[:_DEPTH]]


class Fts5:
    """BM25 of SQLite, with its stemmer, any of the words."""

    def __init__(self) -> None:
        self._opened: dict[int, apsw.Connection] = {}

    def __call__(self, talk: Talk, query: str) -> list[str]:
        database = self._opened.get(id(talk)) or self._open(talk)
        wanted = [word for word in words(query) if word not in STOP_WORDS]
        asked = " OR ".join('"' + word.replace('"', '""') + '"' for word in wanted)
        if not asked:
            return []
        found = database.execute(
            "SELECT key FROM turns WHERE turns MATCH ? ORDER BY rank, rowid LIMIT ?",
            (asked, _DEPTH),
        )
        return [str(key) for (key,) in found]

    def _open(self, talk: Talk) -> apsw.Connection:
        database = self._opened[id(talk)] = apsw.Connection(":memory:")
        database.execute(
            "CREATE VIRTUAL TABLE turns USING fts5(key UNINDEXED, text, tokenize='porter')"
        )
        rows = [(turn.key, turn.whole) for turn in talk.turns]
        database.executemany("INSERT INTO turns VALUES (?, ?)", rows)
        return database


def by_rank(first: Subject, second: Subject) -> Subject:
    """The usual fusion of two rankings by rank."""

    def search(talk: Talk, query: str) -> list[str]:
        scores: dict[str, float] = {}
        for subject in (first, second):
            for rank, key in enumerate(subject(talk, query), 1):
                scores[key] = scores.get(key, 0) + 1 / (_FUSED + rank)
        return sorted(scores, key=lambda key: (-scores[key], key))

    return search


def ablations(embedder: Remembering | None) -> dict[str, Subject]:
    """The default, each time without one thing."""
    without: Mapping[str, Mapping[str, float]] = {
        "speakers": {"other_speaker": 1, "second_speaker": 1},
        "borrowing": {"before": 0, "after": 0, "before2": 0, "after2": 0, "answer": 0},
        "the window": {"window": 0},
        "borrowing and the window": {
            "before": 0, "after": 0, "before2": 0, "after2": 0, "answer": 0, "window": 0,
        },
        "the session": {"session": 0},
        "time words": {"time": 0},
        "lowering questions": {"asks": 1},
        "the answer's bonus": {"answer": 0},
    }  # fmt: skip
    if embedder is not None:
        without = {
            **without,
            "the first person": {"first_person": 0},
            "the lexical arm": {"alpha": 1},
        }
    return {
        f"without {what}": ours(msgspec.structs.replace(Weights(), **changed), embedder)
        for what, changed in without.items()
    }


@dataclass(frozen=True)
class Row:
    """The figures of one subject, in per cent."""

    store: str
    subject: str
    category: str
    questions: int
    recall_at_5: float
    recall_at_10: float
    hit_at_10: float
    all_at_10: float
    mrr: float
    ms: float
    verdict: str = ""


def measured(store: str, name: str, subject: Subject, talks: Sequence[Talk]) -> Iterator[Row]:
    """One row over all categories, then one for each."""
    began = time.perf_counter()
    print(f"{store}: {name} …", end="", file=sys.stderr, flush=True)
    figures: dict[int, list[tuple[float, ...]]] = {}
    for talk in talks:
        for asked in talk.asked:
            start = time.perf_counter()
            found = subject(talk, asked.text)
            ms = (time.perf_counter() - start) * 1e3
            ranks = [i for i, key in enumerate(found) if key in asked.evidence]
            at_5, at_10 = (sum(rank < k for rank in ranks) / len(asked.evidence) for k in (5, 10))
            figures.setdefault(asked.category, []).append(
                (at_5, at_10, at_10 > 0, at_10 == 1, 1 / (ranks[0] + 1) if ranks else 0, ms / 100)
            )
    print(f" {time.perf_counter() - began:.1f} s", file=sys.stderr, flush=True)
    everything = [figure for category in sorted(figures) for figure in figures[category]]
    for category, some in (("1-4", everything), *sorted((str(k), v) for k, v in figures.items())):
        means = (100 * np.mean(some, axis=0)).tolist()
        yield Row(store, name, category, len(some), *means)


def judged(rows: Sequence[Row]) -> list[Row]:
    """The rows, with whether they met the targets."""
    overall = {(row.store, row.subject): row for row in rows if row.category == "1-4"}
    done = []
    for row in rows:
        verdict = ""
        if row.category == "1-4" and row.subject in _TARGETS:
            figures = (row.recall_at_10, row.recall_at_5, row.all_at_10)
            if row.store == "alone":
                met = all(f >= t for f, t in zip(figures, _TARGETS[row.subject], strict=True))
            else:
                alone = overall["alone", row.subject].recall_at_10
                met = alone - row.recall_at_10 <= _MOST_LOST_POOLED
            verdict = "met" if met else "missed"
        done.append(Row(**{**asdict(row), "verdict": verdict}))
    return done


def build(talks: Sequence[Talk], embedder: Remembering | None) -> None:
    """Index every turn, with its vector and without."""
    for talk in talks:
        entries = [_entry(turn) for turn in talk.turns]
        talk.bare.add_many(entries)
        if embedder is not None:
            talk.index.add_many(_entry(turn, embedder.embed(turn.whole)) for turn in talk.turns)


def _entry(turn: Turn, vector: Floats | None = None) -> IndexEntry:
    return entry_of(
        key=turn.key, kind="episode", text=turn.text, caption=turn.caption, speaker=turn.speaker,
        session=turn.session, time_us=turn.time_us, vector=vector,
    )  # fmt: skip


def subjects(
    asked: argparse.Namespace, embedder: Remembering | None, *, is_pooled: bool
) -> dict[str, Subject]:
    """What is compared; the reranker and the ablation only where each conversation is alone."""
    lexical, fts5 = ours(Weights.plain(0), None), Fts5()
    chosen: dict[str, Subject] = {"substring and recency": substrings, "FTS5 BM25 alone": fts5}
    chosen["lexical arm alone"] = lexical
    if embedder is not None:
        vector = ours(Weights.plain(1), embedder)
        chosen["vector arm alone"] = vector
        chosen["FTS5 and vectors by rank"] = by_rank(fts5, vector)
    chosen["recall, no embedder"] = ours(Weights(), None)
    if embedder is not None:
        chosen["recall"] = ours(Weights(), embedder)
        if asked.rerank and not is_pooled:
            chosen["recall, reranked"] = with_reranker(embedder)
    if asked.ablate and not is_pooled:
        for name, subject in ablations(None).items():
            chosen[f"recall, no embedder, {name}"] = subject
        if embedder is not None:
            for name, subject in ablations(embedder).items():
                chosen[f"recall, {name}"] = subject
    return chosen


def main() -> int:
    asked = _arguments()
    embedder = None if asked.embedder == "none" else Remembering(BundledEmbedder(), asked.cache)
    talks, skipped = read(asked.data)
    if asked.quick:
        talks = talks[:1]
    stores = {"alone": talks}
    if asked.pooled:
        turns = [turn for talk in talks for turn in talk.turns]
        stores["pooled"] = [Talk(turns, [a for talk in talks for a in talk.asked])]
    rows: list[Row] = []
    for store, some in stores.items():
        print(f"{store}: indexing …", file=sys.stderr, flush=True)
        build(some, embedder)
        chosen = subjects(asked, embedder, is_pooled=store == "pooled")
        for name, subject in chosen.items():
            rows += measured(store, name, subject, some)
    if embedder is not None:
        embedder.save()
    rows = judged(rows)
    notes = [
        f"{sum(len(t.turns) for t in talks)} turns of {len(talks)} conversations, "
        f"{skipped} questions left out for their evidence",
        f"Python {platform.python_version()}, {os.cpu_count()} CPUs; "
        "ms for each question hold its embedding unless it was cached",
    ]
    if asked.json:
        print(json.dumps({"notes": notes, "rows": [asdict(row) for row in rows]}))
    else:
        _print(rows, notes)
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="How much of what answers a question is found.")
    parser.add_argument("--data", type=Path, required=True, help="conversations with questions")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--embedder", choices=("bundled", "none"), default="bundled")
    for name, what in (
        ("pooled", "all conversations as one"),
        ("rerank", "the reranker, which is slow"),
        ("ablate", "each thing left out in turn"),
    ):
        parser.add_argument(
            f"--{name}", action=argparse.BooleanOptionalAction, default=True, help=what
        )
    parser.add_argument("--cache", type=Path, help="a file (.npz) that keeps vectors between runs")
    parser.add_argument("--quick", action="store_true", help="the first conversation only")
    return parser.parse_args()


def _print(rows: Sequence[Row], notes: Sequence[str]) -> None:
    table = Table(title="Pagefile recall, per cent; R@10 by category")
    names = ("store", "subject", "R@10", "R@5", "hit@10", "all@10", "MRR", "ms")
    for name in (*names, *_CATEGORIES.values(), "this run"):
        table.add_column(name, no_wrap=True, justify="left" if name in names[:2] else "right")
    by_category = {(row.store, row.subject, row.category): row.recall_at_10 for row in rows}
    for row in rows:
        if row.category != "1-4":
            continue
        figures = (row.recall_at_10, row.recall_at_5, row.hit_at_10, row.all_at_10, row.mrr)
        each = (by_category.get((row.store, row.subject, str(c)), 0.0) for c in _CATEGORIES)
        shown = [f"{figure:.1f}" for figure in (*figures, row.ms, *each)]
        table.add_row(row.store, row.subject, *shown, row.verdict)
    console: Any = Console(width=None if Console().is_terminal else 170)
    console.print(table)
    for note in notes:
        console.print(note, markup=False, highlight=False, soft_wrap=True)


if __name__ == "__main__":
    raise SystemExit(main())
