"""The pure index of recall: each arm, structure, time words, fusion, explanations."""

from __future__ import annotations

import math
import random
import string
import threading
import time
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pagefile.errors import Invalid
from pagefile.recall import scorer
from pagefile.recall.embed.embedder import packed, packed_units, unit_rows, unit_vector, unpacked
from pagefile.recall.hit import Hit, Weights, lifted
from pagefile.recall.partition import PartitionIndex
from pagefile.recall.records import IndexEntry, entry_of, gone, speaker_in, speaker_of
from pagefile.recall.scorer import timeliness
from pagefile.recall.text.analysis import terms
from pagefile.recall.text.analysis import words as words_of
from pagefile.recall.text.inverted_index import LexicalIndex
from pagefile.recall.text.question import Question, Speakers, question_of
from pagefile.recall.text.time_words import time_words, without
from pagefile.recall.vectors.embedding import embedding_of
from pagefile.recall.vectors.vector_index import VectorIndex
from pagefile.store.codec.sort_key import microseconds, moment

_DAY = 86_400 * 1_000_000
_NOON = microseconds(datetime(2023, 5, 8, 12, tzinfo=UTC))
_ALPHABET = [
    "amber",
    "basalt",
    "cedar",
    "delta",
    "ember",
    "fjord",
    "garnet",
    "harbor",
    "island",
    "juniper",
]


def turn(key: str, text: str, **more: Any) -> IndexEntry:
    more = {"speaker": "Ann", "session": "s1", "time_us": _NOON, **more}
    return entry_of(key=key, kind=more.pop("kind", "episode"), text=text, **more)


def filled(*entries: IndexEntry) -> PartitionIndex:
    index = PartitionIndex()
    index.add_many(entries)
    return index


def keys(hits: Sequence[Hit]) -> list[str]:
    return [hit.key for hit in hits]


