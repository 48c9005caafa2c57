"""How often the rules are right, and how often they find what is there.

    python benchmarks/extraction.py [--json] [--errors dev]

Precision is the share of proposed facts that the labels have; recall the share of labelled
facts that were proposed. A fact counts when subject, predicate and object are the same after
case, spaces and articles, and when it is open or closed as the label says; where the label
has days, they must be the same. `held_out` was written before the rules and not used for them.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pagefile.memory.extraction.candidate import Candidate
from pagefile.memory.extraction.rules import RuleExtractor

LABELLED = Path(__file__).parent.parent / "tests/memory/labelled"
SPLITS = ("dev", "held_out")
#: When every labelled sentence was said: a Wednesday.
SAID_AT = datetime(2024, 6, 12, 10, 0, tzinfo=UTC)

Key = tuple[str, str, str, bool]


@dataclass(frozen=True)
class Said:
    """An exchange that has only an input."""

    input: str
    output: str = ""
    occurred_at: datetime = SAID_AT
    speaker: str | None = None
    user_id: str | None = None


@dataclass
class Score:
    """Facts proposed and rightly so, and facts that were there to be found."""

    right: int = 0
    proposed: int = 0
    labelled: int = 0
    sentences: int = 0
    wrong: list[str] = field(default_factory=list)

    @property
    def precision(self) -> float:
        return self.right / self.proposed if self.proposed else 1.0

    @property
    def recall(self) -> float:
        return self.right / self.labelled if self.labelled else 1.0

    def __iadd__(self, other: Score) -> Score:
        self.right += other.right
        self.proposed += other.proposed
        self.labelled += other.labelled
        self.sentences += other.sentences
        self.wrong += other.wrong
        return self


def rows_of(split: str) -> list[dict[str, Any]]:
    """The labelled sentences of a split."""
    with (LABELLED / f"{split}.jsonl").open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def score_of(rows: Iterable[dict[str, Any]]) -> dict[str, Score]:
    """The score of each family of sentences."""
    extractor = RuleExtractor()
    scores: dict[str, Score] = defaultdict(Score)
    for row in rows:
        scores[row["family"]] += _score(row, extractor.extract(Said(row["sentence"])))
    return dict(scores)


def total(scores: Iterable[Score]) -> Score:
    """All of them together."""
    everything = Score()
    for score in scores:
        everything += score
    return everything


def _score(row: dict[str, Any], candidates: Sequence[Candidate]) -> Score:
    labels = {_label_key(label): label for label in row["expect"]}
    score = Score(proposed=len(candidates), labelled=len(labels), sentences=1)
    seen: set[Key] = set()
    for candidate in candidates:
        key = _key(candidate)
        label = labels.get(key)
        if label is not None and key not in seen and _same_days(candidate, label):
            score.right += 1
            seen.add(key)
        else:
            score.wrong.append(f"wrong   {_line(candidate)}   in {row['sentence']!r}")
    for key in labels.keys() - seen:
        score.wrong.append(f"missing {' | '.join(key[:3])}   in {row['sentence']!r}")
    return score


def _key(candidate: Candidate) -> Key:
    closed = candidate.valid_until is not None
    return (*map(_plain, (candidate.subject, candidate.predicate, candidate.object)), closed)  # type: ignore[return-value]


def _label_key(label: dict[str, str]) -> Key:
    subject, predicate, thing = label["subject"], label["predicate"], label["object"]
    return _plain(subject), _plain(predicate), _plain(thing), "until" in label


def _same_days(candidate: Candidate, label: dict[str, str]) -> bool:
    days = ((candidate.valid_from, "from"), (candidate.valid_until, "until"))
    return all(
        f"{moment:%Y-%m-%d}" == label.get(name) if moment else name not in label
        for moment, name in days
    )


def _plain(text: str) -> str:
    return re.sub(r"^(?:the|an?) ", "", " ".join(text.casefold().split()).strip(" ."))


def _line(candidate: Candidate) -> str:
    window = (
        f" [{candidate.valid_from}, {candidate.valid_until})"
        if candidate.valid_from or candidate.valid_until
        else ""
    )
    return f"{candidate.subject} | {candidate.predicate} | {candidate.object}{window}"


def throughput(rows: Sequence[dict[str, Any]], seconds: float = 1.0) -> float:
    """Sentences per second of CPU."""
    extractor = RuleExtractor()
    said = [Said(row["sentence"]) for row in rows]
    done, start = 0, time.process_time()
    while (spent := time.process_time() - start) < seconds:
        for exchange in said:
            extractor.extract(exchange)
        done += len(said)
    return done / spent


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    parser.add_argument("--errors", choices=SPLITS, help="list what is wrong or missing in a split")
    chosen = parser.parse_args(arguments)
    scores = {split: score_of(rows_of(split)) for split in SPLITS}
    rate = throughput([row for split in SPLITS for row in rows_of(split)])
    if chosen.json:
        print(json.dumps(_figures(scores, rate), indent=2))
        return 0
    for split in SPLITS:
        print(f"{split:10} {'sentences':>9} {'facts':>6} {'precision':>10} {'recall':>7}")
        for family, score in [
            *sorted(scores[split].items()),
            ("all", total(scores[split].values())),
        ]:
            print(
                f"  {family:10}{score.sentences:7} {score.labelled:6} "
                f"{score.precision:10.3f} {score.recall:7.3f}"
            )
    print(f"\n{rate:,.0f} sentences per CPU second")
    if chosen.errors:
        print("\n".join(total(scores[chosen.errors].values()).wrong))
    return 0


def _figures(scores: dict[str, dict[str, Score]], rate: float) -> dict[str, Any]:
    def row(score: Score) -> dict[str, float]:
        return {
            "sentences": score.sentences,
            "facts": score.labelled,
            "precision": round(score.precision, 4),
            "recall": round(score.recall, 4),
        }

    splits = {
        split: {
            "all": row(total(families.values())),
            **{name: row(s) for name, s in sorted(families.items())},
        }
        for split, families in scores.items()
    }
    return {"splits": splits, "sentences_per_cpu_second": round(rate)}


if __name__ == "__main__":
    sys.exit(main())
