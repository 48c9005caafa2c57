"""Text to terms: what the lexical arm counts and compares.

Compatibility forms are folded, case too; apostrophes join; digits stay; empty
words go; the rest is reduced to stems. Scripts without spaces between words
are cut into overlapping pairs of characters.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import chain

import Stemmer

from pagefile.recall.text.english import IRREGULAR, STOP_WORDS

#: Counts up with every change of what a text becomes; an index made by another is made anew.
ANALYSIS_VERSION = 1

_MOST_TERM = 64
_WORD = re.compile(r"[^\W_]+(?:['’ʼ＇][^\W_]+)*")
#: For ASCII, which most text is: what is in no word is a space.
_SPACED = {code: " " for code in range(128) if not chr(code).isalnum() and chr(code) != "'"}
_APOSTROPHES = str.maketrans("", "", "'’ʼ＇")
_CONTRACTED = re.compile(r"(?:n['’ʼ＇]t|['’ʼ＇](?:s|d|m|ll|re|ve))$")
_GROUPED = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
# Han, kana, Thai, Lao, Khmer, Burmese: no spaces between words.
_UNSPACED = re.compile(r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff]+")
_STEMS_REMEMBERED = 65_536


def folded(text: str) -> str:
    """The text with compatibility forms and case folded."""
    # ASCII, which most text is, has no other forms.
    if text.isascii():
        return text.lower()
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())


def words(text: str) -> list[str]:
    """The words as they stand, folded; apostrophes still in."""
    plain = folded(text)
    if "," in plain:
        plain = _GROUPED.sub("", plain)
    if plain.isascii():
        # The same words in less than half the time.
        spaced = plain.translate(_SPACED)
        if "'" not in spaced or not _is_loose(spaced):
            return spaced.split()
    return _WORD.findall(plain)


def _is_loose(spaced: str) -> bool:
    """Whether an apostrophe stands elsewhere than between two signs of a word."""
    return "' " in spaced or " '" in spaced or "''" in spaced or "'" in (spaced[0], spaced[-1])


def terms(text: str) -> list[str]:
    """The terms of a text, in order, without empty words."""
    return terms_of(words(text))


def terms_of(heard: Iterable[str]) -> list[str]:
    """The terms of words, in order, without empty ones."""
    return list(chain.from_iterable(map(_terms_of, heard)))


@lru_cache(_STEMS_REMEMBERED)
def _terms_of(word: str) -> tuple[str, ...]:
    if not word.isascii() and _UNSPACED.search(word):
        return tuple(_pieces(word))
    plain = word
    if "'" in word or not word.isascii():
        # "he'll" is empty as "he" is, "won't" as a whole; "won" and "hell" are not.
        plain = _CONTRACTED.sub("", word).translate(_APOSTROPHES)
        word = word.translate(_APOSTROPHES)
    if plain in STOP_WORDS or word in STOP_WORDS:
        return ()
    return (_stem(IRREGULAR.get(plain, plain)[:_MOST_TERM]),)


def is_lone_sign(term: str) -> bool:
    """Whether a term is one sign of a script that is cut into pairs: it is in the pairs then."""
    return len(term) == 1 and _UNSPACED.match(term) is not None


def _pieces(word: str) -> Iterator[str]:
    end = 0
    for run in _UNSPACED.finditer(word):
        if run.start() > end:
            yield from _terms_of(word[end : run.start()])
        signs = run.group()
        yield from (signs[i : i + 2] for i in range(max(1, len(signs) - 1)))
        end = run.end()
    if end < len(word):
        yield from _terms_of(word[end:])


def _stem(word: str) -> str:
    # A stemmer keeps a buffer of its own and may not be shared by threads;
    # making one is cheap and happens once for a word.
    stemmed: str = Stemmer.Stemmer("english", 0).stemWord(word)
    return stemmed
