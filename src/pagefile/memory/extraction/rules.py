"""The default extractor: rules about plain statements. No model, no network, no chance.

It reads only what the user wrote, never the answer; only clauses that state something
outright; and prefers to miss a fact rather than to plant one. The same exchange gives
the same candidates on every machine.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Sequence
from datetime import datetime
from typing import Self

import msgspec

from pagefile.memory.extraction import clauses, dates, objects, people, rule_table, statements
from pagefile.memory.extraction.candidate import (
    Candidate,
    Exchange,
    TokenBudget,
    distinct,
    speaker_of,
)
from pagefile.memory.extraction.clauses import (
    Phrase,
    Sentence,
    own_words,
    phrase_of,
    plain,
    sentences,
)
from pagefile.memory.extraction.people import Subject
from pagefile.memory.extraction.rule_table import Emit, Rule
from pagefile.memory.extraction.statements import Attribute, Doing
from pagefile.memory.extraction.words import MULTI, listed

_TABLE: tuple[Rule, ...] = (*rule_table.LIFE_RULES, *rule_table.TASTE_RULES)
_MOST_QUOTED = 200
#: Of somebody else one knows less than of oneself.
_OTHERS = 0.9
_ENDED = 0.95
#: What "we" do not share.
_ONE_ONLY = frozenset({"age", "has_name", "birthday", "birth_year", "nickname", "job_title"})

_NICKNAME = re.compile(
    r"(?:please |you can |just |everyone |everybody |(?:my )?friends |people |they )*calls? "
    r"me (?P<o>.+)$",
    re.I,
)
_CARRIED = re.compile(
    r"(?:(?:live|work|love|like|hate|enjoy|speak|play|drive|own)s?|am|is|have|has|prefer|dislike|run|"
    r"study|studies|moved|do not|does not|can not|don't|can't|used to)\b",
    re.I,
)
_ITS = re.compile(r"it is (?P<o>.+)$", re.I)
#: "My dog's name is Cookie, not Biscuit": the comma may be there or not.
_NOT_THAT = re.compile(r"not (?P<o>[A-ZÀ-Þ].*)$")
_INSTEAD = re.compile(r"(?P<this>.{1,80}?),? (?:and )?(?P<that>not [A-ZÀ-Þ].*)$")
_DIED = re.compile(
    r"(?:(?:have|has|had) )?(?:died|passed(?: away| on)|(?:was|been) put (?:down|to sleep)|"
    r"(?:is|are) (?:dead|no longer with us|no longer alive|deceased)|crossed the rainbow bridge)"
    r"(?:,? (?:of|from|due to|after|at|in (?:his|her|its|their|my|our)|peacefully|suddenly|"
    r"unexpectedly|when|because|on me)\b.*)?$",
    re.I,
)
_DEATH = re.compile(r"(?:(?:have|has|had) )?(?:died|passed away)\b", re.I)
_AGED = re.compile(
    r",? (?:aged|at(?: the age of)?|at age|(?:he|she|it) was) [\w-]{1,12}(?: years(?: old)?)?$",
    re.I,
)
#: Of a couple: what a sentence says of who they were to each other is over.
_PARTED = re.compile(
    r"(?:(?:have|has) )?(?:got(?:ten)? (?:a )?divorced?|(?:broke|broken|split) up|separated|"
    r"(?:am|are) divorced)$",
    re.I,
)
_TOGETHER = re.compile(r"(?:am|are) (?:together|married|a couple|engaged)$", re.I)
_MEALS = re.compile(r"(?:can )?(?:eat|drink) ", re.I)
_COUPLE = frozenset({"married_to", "engaged_to", "has_partner"})
#: What people report of themselves without "I".
_ELIDED = re.compile(
    r"(?:just|recently|finally) (?=(?:moved|relocated) to |turned \d|got (?:married|divorced|"
    r"engaged)\b|(?:got|landed|started) (?:a|my) (?:new )?job (?:at|with) |"
    r"started (?:working )?at |graduated from |adopted an? )",
    re.I,
)
#: Said with a laugh, these are still meant; what somebody likes or suffers from may be a joke.
_SOBER = frozenset(
    listed(
        """
    lives_in comes_from born_in works_at studies_at has_name has_pet is_a has_family has_child
    has_son has_daughter has_brother has_sister speaks plays studies
    """
    )
)
_LAUGHED = 0.85

_INTRODUCED = re.compile(r"(?:am|is) (?P<o>[A-ZÀ-Þ][\w'-]+(?: [A-ZÀ-Þ][\w'-]+){0,2})$")
_GREETED = re.compile(
    r"\b(?:nice|pleased|great|good) to meet|^(?:hi|hello|hey|good morning)\b", re.I
)


class RuleExtractor:
    """Facts by rules. Keeps nothing between calls, so threads may share one."""

    name = "rules"
    version = "1"

    def within(self, budget: TokenBudget) -> Self:
        """The same: rules cost no tokens, and keep to any budget."""
        del budget
        return self

    def extract(
        self, exchange: Exchange, *, cancel: threading.Event | None = None
    ) -> list[Candidate]:
        """What the speaker plainly states about themselves and people they name."""
        del cancel  # The work is bounded and short.
        speaker = speaker_of(exchange)
        found: list[Candidate] = []
        for sentence in sentences(own_words(exchange.input)):
            if clauses.is_task(sentence.text):
                break  # What follows is material for the task, not about the speaker.
            found += _Reading(speaker, exchange.occurred_at, sentence).candidates()
        return distinct(found)


class _Reading:
    """One sentence: its clauses in order, with what the one before left open."""

    def __init__(self, speaker: str, at: datetime, sentence: Sentence) -> None:
        self._speaker = speaker
        self._at = at
        self._sentence = sentence
        self._subject: Subject | None = None
        self._denied: tuple[people.Owner, Attribute] | None = None
        #: What the last clause named, that the next may say it is not.
        self._called = ""
        self._found: list[Candidate] = []
        self._parted: datetime | None = None

    def candidates(self) -> list[Candidate]:
        for clause in clauses.statements(self._sentence):
            self._read(clause)
        found = [self._over(candidate) for candidate in self._found]
        if clauses.without_laughter(self._sentence.text) == self._sentence.text:
            return found
        return [
            msgspec.structs.replace(one, confidence=round(one.confidence * _LAUGHED, 3))
            for one in found
            if one.predicate in _SOBER
        ]

    def _over(self, candidate: Candidate) -> Candidate:
        """ "My husband Tom and I got divorced": the first half holds no longer."""
        if self._parted is None or candidate.predicate not in _COUPLE or candidate.valid_until:
            return candidate
        return msgspec.structs.replace(candidate, valid_from=None, valid_until=self._parted)

    def _read(self, quote: str) -> None:
        clause = plain(quote)
        clause, times = dates.split_head(clause)
        if self._is_not(clause, quote):
            return
        if found := _NICKNAME.match(clause):
            self._attribute(self._speaker, statements.named("nickname", found["o"]), quote)
            return
        if self._corrects(clause, quote) or self._attributes(clause, quote):
            return
        for doing in statements.pastime(clause):
            self._doing(self._speaker, doing, quote)
        if not self._found and _ELIDED.match(clause):
            subject: Subject | None = Subject(self._speaker, clause, True)
        else:
            subject = people.subject_of(clause, self._speaker)
        if subject is None and self._subject is not None and _CARRIED.match(clause):
            subject = Subject(self._subject.name, clause, self._subject.first_person)
        self._subject = None
        if subject is not None:
            known = len(self._found)
            self._about(subject, times, quote)
            # Only after a clause that was understood can the next do without a subject.
            self._subject = subject if len(self._found) > known else None

    def _is_not(self, clause: str, quote: str) -> bool:
        """ "…, not Biscuit": a name that was wrong, of a relation that may have many."""
        predicate, self._called = self._called, ""
        found = _NOT_THAT.match(clause)
        if not predicate or found is None:
            return False
        self._not_called(predicate, people.names(found["o"]), quote)
        return True

    def _not_called(self, predicate: str, names: Sequence[str], quote: str) -> None:
        for name in names if predicate in MULTI else ():
            self._put(self._speaker, predicate, name, 0.85, quote, None, self._at)

    def _corrects(self, clause: str, quote: str) -> bool:
        """ "My name isn't X, it's Y": the second half says what the first denied."""
        denied, self._denied = self._denied, None
        found = _ITS.match(clause)
        if denied is None or found is None:
            return False
        owner, attribute = denied
        self._owned(owner, statements.again(attribute, found["o"]), quote)
        return True

    def _attributes(self, clause: str, quote: str) -> bool:
        attribute = statements.reversed_attribute_of(clause)
        if attribute is not None:
            self._attribute(self._speaker, attribute, quote)
            return True
        owner = people.owner_of(clause, self._speaker)
        if owner is None:
            return False
        instead = _INSTEAD.match(owner.rest) if owner.relation else None
        if instead is not None and not instead["this"].endswith((" is", " are", "'s")):
            owner = msgspec.structs.replace(owner, rest=instead["this"])
        else:
            instead = None
        clean, _ = dates.split_tail(owner.rest)
        attribute = statements.attribute_of(owner.rest if "birth" in owner.rest else clean)
        if attribute is None or (owner.vague and attribute.predicate != "has_name"):
            return False
        if attribute.denied:
            self._denied = owner, attribute
            if attribute.predicate == "has_name":
                names = [name for name in attribute.values if name[:1].isupper()]
                self._not_called(owner.relation, names, quote)
            return True
        self._owned(owner, attribute, quote)
        if instead is not None:
            self._is_not(instead["that"], quote)
        return True

    def _owned(self, owner: people.Owner, attribute: Attribute | None, quote: str) -> None:
        if attribute is None or attribute.predicate != "has_name" or not owner.relation:
            self._attribute(owner.name, attribute, quote)
            return
        self._called = owner.relation
        for name in attribute.values:
            self._put(self._speaker, owner.relation, name, attribute.confidence, quote)
            if owner.kind:
                self._put(name, "is_a", owner.kind, 0.9, quote)

    def _attribute(self, whose: str, attribute: Attribute | None, quote: str) -> None:
        if attribute is not None:
            for value in attribute.values:
                self._put(whose, attribute.predicate, value, attribute.confidence, quote)

    def _about(self, subject: Subject, times: list[str], quote: str) -> None:
        if self._died(subject, times, quote):
            return
        if subject.relation is not None:
            predicate, name = subject.relation
            self._put(self._speaker, predicate, name, 0.9, quote)
            if subject.kind:
                self._put(name, "is_a", subject.kind, 0.9, quote)
        phrase = phrase_of(subject.rest, times)
        if phrase is None or (not subject.name and not subject.role):
            return
        if subject.role and self._named(subject, phrase, quote):
            return
        if subject.name:
            self._phrase(subject, phrase, quote)

    def _died(self, subject: Subject, times: list[str], quote: str) -> bool:
        """ "My dog Rex died": whom one had, one has no longer."""
        predicate, name = subject.relation or (subject.role, subject.kind)
        if not predicate:
            return False
        rest, late = dates.split_tail(_AGED.sub("", subject.rest))
        if not (_DIED.match(rest) or _DIED.match(subject.rest)):
            phrase = phrase_of(rest, [])
            if phrase is None or phrase.polarity == "denied" or not _DIED.match(phrase.text):
                # In a game, of laughter: then it is not known what became of them.
                return _DEATH.match(subject.rest) is not None
        if name:
            until = self._began((*times, *late)) or self._at
            self._put(self._speaker, predicate, name, 0.85, quote, None, until)
        return True

    def _named(self, subject: Subject, phrase: Phrase, quote: str) -> bool:
        """ "My wife is called X", "my kids are Ben and Tilly", "my boss is Mr. X"."""
        found = re.match(r"(?:is|are) (?P<how>called |named )?(?P<o>.+)$", phrase.text)
        if found is None or phrase.polarity != "affirmed":
            if found is not None and found["how"] and phrase.polarity == "denied":
                self._not_called(subject.role, people.names(found["o"]), quote)
            return False
        said, instead = found["o"], _INSTEAD.match(found["o"])
        names = people.names(instead["this"] if instead else said)
        if names:
            self._called = subject.role
        for name in names:
            self._put(self._speaker, subject.role, name, 0.9 if found["how"] else 0.8, quote)
            if subject.kind:
                self._put(name, "is_a", subject.kind, 0.9, quote)
        if names and instead is not None:
            self._is_not(instead["that"], quote)
        return bool(names)

    def _phrase(self, subject: Subject, phrase: Phrase, quote: str) -> None:
        if _MEALS.match(phrase.text) and phrase.polarity == "ended" and "used to" not in quote:
            # "I don't eat meat anymore" is said of now.
            phrase = msgspec.structs.replace(phrase, polarity="denied")
        parted = _PARTED if phrase.polarity == "affirmed" else _TOGETHER
        if subject.first_person and parted.match(phrase.text):
            self._parted = self._began(phrase.times) or self._at
        if subject.first_person and self._introduced(subject, phrase, quote):
            return
        special = self._doings(subject, phrase)
        if special:
            for doing in special:
                self._doing(subject.name, doing, quote, self._began(phrase.times), phrase)
            return
        for rule in _TABLE:
            if self._apply(rule, subject, phrase, quote):
                return

    def _doings(self, subject: Subject, phrase: Phrase) -> list[Doing]:
        if phrase.polarity == "denied":
            return []
        if not subject.first_person:
            had = statements.household(phrase) if re.match("has ", phrase.text) else []
            return had or statements.birth(phrase, self._at)
        return (
            statements.household(phrase)
            or statements.birth(phrase, self._at)
            or (
                phrase.polarity == "affirmed"
                and (statements.plan(phrase, self._at) or statements.habit(phrase))
            )
            or []
        )

    def _began(self, times: Sequence[str]) -> datetime | None:
        for said in times:
            time = dates.time_of(said, self._at)
            if time is not None and time.start is not None and time.start <= self._at:
                return time.start
        return None

    def _doing(
        self,
        whose: str,
        doing: Doing,
        quote: str,
        since: datetime | None = None,
        phrase: Phrase | None = None,
    ) -> None:
        until = doing.until
        if phrase is not None and phrase.polarity == "ended":
            if doing.subject:
                return
            since, until = None, since or self._at
        start = None if doing.subject or doing.until else since
        if doing.predicate in ("birthday", "birth_year"):
            start = None
        self._put(
            doing.subject or whose,
            doing.predicate,
            doing.object,
            doing.confidence,
            quote,
            start,
            until,
        )

    def _introduced(self, subject: Subject, phrase: Phrase, quote: str) -> bool:
        """ "I'm X" is a name where people say their names: in greeting, or first of all."""
        found = _INTRODUCED.match(phrase.text)
        if found is None or phrase.polarity != "affirmed" or phrase.times:
            return False
        name = found["o"]
        if not people.is_person(name) or people.is_kind(name):
            return False
        greeted = _GREETED.search(self._sentence.text) is not None
        if greeted or (self._sentence.first and plain(self._sentence.text).endswith(name)):
            self._put(subject.name, "has_name", name, 0.85 if greeted else 0.6, quote)
            return True
        return False

    def _apply(self, rule: Rule, subject: Subject, phrase: Phrase, quote: str) -> bool:
        """Put what the rule finds; False when it finds nothing, so that the next may."""
        if not (rule.anyone or subject.first_person):
            return False
        if subject.plural and (rule.emits[0].predicate in _ONE_ONLY or rule.alone):
            return False
        if (phrase.polarity == "denied") != (rule.polarity == "denied"):
            return False
        if phrase.polarity == "ended" and rule.tense != "holds":
            return False
        found = rule.pattern.match(phrase.text)
        if found is None:
            return False
        window = self._window(rule, phrase)
        if window is None:
            return False
        facts = [(emit, value) for emit in rule.emits for value in _values(emit, found)]
        if rule.emits[0] not in [emit for emit, _ in facts]:
            return False
        titled = rule.emits[0].predicate == "job_title"
        if titled and subject.stranger and objects.is_machine(facts[0][1]):
            return False
        since, until = window
        sure = rule.confidence * (1 if subject.first_person else _OTHERS)
        sure *= _ENDED if phrase.polarity == "ended" else 1
        for emit, value in facts:
            if emit.ends and phrase.polarity == "ended":
                continue  # "I no longer hate it" ends the hate and nothing else.
            if emit.ends:
                self._put(
                    subject.name,
                    emit.predicate,
                    value,
                    sure * _ENDED,
                    quote,
                    None,
                    since or self._at,
                )
            else:
                self._put(subject.name, emit.predicate, value, sure, quote, since, until)
        return True

    def _window(self, rule: Rule, phrase: Phrase) -> tuple[datetime | None, datetime | None] | None:
        """From when until when, by the rule's tense and the words of time; None if they clash."""
        said = [time for words in phrase.times if (time := dates.time_of(words, self._at))]
        between = next((time for time in said if time.kind == "between"), None)
        since = next((time.start for time in said if time.kind == "since"), None)
        point = next((time.start for time in said if time.kind == "point"), None)
        if rule.tense == "held":
            return (between.start, between.end) if between else None
        if between is not None or (point is not None and point > self._at):
            return None
        if rule.needs_since and since is None:
            return None
        if rule.tense == "lasts":
            return None, None
        if rule.tense == "ended" or phrase.polarity == "ended":
            return None, point or self._at
        if rule.tense == "began":
            return point or since or (self._at if phrase.just else None), None
        return None if point is not None else (since, None)

    def _put(
        self,
        subject: str,
        predicate: str,
        value: str,
        sure: float,
        quote: str,
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> None:
        quote = quote if len(quote) <= _MOST_QUOTED else quote[: _MOST_QUOTED - 1] + "…"
        self._found.append(
            Candidate(subject, predicate, value, round(sure, 3), since, until, quote)
        )


def _values(emit: Emit, found: re.Match[str]) -> Sequence[str]:
    text = found[emit.group]
    if not text:
        return ()
    cleaned = emit.clean(text)
    values = (cleaned,) if isinstance(cleaned, str) else cleaned
    return [value for value in values if value]