def directions(count: int, seed: int, width: int = 32) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Vectors with some structure in them, as those of texts have."""
    chance = np.random.default_rng(seed)
    rough = chance.standard_normal((count, 8)) @ np.random.default_rng(7).standard_normal(
        (8, width)
    )
    return unit_rows(rough + 0.5 * chance.standard_normal((count, width)), count)


# Analysis


@given(st.text(st.sampled_from(string.printable + "''’é_\x00\x1f"), max_size=40))
@settings(max_examples=500, deadline=None)
def test_plain_text_has_the_words_that_it_would_have_among_others(text: str) -> None:
    """Text of ASCII alone is read in another way; a foreign word keeps that from being taken."""
    assert [*words_of(text), "é"] == words_of(f"{text} é")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The running dogs ran", ["run", "dog", "run"]),
        ("Ann's kids didn't go", ["ann", "child", "go"]),
        ("she won; we won't", ["win"]),
        ("rock’n’roll", ["rocknrol"]),
        ("1,000 miles in 2023", ["1000", "mile", "2023"]),
        ("ＦＵＬＬ Straße", ["full", "strass"]),
        ("snake_case", ["snake", "case"]),
        ("東京タワー", ["東京", "京タ", "タワ", "ワー"]),
        ("AI", ["ai"]),
        ("😀 … ¿?", []),
        ("", []),
    ],
)
def test_text_becomes_the_terms_that_are_compared(text: str, expected: list[str]) -> None:
    assert terms(text) == expected


def test_analysis_is_the_same_for_composed_and_decomposed_letters() -> None:
    assert terms("caf\u00e9") == terms("cafe\u0301")


# The lexical arm


def brute_force_bm25(
    documents: list[list[str]], asked: list[str], k1: float, b: float
) -> list[float]:
    mean = max(1.0, sum(map(len, documents)) / len(documents))
    scores = []
    for document in documents:
        score, counts = 0.0, Counter(document)
        for term in dict.fromkeys(asked):
            holding = sum(term in other for other in documents)
            rarity = math.log(1 + (len(documents) - holding + 0.5) / (holding + 0.5))
            times = counts[term]
            if times:
                score += (
                    rarity * times * (k1 + 1) / (times + k1 * (1 - b + b * len(document) / mean))
                )
        scores.append(score)
    return scores


_documents = st.lists(st.lists(st.sampled_from(_ALPHABET), max_size=12), min_size=1, max_size=30)


@given(_documents, st.lists(st.sampled_from([*_ALPHABET, "missing"]), max_size=5))
def test_bm25_equals_its_definition(documents: list[list[str]], asked: list[str]) -> None:
    index = LexicalIndex()
    index.add_many(documents)

    found = index.bm25(index.match(asked), 0.9, 0.4)

    assert found == pytest.approx(brute_force_bm25(documents, asked, 0.9, 0.4), rel=1e-4)


@given(_documents, st.sets(st.integers(0, 29)), st.lists(st.sampled_from(_ALPHABET), max_size=4))
def test_removed_documents_count_as_if_they_had_never_been(
    documents: list[list[str]], removed: set[int], asked: list[str]
) -> None:
    index = LexicalIndex()
    for document in documents:
        index.add(document)
    for row in removed & set(range(len(documents))):
        index.kill(row)
    rows = np.array([row for row in range(len(documents)) if row not in removed], np.int64)
    anew = LexicalIndex()
    anew.add_many(documents[row] for row in rows)

    expected = anew.bm25(anew.match(asked), 0.9, 0.4).tolist()
    compacted = index.compacted(rows)

    assert index.bm25(index.match(asked), 0.9, 0.4)[rows].tolist() == expected
    assert compacted.bm25(compacted.match(asked), 0.9, 0.4).tolist() == expected


def test_what_was_sorted_in_and_what_waits_in_the_tail_score_alike() -> None:
    """Enough documents for several merges, and some in the tail."""
    chance = random.Random(1)
    documents = [chance.choices(_ALPHABET, k=chance.randrange(12)) for _ in range(9_000)]
    slowly, at_once = LexicalIndex(), LexicalIndex()
    for document in documents:
        slowly.add(document)
    at_once.add_many(documents)

    asked = _ALPHABET[:3]

    assert np.array_equal(
        slowly.bm25(slowly.match(asked), 0.9, 0.4), at_once.bm25(at_once.match(asked), 0.9, 0.4)
    )


# The vector arm


def test_few_and_many_vectors_are_ranked_alike() -> None:
    """Kept whole, in bytes behind faiss, and in bytes alone."""
    vectors = directions(30_000, 1, 128)
    whole = VectorIndex(dense_rows=50_000)
    quantised, bytes_only = VectorIndex(1_000), VectorIndex(1_000, quantised=False)
    for index in (whole, quantised, bytes_only):
        index.add_many(vectors, np.ones(len(vectors), np.bool_))

    agreeing: dict[str, list[int]] = {"quantised": [], "bytes": []}
    for query in directions(40, 2, 128):
        best = {name: _nearest(i, query) for name, i in
                (("whole", whole), ("quantised", quantised), ("bytes", bytes_only))}  # fmt: skip
        for name, shared in agreeing.items():
            shared.append(len(best["whole"] & best[name]))

    assert np.mean(agreeing["quantised"]) >= 9.8
    assert np.mean(agreeing["bytes"]) >= 9.8
    assert quantised.size_bytes < whole.size_bytes / 2


def _nearest(index: VectorIndex, query: Any, allowed: Any = None) -> set[int]:
    similar = index.nearest(query, allowed, 0.5)
    return set(similar.rows[np.argsort(-similar.scores)[:10]].tolist())


def test_a_filter_on_many_vectors_leaves_the_nearest_of_what_it_allows() -> None:
    vectors = directions(60_000, 1, 128)
    index = VectorIndex(1_000)
    index.add_many(vectors, np.ones(len(vectors), np.bool_))
    allowed = np.arange(60_000) % 2 == 0
    query = directions(1, 2, 128)[0]

    found = _nearest(index, query, allowed)

    exact = [row for row in np.argsort(-(vectors @ query)) if allowed[row]][:10]
    assert len(found & set(exact)) >= 9
    assert all(row % 2 == 0 for row in found)


@pytest.mark.parametrize("dense_rows", [10_000, 10])
def test_a_removed_vector_is_not_found(dense_rows: int) -> None:
    vectors = directions(200, 3)
    index = VectorIndex(dense_rows)
    index.add_many(vectors, np.ones(200, np.bool_))
    index.kill(17)
    rows = np.array([row for row in range(200) if row != 17], np.int64)

    assert 17 not in index.nearest(vectors[17], None, 0.5).rows
    assert len(index) == 199
    assert len(index.compacted(rows).nearest(vectors[17], None, 0.5).rows) == 199


@pytest.mark.parametrize(
    "bad",
    [[], [0.0, 0.0], [1.0, math.nan], [1.0, math.inf], [[1.0]], "text", None, [1.0, "x"]],
)
def test_a_vector_without_direction_or_shape_is_refused(bad: Any) -> None:
    with pytest.raises(Invalid):
        unit_vector(bad)


@pytest.mark.parametrize(
    "huge", [[3e300, 4e300], (3e300, 4e300), np.array([3e30, 4e30], np.float32)], ids=str
)
def test_a_vector_keeps_its_direction_when_it_is_packed_even_if_it_is_huge(huge: Any) -> None:
    vector = unit_vector(huge)

    assert vector.tolist() == pytest.approx([0.6, 0.8])
    assert unpacked(packed(vector)) == pytest.approx(vector, abs=1e-3)


@pytest.mark.parametrize("odd", [None, (3e300, 4e300, *[0.0] * 30), np.full(32, 2e30, np.float32)])
def test_vectors_are_packed_together_as_they_are_alone(odd: Any) -> None:
    rows = [directions(9, seed)[seed] * np.float32(seed + 0.5) for seed in range(9)]
    given = [embedding_of(row) for row in (*rows, *([] if odd is None else [odd]))]

    assert packed_units(given, 32) == [packed(unit_vector(each, 32)) for each in given]


@pytest.mark.parametrize("bad", [np.ones(31, np.float32), np.zeros(32, np.float32)])
def test_one_vector_among_many_that_does_not_fit_is_refused(bad: Any) -> None:
    good = embedding_of(np.ones(32, np.float32))

    with pytest.raises(Invalid):
        packed_units([good, embedding_of(bad), good], 32)


def test_a_vector_of_another_length_is_refused_and_nothing_changes() -> None:
    index = filled(turn("a", "one", vector=unit_vector([1, 0])))

    with pytest.raises(Invalid):
        index.add(turn("a", "two", vector=unit_vector([1, 0, 0])))
    with pytest.raises(Invalid):
        index.search("one", vector=lambda _: [1.0, 0.0, 0.0])

    assert keys(index.search("one")) == ["a"]


# Time words: a Wednesday, with memories since December 2022


_NOW = microseconds(datetime(2024, 1, 10, 12, tzinfo=UTC))
_OLDEST = microseconds(datetime(2022, 12, 1, tzinfo=UTC))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("what did I do yesterday?", ["2024-01-09 2024-01-10"]),
        ("the day before yesterday", ["2024-01-08 2024-01-09"]),
        ("today", ["2024-01-10 2024-01-11"]),
        ("last night", ["2024-01-09 2024-01-10"]),
        ("last week", ["2024-01-01 2024-01-08"]),
        ("this week", ["2024-01-08 2024-01-15"]),
        ("last weekend", ["2024-01-05 2024-01-08"]),
        ("last month", ["2023-12-01 2024-01-01"]),
        ("in the past month", ["2023-12-10 2024-01-11"]),
        ("last year", ["2023-01-01 2024-01-01"]),
        ("in the last 3 days", ["2024-01-07 2024-01-11"]),
        ("two months ago", ["2023-10-26 2023-11-26"]),
        ("a couple of weeks ago", ["2023-12-24 2023-12-31"]),
        ("three days ago", ["2024-01-07 2024-01-08"]),
        ("on Monday", ["2024-01-08 2024-01-09"]),
        ("last Wednesday", ["2024-01-03 2024-01-04"]),
        ("in May 2023", ["2023-05-01 2023-06-01"]),
        ("in June", [f"{y}-06-01 {y}-07-01" for y in (2022, 2023, 2024)]),
        ("last June", ["2023-06-01 2023-07-01"]),
        ("on 7 May", [f"{y}-05-07 {y}-05-08" for y in (2022, 2023, 2024)]),
        ("October 13, 2023", ["2023-10-13 2023-10-14"]),
        ("the 3rd of June 2023", ["2023-06-03 2023-06-04"]),
        ("on 2023-05-07", ["2023-05-07 2023-05-08"]),
        ("29 February", ["2024-02-29 2024-03-01"]),
        ("in 2022", ["2022-01-01 2023-01-01"]),
        ("Q3 2023", ["2023-07-01 2023-10-01"]),
        ("last summer", ["2023-06-01 2023-09-01"]),
        ("winter 2023", ["2022-12-01 2023-03-01", "2023-12-01 2024-03-01"]),
        ("christmas 2023", ["2023-12-21 2023-12-30"]),
        ("between May and July 2023", ["2023-05-01 2023-08-01"]),
        ("since May 2023", ["2023-05-01 9999-12-30"]),
        ("before June 2023", ["0001-01-02 2023-06-01"]),
        ("the week before August 3, 2023", ["2023-07-27 2023-08-03"]),
        ("since March", ["2023-03-01 9999-12-30"]),
        ("since march", ["2023-03-01 9999-12-30"]),
        ("until March", ["0001-01-02 2023-03-01"]),
        ("after May 2023", ["2023-06-01 9999-12-30"]),
        ("since the summer", ["2023-06-01 9999-12-30"]),
        ("day before yesterday", ["2024-01-08 2024-01-09"]),
        ("the day after tomorrow", ["2024-01-12 2024-01-13"]),
        ("half a year ago", ["2023-06-06 2023-08-18"]),
        ("one and a half years ago", ["2022-06-06 2022-08-18"]),
        ("05/03/2023", ["2023-03-05 2023-03-06", "2023-05-03 2023-05-04"]),
        ("25/03/2023", ["2023-03-25 2023-03-26"]),
        ("03-25-2023", ["2023-03-25 2023-03-26"]),
        ("05/05/2023", ["2023-05-05 2023-05-06"]),
        ("5.3.2023", ["2023-03-05 2023-03-06"]),
        ("2023/05/03", ["2023-05-03 2023-05-04"]),
        ("twenty days ago", ["2023-12-21 2023-12-22"]),
        ("several days ago", ["2024-01-04 2024-01-09"]),
        ("the week before last", ["2023-12-25 2024-01-01"]),
        ("the month after next", ["2024-03-01 2024-04-01"]),
        ("what did I do Monday?", ["2024-01-08 2024-01-09"]),
        ("what do I do every Monday?", []),
        ("you may march on", []),
        ("May I ask?", []),
        ("who is Ann?", []),
        ("999 decades ago", []),
        ("31 June", []),
    ],
)
def test_time_words_mean_these_days(text: str, expected: list[str]) -> None:
    found = time_words(text, _NOW, _OLDEST)

    spans = [f"{moment(a).date()} {moment(b).date()}" for words in found for a, b in words.spans]
    if text == "31 June":
        expected = [f"{y}-06-01 {y}-07-01" for y in (2022, 2023, 2024)]
    assert spans == expected


def test_a_question_can_be_read_without_its_time_words() -> None:
    asked = "What did Ann paint in May 2023 at home?"

    assert without(asked, time_words(asked, _NOW)) == "What did Ann paint at home?"


@pytest.mark.parametrize("words", ["May ", "yesterday ", "in the ", "from May to "])
def test_reading_a_question_takes_time_in_step_with_its_length(words: str) -> None:
    def seconds(length: int) -> float:
        text = words * (length // len(words)) + "x in May 2023"
        best = math.inf
        for _ in range(3):
            began = time.process_time()
            without(text, time_words(text, 1_700_000_000_000_000))
            best = min(best, time.process_time() - began)
        return best

    # Ten times as long; in step with the square it would be a hundred times.
    assert seconds(60_000) < 30 * seconds(6_000) + 0.05


@pytest.mark.parametrize(
    "odd", ["fıve days ago", "last wınter", "in ſeptember 2023", "chriſtmas 2022", "ſix weeKs ago"]
)
def test_letters_that_only_pass_for_others_are_no_time_words(odd: str) -> None:
    for words in time_words(f"What did I do {odd}?", _NOW, _OLDEST):
        assert words.spans


@given(st.text(max_size=200))
def test_no_text_is_too_odd_to_be_read_for_time_words(text: str) -> None:
    for words in time_words(f"last {text} 2023", _NOW, _OLDEST):
        assert all(start < end for start, end in words.spans)


def test_what_happened_in_the_time_asked_about_comes_first() -> None:
    spring = microseconds(datetime(2023, 5, 20, tzinfo=UTC))
    index = filled(
        turn("winter", "We hiked up the hill.", session="a", time_us=spring - 150 * _DAY),
        turn("spring", "We hiked up the hill.", session="b", time_us=spring),
        turn("autumn", "We hiked up the hill.", session="c", time_us=spring + 150 * _DAY),
    )

    hits = index.search("Who hiked in May 2023?")

    assert hits[0].key == "spring"
    assert [b.reason for hit in hits for b in hit.boosts if b.name == "time"] == [
        "it is of 2023-05-20, and “May 2023” is asked about"
    ]


def test_what_lies_before_the_time_asked_about_fades_twice_as_fast_as_what_lies_after() -> None:
    (words,) = time_words("on 8 May 2023", _NOON)
    ((start, end),) = words.spans
    times = np.array([start - 2 * _DAY, end + 2 * _DAY, end + 4 * _DAY], np.int64)

    before, after, later = timeliness(times, [words], 2.0)

    assert 0 < before < after < 1
    assert before == pytest.approx(later)


# Questions


def asked(text: str, *speakers: str) -> Question:
    return question_of(text, Speakers([speaker_of(s) for s in speakers]), _NOW)


def test_the_name_of_a_speaker_leaves_the_text_and_becomes_whom_is_meant() -> None:
    question = asked("What did Caroline's sister paint?", "Caroline", "Mel")

    assert question.speakers == ("caroline",)
    assert question.terms == ("sister", "paint")
    assert question.first_person == "What did my sister paint?"


@pytest.mark.parametrize(
    ("text", "speakers", "expected"),
    [
        ("What did Mel say to Caroline?", ["Caroline", "Melanie"], ("melanie", "caroline")),
        ("What did John Smith say?", ["John Smith", "John Doe"], ("john smith",)),
        ("What did Smith say?", ["John Smith", "John Doe"], ("john smith",)),
        ("Will it rain?", ["Will"], ()),
        ("Did Will go?", ["Will"], ("will",)),
        ("What did agent-7 do?", ["agent-7", "agent-8"], ("agent-7",)),
        ("Can you swim?", ["Candice"], ()),
        ("what did i eat?", ["user", "assistant"], ("user",)),
        ("what did you tell me?", ["user", "assistant"], ()),
        ("who said so?", [""], ()),
    ],
)
def test_speakers_are_recognised(text: str, speakers: list[str], expected: tuple[str, ...]) -> None:
    assert asked(text, *speakers).speakers == expected


def test_a_question_that_is_only_a_name_is_about_the_name() -> None:
    index = filled(turn("a", "Bob sails."), turn("b", "I sail.", speaker="Bob"))

    assert "a" in keys(index.search("Bob?"))


def test_the_turn_of_the_one_named_comes_before_the_same_words_of_another() -> None:
    index = filled(
        turn("bob", "I like to sail at sea.", speaker="Bob", session="a", time_us=_NOON + _DAY),
        turn("ann", "I like to sail at sea.", speaker="Ann", session="b"),
    )

    hits = index.search("Where does Ann sail?")

    assert keys(hits) == ["ann", "bob"]
    assert [b.times for b in hits[1].boosts if b.name == "speaker"] == [pytest.approx(0.55)]


def test_a_name_still_counts_as_a_word_where_no_speaker_is_known() -> None:
    index = filled(
        turn("talk", "I sail.", speaker="Ann"),
        turn("fact", "Ann owns a boat", speaker="", session="", kind="fact"),
        turn("other", "Bob owns a boat", speaker="", session="", kind="fact"),
    )

    assert keys(index.search("What boat does Ann own?"))[0] == "fact"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("What allergies do I have?", ()),
        ("Allergies?", ()),
        ("Shopping list", ()),
        ("What did Ann buy?", ("ann",)),
        ("Ann's job?", ("ann",)),
        ("what did bob buy?", ("bob",)),
    ],
)
def test_a_speaker_who_was_only_guessed_is_named_by_a_name(
    text: str, expected: tuple[str, ...]
) -> None:
    guessed = ["ann", "allergies", "shopping list"]
    question = question_of(text, Speakers([*guessed, "bob"], guessed=guessed), _NOW)

    assert question.speakers == expected


def test_what_was_said_by_the_one_named_is_found_where_nothing_else_is_asked() -> None:
    index = filled(
        turn("old", "I live in Rome.", speaker="Joe"),
        turn("new", "It rains.", speaker="Joe", session="s2", time_us=_NOON + _DAY),
        turn("ann", "Joe is kind.", speaker="Ann", session="s3"),
        turn("note", "Joe has a boat.", speaker="", session="s4"),
    )

    assert keys(index.search("What did Joe say?"))[:2] == ["new", "old"]
    assert keys(index.search("Joe")) == ["note", "ann", "new", "old"]
    assert keys(index.search("What did Joe say?", weights=Weights.plain(0))) == ["note"]
    for hit in index.search("What did Joe say?"):
        assert hit.explained() == pytest.approx(hit.score, rel=1e-5)


def test_what_the_one_named_said_is_found_in_a_large_partition(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("pagefile.recall.scorer.WHOLE_ROWS", 4)
    turns = [turn(f"k{n}", f"word{n}", session="", time_us=_NOON + n) for n in range(20)]
    index = filled(*turns, turn("joe", "I live in Rome.", speaker="Joe", session=""))

    assert keys(index.search("What did Joe say?")) == ["joe"]


# Structure


def test_a_short_answer_is_found_by_the_question_before_it() -> None:
    index = filled(
        turn("ask", "Which instrument do you play on the weekend?", speaker="Bob"),
        turn("answer", "Mostly cello!"),
        turn("far", "Nice weather.", session="s2"),
    )

    hits = {hit.key: hit for hit in index.search("Which instrument does Ann play?")}

    assert hits["answer"].score > hits["ask"].score
    assert "far" not in hits
    assert {"window", "neighbours"} <= {boost.name for boost in hits["answer"].boosts}


def test_a_turn_that_only_asks_comes_after_one_that_says_it() -> None:
    index = filled(
        turn("asks", "Is the amber ring in the harbor?", session="a", time_us=_NOON + 1),
        turn("says", "Yes, the amber ring in the harbor.", session="b"),
    )

    assert keys(index.search("amber ring harbor")) == ["says", "asks"]


def test_a_long_turn_borrows_nothing() -> None:
    index = filled(
        turn("ask", "Which instrument do you play?", speaker="Bob"),
        turn("long", "unrelated chatter " * 200),
    )
    weights = Weights(session=0)

    assert "long" not in keys(index.search("Which instrument?", weights=weights))


def test_neighbours_are_those_of_the_same_session_however_sessions_interleave() -> None:
    index = filled(
        turn("a1", "Which instrument do you play?", session="a"),
        turn("b1", "Nice weather today.", session="b"),
        turn("a2", "Cello.", session="a"),
        turn("b2", "Indeed.", session="b"),
    )

    assert set(keys(index.search("instrument"))) == {"a1", "a2"}


_TALK = (
    ("e0", "Do you have any pets?"),
    ("e1", "Yes, a parrot."),
    ("e2", "What is its name?"),
    ("e3", "Kiwi."),
    ("e4", "And where do you live?"),
    ("e5", "In Lisbon, near the river."),
    ("e6", "Nice weather there?"),
)


def talk(*order: int) -> list[IndexEntry]:
    return [turn(*_TALK[n], speaker="", time_us=_NOON + n) for n in order]


def test_neighbours_are_those_in_time_whatever_the_order_of_arrival() -> None:
    asked, noise = "What is the name of the parrot?", turn("x", "Nice", session="other")
    in_order = filled(*talk(*range(7)), noise).search(asked)
    assert keys(in_order)[:3] == ["e1", "e2", "e3"]
    chance = random.Random(7)
    for _ in range(40):
        came = talk(*chance.sample(range(7), 7))
        one_by_one = filled(noise)
        for entry in came:
            one_by_one.add(entry)
        assert one_by_one.search(asked) == filled(*came, noise).search(asked) == in_order


def test_a_turn_that_is_changed_keeps_its_place_among_its_neighbours() -> None:
    index = filled(*talk(*range(7)))
    for n in (3, 6, 0, 3):
        index.search("parrot")
        index.add(talk(n)[0])

    assert index.search("name of the parrot") == filled(*talk(*range(7))).search(
        "name of the parrot"
    )
    index.add(talk(2)[0])
    for key, _ in _TALK:
        index.remove(key)
    index.add(turn("x", "A parrot.", session="other"))
    assert keys(index.search("parrot")) == ["x"]


def test_turns_of_one_moment_stand_as_they_came() -> None:
    said = [turn(key, text, speaker="") for key, text in _TALK]
    backwards = [turn(f"z{9 - n}", text, speaker="") for n, (_, text) in enumerate(_TALK)]
    found = filled(*said).search("parrot"), filled(*backwards).search("parrot")

    assert [f"z{9 - int(hit.key[1])}" for hit in found[0]] == [hit.key for hit in found[1]]


# The partition


_entries = st.lists(
    st.builds(
        lambda key, text, session, speaker, guessed, day, is_gone, seed: (
            gone(f"k{key}")
            if is_gone
            else turn(
                f"k{key}",
                " ".join(text),
                session=session,
                speaker=speaker,
                guessed=guessed,
                time_us=_NOON + day * _DAY,
                vector=directions(1, seed, 8)[0] if seed else None,
            )
        ),
        key=st.integers(0, 12),
        text=st.lists(st.sampled_from(_ALPHABET), max_size=6),
        session=st.sampled_from(["", "s1", "s2"]),
        speaker=st.sampled_from(["", "Ann", "Bob"]),
        guessed=st.booleans(),
        day=st.integers(0, 3),
        is_gone=st.booleans(),
        seed=st.integers(0, 5),
    ),
    max_size=40,
)


@settings(max_examples=60)
@given(_entries, st.lists(st.sampled_from([*_ALPHABET, "Ann"]), min_size=1, max_size=4))
def test_folding_one_by_one_equals_building_anew_from_what_is_left(
    entries: list[IndexEntry], words: list[str]
) -> None:
    slowly = PartitionIndex()
    left: dict[str, IndexEntry] = {}
    for entry in entries:
        slowly.add(entry)
        left.pop(entry.key, None)
        if not entry.gone:
            left[entry.key] = entry
    at_once, anew = filled(*entries), filled(*left.values())
    query, vector = " ".join(words), directions(1, 9, 8)[0]

    found = [
        [msgspec.json.encode(h) for h in i.search(query, vector=vector, limit=50)]
        for i in (slowly, at_once, anew)
        if len(left)
    ]

    assert len(slowly) == len(at_once) == len(anew) == len(left)
    assert all(each == found[0] for each in found)


def test_sweeping_out_the_dead_changes_no_answer() -> None:
    chance = random.Random(5)
    entries = [
        turn(f"k{n}", " ".join(chance.choices(_ALPHABET, k=6)), session=f"s{n // 20}",
             time_us=_NOON + n, vector=directions(1, n, 8)[0])
        for n in range(4_000)
    ]  # fmt: skip
    swept = filled(*entries)
    for n in range(0, 4_000, 2):
        assert swept.remove(f"k{n}")
    anew = filled(*entries[1::2])
    vector = directions(1, 1, 8)[0]

    first = swept.search("amber cedar", vector=vector, limit=30)

    assert first == anew.search("amber cedar", vector=vector, limit=30)
    assert swept.remove("k0") is False
    assert swept.size_bytes < filled(*entries).size_bytes


def test_equal_scores_are_ordered_by_the_newer_then_by_key() -> None:
    index = filled(
        turn("b", "amber", session=""),
        turn("a", "amber", session=""),
        turn("new", "amber", session="", time_us=_NOON + 1),
    )

    assert keys(index.search("amber")) == ["new", "a", "b"]


def test_a_large_partition_finds_what_a_whole_scan_finds(monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(3)
    vectors = directions(6_000, 4)
    words = ["".join(chance.choices(string.ascii_lowercase, k=6)) for _ in range(500)]
    entries = [
        turn(f"k{n}", " ".join(chance.choices(words, k=8)), session=f"s{n // 25}",
             time_us=_NOON + n, vector=vectors[n])
        for n in range(6_000)
    ]  # fmt: skip
    index = filled(*entries)
    questions = [(" ".join(chance.sample(entries[n].text.split(), 3)), vectors[n] + 0.05)
                 for n in range(0, 6_000, 300)]  # fmt: skip

    whole = [keys(index.search(text, vector=vector)) for text, vector in questions]
    monkeypatch.setattr(scorer, "WHOLE_ROWS", 100)
    part = [keys(index.search(text, vector=vector)) for text, vector in questions]

    shared = [len(set(a) & set(b)) / len(a) for a, b in zip(whole, part, strict=True)]
    assert np.mean(shared) >= 0.95
    assert [a[0] for a in whole] == [b[0] for b in part]


@pytest.mark.parametrize("with_vector", [False, True])
def test_of_equals_in_a_large_partition_the_newest_are_found(
    monkeypatch: pytest.MonkeyPatch, with_vector: bool
) -> None:
    vector = unit_vector([1, 0]) if with_vector else None
    index = filled(
        *(turn(f"k{n}", "amber", session="", time_us=_NOON + n, vector=vector) for n in range(200))
    )
    monkeypatch.setattr(scorer, "WHOLE_ROWS", 100)
    monkeypatch.setattr(scorer, "_BEST_OF_ARM", 10)

    assert keys(index.search("amber", limit=3)) == ["k199", "k198", "k197"]


def test_a_search_beside_a_writer_sees_every_entry_whole() -> None:
    index = filled(turn("k0", "amber", vector=directions(1, 0, 8)[0]))
    entries = [
        turn(f"k{n % 300}", f"amber {_ALPHABET[n % 10]}", vector=directions(1, n, 8)[0])
        for n in range(1, 1_000)
    ]

    def write() -> None:
        for entry in entries:
            index.add(entry)

    writer = threading.Thread(target=write)
    writer.start()
    while writer.is_alive():
        for hit in index.search("amber", vector=directions(1, 5, 8)[0], limit=5):
            assert hit.explained() == pytest.approx(hit.score, abs=1e-5)
    writer.join()

    assert len(index) == 300


@pytest.fixture
def mixed() -> PartitionIndex:
    return filled(
        turn("e1", "amber ring", vector=unit_vector([1, 0, 0])),
        turn("e2", "amber stone", session="s2", time_us=_NOON + _DAY,
             vector=unit_vector([0, 1, 0])),
        turn("f1", "amber is a resin", kind="fact", session="", status="active", scope="global",
             vector=unit_vector([0, 0.6, 0.8])),
        turn("f2", "amber was a gem", kind="fact", session="", status="superseded", scope="p",
             vector=unit_vector([0, 0, 1])),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ({}, {"e1", "e2", "f1", "f2"}),
        ({"kinds": ["fact"]}, {"f1", "f2"}),
        ({"kinds": ["fact", "episode"]}, {"e1", "e2", "f1", "f2"}),
        ({"kinds": []}, set()),
        ({"kinds": ["unheard of"]}, set()),
        ({"session": "s2"}, {"e2"}),
        ({"session": "nowhere"}, set()),
        ({"statuses": ["active"]}, {"f1"}),
        ({"scope": "p"}, {"f2"}),
        ({"time_range": (_NOON + 1, None)}, {"e2"}),
        ({"time_range": (None, _NOON + _DAY)}, {"e1", "f1", "f2"}),
        ({"time_range": (_NOON, _NOON)}, set()),
        ({"kinds": ["fact"], "statuses": ["superseded"], "scope": "p"}, {"f2"}),
    ],
)
@pytest.mark.parametrize("with_vector", [False, True])
def test_only_what_passes_every_filter_is_found(
    mixed: PartitionIndex, filters: dict[str, Any], expected: set[str], with_vector: bool
) -> None:
    vector = unit_vector([1, 1, 1]) if with_vector else None

    assert set(keys(mixed.search("amber", vector=vector, **filters))) == expected


def test_what_a_filter_hides_does_not_show_in_the_scores_of_what_it_lets_through() -> None:
    seen = [turn("e1", "amber among other words", session=""), turn("e2", "basalt", session="")]
    hidden = turn("f1", "amber amber amber", kind="fact", session="")

    without = filled(*seen).search("amber", kinds=["episode"])
    beside = filled(*seen, hidden).search("amber", kinds=["episode"])

    assert [hit.score for hit in beside] == pytest.approx([hit.score for hit in without])


def test_words_and_vectors_count_alike_unless_weights_say_otherwise() -> None:
    index = filled(
        turn("said", "amber ring", session="", speaker="", vector=unit_vector([0, 1])),
        turn("meant", "basalt stone", session="", speaker="", vector=unit_vector([1, 0])),
    )

    found = {hit.key: hit for hit in index.search("amber ring", vector=unit_vector([1, 0]))}

    assert found["meant"].score == pytest.approx(found["said"].score, rel=0.1)


def test_a_word_that_is_repeated_or_stands_in_a_long_text_counts_about_once() -> None:
    index = filled(
        turn("once", "amber", session=""),
        turn("often", "amber " * 10, session=""),
        turn("long", "amber " + " ".join(f"word{n}" for n in range(60)), session=""),
    )

    found = {hit.key: hit.arms[0].score for hit in index.search("amber")}

    assert found["once"] < found["often"] < 2 * found["once"]
    assert found["once"] / 2 < found["long"] < found["once"]


def test_alpha_0_is_the_words_alone_and_alpha_1_the_vectors_alone(mixed: PartitionIndex) -> None:
    nearest_f2 = unit_vector([0, 0.1, 1])

    words = mixed.search("ring", vector=nearest_f2, weights=Weights(alpha=0))
    vectors = mixed.search("ring", vector=nearest_f2, weights=Weights(alpha=1))

    assert words == mixed.search("ring")
    assert {arm.name for hit in words for arm in hit.arms} == {"lexical"}
    assert keys(vectors) == ["f2", "f1", "e2", "e1"]
    assert {arm.name for hit in vectors for arm in hit.arms} == {"vector"}
    assert not {"window", "session"} & {b.name for hit in vectors for b in hit.boosts}


def test_vectors_alone_cannot_be_asked_for_without_one(mixed: PartitionIndex) -> None:
    with pytest.raises(Invalid):
        mixed.search("ring", weights=Weights(alpha=1))


def test_vectors_alone_find_nothing_where_nothing_has_a_vector() -> None:
    index = filled(turn("a", "amber"))

    assert index.search("amber", vector=lambda _: [1.0], weights=Weights(alpha=1)) == []


def test_a_speaker_is_unknown_again_when_the_last_word_of_theirs_is_gone() -> None:
    index = filled(turn("a", "I sail."), turn("b", "I sail.", speaker="Bob"))
    index.remove("b")

    assert index.question("Does Bob sail?").named == ()


def test_a_thing_without_a_vector_is_judged_by_its_words() -> None:
    index = filled(
        turn("far", "basalt", session="", vector=unit_vector([0, 1])),
        turn("bare", "amber ring", session=""),
    )

    hits = index.search("amber ring", vector=lambda _: [1.0, 0.0])

    assert hits[0].key == "bare"


def test_a_function_is_asked_for_each_form_of_the_question() -> None:
    index = filled(turn("a", "amber", vector=unit_vector([1, 0])))
    forms: list[str] = []

    def embed(text: str) -> list[float]:
        forms.append(text)
        return [1.0, 0.0]

    for share in (0, 0.5, 1):
        index.search("What does Ann like?", vector=embed, weights=Weights(first_person=share))

    third, first = "What does Ann like?", "What does I like?"
    assert forms == [third, third, first, first]


@settings(max_examples=40)
@given(_entries, st.lists(st.sampled_from([*_ALPHABET, "Ann", "yesterday"]), max_size=5))
def test_every_hit_explains_its_score_to_the_last_part(
    entries: list[IndexEntry], words: list[str]
) -> None:
    index = filled(*entries)

    for hit in index.search(" ".join(words), vector=directions(1, 9, 8)[0], limit=50):
        assert hit.explained() == pytest.approx(hit.score, abs=1e-5)
        assert set(hit.matched) <= set(terms(" ".join(words)))
        assert all(arm.rank >= 1 for arm in hit.arms)
        assert all(boost.reason for boost in hit.boosts)


@pytest.mark.parametrize(
    "query",
    [
        "", " ", "the of and", "😀😀", "?", "\x00\x07", "ａｍｂｅｒ", "a" * 100_000,
        "amber " * 20_000, "'", "’s", "-", "\ud800", "SELECT * FROM turns; --", "1" * 5_000,
        "last " * 5_000,
    ],
    ids=lambda query: ascii(query[:12]),
)  # fmt: skip
@pytest.mark.parametrize("with_vector", [False, True])
def test_no_query_is_too_odd_to_be_answered(
    mixed: PartitionIndex, query: str, with_vector: bool
) -> None:
    vector = (lambda _: [1.0, 2.0, 3.0]) if with_vector else None

    first, again = (mixed.search(query, vector=vector) for _ in range(2))

    assert first == again
    assert all(math.isfinite(hit.score) for hit in first)


def test_only_empty_words_find_nothing_without_an_embedder(mixed: PartitionIndex) -> None:
    assert mixed.search("who is it?") == []


@pytest.mark.parametrize(("limit", "count"), [(0, 0), (-5, 0), (1, 1), (10**9, 4)])
def test_the_limit_bounds_the_hits(mixed: PartitionIndex, limit: int, count: int) -> None:
    assert len(mixed.search("amber", limit=limit)) == count


def test_a_large_partition_gives_as_many_hits_as_are_asked_for() -> None:
    chance = random.Random(8)
    index = filled(
        *(turn(f"k{n}", f"amber {chance.choice(_ALPHABET)}", session="", time_us=n)
          for n in range(12_000))
    )  # fmt: skip

    assert len(index.search("amber", limit=9_000)) == 9_000


@pytest.mark.parametrize("time_us", [0, -(2**62), 2**62])
def test_a_time_beyond_the_calendar_is_no_obstacle(time_us: int) -> None:
    index = filled(turn("a", "amber", time_us=time_us))

    assert keys(index.search("amber last week")) == ["a"]


def test_an_empty_partition_answers_nothing() -> None:
    assert PartitionIndex().search("amber", vector=lambda _: [1.0]) == []


@pytest.mark.parametrize(
    "weights",
    [{"alpha": 1.1}, {"alpha": -0.1}, {"alpha": math.nan}, {"k1": -1}, {"short_words": -1},
     {"short_words": 50, "long_words": 20}, {"time": "much"}],
)  # fmt: skip
def test_weights_out_of_their_range_are_refused(weights: dict[str, Any]) -> None:
    with pytest.raises(Invalid):
        Weights(**weights)


def test_cosines_keep_their_order_when_they_are_scaled() -> None:
    cosines = np.linspace(-1, 1, 101, dtype=np.float32)

    shares = lifted(cosines, 0.2, -1.0, 1.0)

    assert (np.diff(shares) > 0).all()
    assert shares[0] > 0
    assert shares[-1] == 1


def test_an_entry_survives_its_way_through_json() -> None:
    entry = turn("a", "Do you sail?", vector=unit_vector([1, 0]), status="active")

    again = msgspec.json.decode(msgspec.json.encode(entry), type=IndexEntry)

    assert again == entry
    assert (entry.text, entry.heard, entry.asks, entry.speaker) == ("sail", 3, True, "ann")


@pytest.mark.parametrize(
    ("text", "speaker", "said"),
    [
        ("Ann: I am in Rome", "Ann", "I am in Rome"),
        ("Ann Lee: hello", "Ann Lee", "hello"),
        ("Note: buy milk", "", "Note: buy milk"),
        ("TODO: buy milk", "", "TODO: buy milk"),
        ("it is 10:30 now", "", "it is 10:30 now"),
        ("Look:", "", "Look:"),
        ("https://example.org: down", "", "https://example.org: down"),
        ("", "", ""),
    ],
)
def test_who_speaks_is_read_from_a_text_that_says_so(text: str, speaker: str, said: str) -> None:
    assert speaker_in(text) == (speaker, said)
