"""Whether a memory that was found has to do with the question, by measures that hold for any."""

from __future__ import annotations

from typing import Final

from pagefile.memory.prompt_memory import Answer, Recalled
from pagefile.recall.hit import Hit
from pagefile.recall.text.analysis import terms
from pagefile.recall.text.question import Speakers, question_of

#: From which cosine on a model holds two texts to be about one thing. Of the bundled one, texts
#: about nothing in common have 0.3 to 0.55, and seldom more; an answer has mostly 0.56 to 0.8.
FLOORS: Final = {"bge-small-en-v1.5-int8": 0.56}


class Relevance:
    """What a question is about.

    Scores compare the memories of one search with each other: the best of them
    has a high one whatever is asked. Here each is held against the question alone.
    """

    def __init__(
        self, query: str, model: str, now_us: int, min_similarity: float | None = None
    ) -> None:
        self._query = query
        self._terms = frozenset(terms(query))
        self._only_when = question_of(query, Speakers(()), now_us).only_when
        self._floor = FLOORS.get(model) if min_similarity is None else min_similarity

    def unrelated(self, answer: Answer) -> frozenset[str]:
        """The documents of what was found for no reason but that nothing better was there."""
        if not self._query.strip():  # The newest were asked for.
            return frozenset()
        return frozenset(one.record.name for one in answer.found if not self._is_related(one))

    def _is_related(self, one: Recalled) -> bool:
        if not self._terms.isdisjoint(terms(one.text)):
            return True
        hit = one.hit
        if hit is None:
            return False
        return bool(hit.matched) or self._is_near(hit) or self._is_of(hit) or self._is_timely(hit)

    def _is_near(self, hit: Hit) -> bool:
        """Whether the vectors say so; of an unknown model, all that they find is near."""
        floor = self._floor
        return any(
            arm.name == "vector" and (floor is None or arm.score >= floor) for arm in hit.arms
        )

    def _is_of(self, hit: Hit) -> bool:
        """Whether the question names who said it; "I" and "you" are no names."""
        return any(not named.implied for named in Speakers((hit.speaker,)).find(self._query))

    def _is_timely(self, hit: Hit) -> bool:
        return self._only_when and any(boost.name == "time" for boost in hit.boosts)
