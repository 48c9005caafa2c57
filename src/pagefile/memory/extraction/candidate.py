"""What an extractor reads and what it proposes."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Protocol, runtime_checkable

import msgspec

from pagefile.errors import Invalid, shown
from pagefile.memory.extraction.errors import BudgetSpent, Cancelled, Oversized
from pagefile.settings import Settings
from pagefile.store.arguments import require_count


class Candidate(msgspec.Struct, frozen=True):
    """A fact that an exchange seems to state; nothing is true before it is committed.

    `valid_from` None means that the exchange does not say since when. A set
    `valid_until` with `valid_from` None means "it was so, and ended then": what
    is known of it closes at that time. `quote` is the clause it was read in.
    """

    subject: str
    predicate: str
    object: str
    confidence: float
    valid_from: datetime | None = None
    valid_until: datetime | None = None
    quote: str = ""

    def __post_init__(self) -> None:
        for field in ("subject", "predicate", "object"):
            value = getattr(self, field)
            if not isinstance(value, str) or not value.strip():
                raise Invalid(field, f"{shown(value)} is no text", "give a text that is not blank")
        # Compared, not only typed: a NaN is between no bounds.
        if not isinstance(self.confidence, int | float) or not 0 <= self.confidence <= 1:
            raise Invalid("confidence", shown(self.confidence), "give a number from 0 to 1")
        for field in ("valid_from", "valid_until"):
            _require_aware(field, getattr(self, field))
        if self.valid_from and self.valid_until and self.valid_until <= self.valid_from:
            raise Invalid("valid_until", "it is not after valid_from", "give a later time")


class Exchange(Protocol):
    """One finished turn: what was said to the agent, and what it answered."""

    @property
    def input(self) -> str: ...
    @property
    def output(self) -> str: ...
    @property
    def occurred_at(self) -> datetime: ...
    @property
    def speaker(self) -> str | None: ...
    @property
    def user_id(self) -> str | None: ...


@runtime_checkable
class Extractor(Protocol):
    """Reads exchanges. `name` and `version` say who proposed a fact, and by which rules."""

    @property
    def name(self) -> str: ...
    @property
    def version(self) -> str: ...

    def extract(
        self, exchange: Exchange, *, cancel: threading.Event | None = None
    ) -> list[Candidate]:
        """The facts that the exchange states, in the order in which it states them.

        An empty list means that it states none; an extractor that could not tell raises.
        """
        ...


def signature_of(extractor: Extractor) -> str:
    """Who proposed a fact, and by which rules, in a word that is kept with it."""
    return f"{extractor.name}/{extractor.version}"


def speaker_of(exchange: Exchange) -> str:
    """Who says "I": the speaker by name, or the user."""
    return " ".join((exchange.speaker or "").split()) or "user"


def distinct(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Each statement once, the surest, where it was first made; of two spans each is one."""
    best: dict[tuple[object, ...], Candidate] = {}
    for candidate in candidates:
        since, until = candidate.valid_from, candidate.valid_until
        key = (
            candidate.subject.casefold(),
            candidate.predicate,
            candidate.object.casefold(),
            (since, until) if since is not None and until is not None else until is not None,
        )
        known = best.get(key)
        if known is None or known.confidence < candidate.confidence:
            best[key] = candidate
    return list(best.values())


def _require_aware(field: str, moment: datetime | None) -> None:
    if moment is None:
        return
    if not isinstance(moment, datetime) or moment.utcoffset() is None:
        raise Invalid(field, f"{shown(moment)} has no time zone", "give an aware datetime")


# How many tokens a round of extraction may cost.


_GLANCE_SECONDS = 0.05


class Call:
    """One call's share. `cost` is set to what it really cost, else all of it is spent."""

    def __init__(self, reserved: int) -> None:
        self.reserved = reserved
        self.cost = reserved


class TokenBudget:
    """Tokens for all calls of one round, from any number of threads.

    A call takes what it may cost at most before it starts, and gives back what it did not
    use. So calls in flight together cannot pass the limit, unless the server counts more
    than was asked of it.
    """

    def __init__(self, limit: int) -> None:
        self._limit = require_count(limit, "limit", least=1)
        self._spent = 0
        self._reserved = 0
        self._changed = threading.Condition()

    @property
    def limit(self) -> int:
        return self._limit

    @property
    def spent(self) -> int:
        """What finished calls cost."""
        with self._changed:
            return self._spent

    @contextmanager
    def call(self, most: int, cancel: threading.Event | None = None) -> Iterator[Call]:
        """A share of `most` tokens for one call; waits for calls that may give some back.

        Raises:
            BudgetSpent: so many are not left; `Oversized` when they never were.
            Cancelled: while it waited.
        """
        if most > self._limit:
            raise Oversized(
                "a single call against the token budget",
                limit=self._limit,
                wanted=most,
                next_step="give a larger budget",
            )
        with self._changed:
            while self._spent + self._reserved + most > self._limit:
                if self._reserved == 0 or self._spent + most > self._limit:
                    raise BudgetSpent(
                        "the token budget",
                        limit=self._limit,
                        wanted=self._spent + most,
                        next_step="go on in another round, or give a larger budget",
                    )
                self._changed.wait(_GLANCE_SECONDS)
                if cancel is not None and cancel.is_set():
                    raise Cancelled("the extraction was cancelled", "start it again")
            self._reserved += most
        share = Call(most)
        try:
            yield share
        finally:
            with self._changed:
                self._reserved -= most
                self._spent += share.cost
                self._changed.notify_all()


# Which extractor reads episodes: rules, a model behind an API, or one's own.


_WORDS = "use 'rules', 'openai', or an object with name, version and extract(episode, cancel=…)"


def require_extractor(wanted: Extractor | str) -> Extractor | str:
    """Refuse what cannot read anything, before it is asked to."""
    known = wanted in ("rules", "openai") if isinstance(wanted, str) else True
    if not known or (not isinstance(wanted, str) and not isinstance(wanted, Extractor)):
        raise Invalid("extractor", f"{shown(wanted)} reads nothing", _WORDS)
    if wanted == "openai":
        _require_settings(Settings.from_environment())
    return wanted


def chosen_extractor(word: str) -> Extractor:
    """The extractor behind a word; what it needs is loaded now, and not before."""
    if word == "rules":
        from pagefile.memory.extraction.rules import RuleExtractor

        return RuleExtractor()
    from pagefile.memory.extraction.chat import ChatClient
    from pagefile.memory.extraction.model import ChatExtractor

    settings = Settings.from_environment()
    _require_settings(settings)
    client = ChatClient(settings.llm_base_url, settings.llm_model, api_key=settings.llm_api_key)
    return ChatExtractor(client)


def _require_settings(settings: Settings) -> None:
    if not settings.llm_model:
        raise Invalid("extractor", "'openai' needs a model", "set PAGEFILE_LLM_MODEL")
    if not settings.llm_api_key and settings.is_vendors(settings.llm_base_url):
        raise Invalid("extractor", "'openai' needs a key", "set OPENAI_API_KEY, or a base URL")
