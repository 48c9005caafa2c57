"""A question, analysed: its terms, whom it names, which time it means, how else to ask it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

import msgspec

from pagefile.recall.text.analysis import STOP_WORDS, folded, terms
from pagefile.recall.text.time_words import TimeWords, time_words, without

#: A question longer than this is cut: it is a document, and its beginning says what is meant.
MOST_CHARACTERS = 16_384
_LEAST_NICKNAME = 3
#: Terms that ask for what was said, whatever that was.
_TELLING = frozenset(terms("say tell talk mention speak"))
_WORD = re.compile(r"[^\W_]+(?:-[^\W_]+)*")
_OWNED = re.compile(r"['’]s?\b")
_THEIRS = re.compile(r"\b(?:her|his|their)\b", re.I)
_THEY = re.compile(r"\b(?:she|he|they)\b", re.I)
_THEMSELVES = re.compile(r"\b(?:her|him|them)sel(?:f|ves)\b", re.I)
_ME = re.compile(r"\b(?:i|i'm|i've|i'd|me|my|mine|myself)\b", re.I)
_YOU = re.compile(r"\b(?:you|your|yours|yourself)\b", re.I)
#: Speakers that a pronoun means where conversations are kept by role.
_USER, _ASSISTANT = "user", "assistant"


class Named(msgspec.Struct, frozen=True):
    """A speaker whom the question means, and the word that says so."""

    speaker: str
    word: str
    start: int
    end: int
    #: Meant by "I" or "you" only.
    implied: bool = False


class Question(msgspec.Struct, frozen=True):
    """What is to be found."""

    text: str
    terms: tuple[str, ...]
    #: The terms of names that were taken out; they still count where no speaker is known.
    name_terms: tuple[str, ...]
    named: tuple[Named, ...]
    when: tuple[TimeWords, ...]
    #: Whether it asks for nothing but a time: "what did I do yesterday?"
    only_when: bool
    #: Whether it asks for nothing but what somebody said: "Joe?", "what did Joe say?"
    only_who: bool
    #: The question as the one named would have put it; "" when nobody is.
    first_person: str

    @property
    def speakers(self) -> tuple[str, ...]:
        """Those named, the first first."""
        return tuple(dict.fromkeys(named.speaker for named in self.named))


class Speakers:
    """The names that are known, and by which words they may be called."""

    def __init__(self, names: Iterable[str], *, guessed: Iterable[str] = ()) -> None:
        self.names = tuple(dict.fromkeys(name for name in names if name))
        #: Those that may be labels: only a question that writes them as names means them.
        self._guessed = frozenset(guessed)
        self._called: dict[str, set[str]] = {}
        for name in self.names:
            for part in _WORD.findall(name):
                self._called.setdefault(part, set()).add(name)
        self._first = {name: _WORD.findall(name)[:1] for name in self.names}

    def find(self, text: str) -> list[Named]:
        """Who is named, in the order of the text.

        A full name, a part of it that only one speaker has, or the beginning of one
        first name ("Mel" for Melanie), with a capital and not at the start, where
        every word has one. A name that was only guessed has a capital there, too, or
        owns something: "allergies" are not the speaker of "Allergies: peanuts".
        """
        if not self.names:
            return []
        found = []
        for match in _WORD.finditer(text):
            word, capital = folded(match.group()), match.group()[0].isupper()
            inside = capital and match.start() > 0
            if word in STOP_WORDS and not inside:
                continue
            called = self._called.get(word, set())
            if self._guessed and not (inside or (capital and _OWNED.match(text, match.end()))):
                called = called - self._guessed
            if not called and inside and len(word) >= _LEAST_NICKNAME:
                called = {
                    n for n, first in self._first.items() if first and first[0].startswith(word)
                }
            if len(called) > 1:
                called = {name for name in called if name in folded(text)} or called
            if len(called) == 1:
                found.append(Named(next(iter(called)), match.group(), match.start(), match.end()))
        return found or self._implied(text)

    def _implied(self, text: str) -> list[Named]:
        roles: Mapping[str, re.Pattern[str]] = {_USER: _ME, _ASSISTANT: _YOU}
        found = [
            Named(role, match.group(), match.start(), match.end(), implied=True)
            for role, pattern in roles.items()
            if role in self.names and (match := pattern.search(text))
        ]
        return found if len(found) == 1 else []


def question_of(
    text: str,
    speakers: Speakers,
    now_us: int,
    oldest_us: int | None = None,
    newest_us: int | None = None,
    also: str = "",
) -> Question:
    """The analysed question; the moments are what time words are read against.

    `also` is what those it names are called otherwise: words, and nothing but words.
    """
    text = text[:MOST_CHARACTERS]
    named = speakers.find(text)
    said = [n for n in named if not n.implied]
    taken_out, kept, at = [], [], 0
    for name in said:
        owned = _OWNED.match(text, name.end)
        kept.append(text[at : name.start])
        taken_out.append(name.word)
        at = owned.end() if owned else name.end
    bare = terms(" ".join([*kept, text[at:]]))
    when = time_words(text, now_us, oldest_us, newest_us)
    names = terms(" ".join(taken_out))
    little = _TELLING.union(names)
    return Question(
        text=text,
        # A question that is only a name is about the name.
        terms=tuple(dict.fromkeys([*(bare or names), *terms(also)])),
        name_terms=tuple(dict.fromkeys(names)) if bare else (),
        named=tuple(named),
        when=when,
        only_when=bool(when) and little.issuperset(terms(without(text, when))),
        only_who=bool(said) and _TELLING.issuperset(bare),
        first_person=_as_told(text, said),
    )


def _as_told(text: str, named: list[Named]) -> str:
    """The question in the words of the one it names: what was told says "I" and "my"."""
    if not named:
        return ""
    told, at = "", 0
    for name in named:
        owned = _OWNED.match(text, name.end)
        told += text[at : name.start] + ("my" if owned else "I")
        at = owned.end() if owned else name.end
    told += text[at:]
    told = _THEMSELVES.sub("myself", told)
    return _THEY.sub("I", _THEIRS.sub("my", told))
