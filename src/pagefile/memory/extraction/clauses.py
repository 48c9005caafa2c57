"""What somebody wrote, as sentences and clauses; what they only pasted is left out.

All work is linear in the text, and only its beginning is read: people do not state
facts about themselves ten pages deep, and what is that long was pasted.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

MOST_READ = 8_000
MOST_SENTENCES = 120
MOST_SENTENCE = 320
MOST_CLAUSES = 8

#: Stands where something was taken out; no rule takes it as a part of an object.
GAP = "¤"

_FENCE = re.compile(r"```.*?(?:```|\Z)|~~~.*?(?:~~~|\Z)", re.S)
_INLINE = re.compile(r"`[^`\n]{1,200}`")
_QUOTED = re.compile(
    r"\"([^\"\n]{0,400})(?:\"|$)|“([^”\n]{0,400})(?:”|$)|«([^»\n]{0,400})(?:»|$)", re.M
)
_SINGLE_QUOTED = re.compile(
    r"(?<=[\s:(])'([^'\n]{1,40} [^'\n]{1,40} [^'\n]{1,300})'(?=[\s.,;:!?)]|$)"
)
_PASTED = re.compile(
    r"^(?:from|to|cc|subject|date|sent|re|fwd)\s?:.*$|^-{2,} ?(?:original|forwarded) message"
    r"|^on .{1,80} wrote:$|^(?:system|user|human|assistant|traceback)\b ?[:(]",
    re.I | re.M,
)
_CODE_LINE = re.compile(
    r"[{};]$|^\s*(?:def|class|import|from \w+ import|return|const|let|var)\b|=>|\w\(\)"
)
_BULLET = re.compile(r"^\s*(?:[-*•]|\d{1,2}[.)])\s+")
_MINE = re.compile(r"\b(?:i|my|we|our|i'm)\b", re.I)
_END = re.compile(r"[.!?…]+(?=[\s)]|$)|[\n;]+")
_ABBREVIATED = re.compile(
    r"(?:\b(?:mr|mrs|ms|dr|st|prof|jr|sr|vs|etc|inc|ltd|co|no|approx)|\b[a-z]|\b[ei]\.[eg])$", re.I
)

_VERBS = (
    "live|lives|work|works|love|loves|like|likes|hate|hates|enjoy|enjoys|prefer|speak|speaks|"
    "study|studies|am|have|has|own|drive|dislike|run|moved|can't stand|don't|play|plays|is"
)
_SUBJECT = r"(?:i|we|my|our|i'm|i've|we're|we've|i'd|i'll)\b"
_ASKING = (
    r"(?:what|who|where|when|why|how|which|can|could|would|will|do|does|did|is|are|am|should|may|"
    r"any (?:ideas?|tips|advice|suggestions|recommendations))\b"
)
_BREAK = re.compile(
    rf"(?P<but>,? \b(?:but|though|although|however|yet),? )"
    rf"|,? (?:and|so|because|since|as|while|whereas|which is why) (?={_SUBJECT})"
    rf"|,? and (?:also |then )?(?=(?:{_VERBS}) )"
    rf"|,? (?:so|and) (?={_ASKING})"
    rf"|, (?={_SUBJECT}|it's |it is |not |{_ASKING}|nice to|pleased|please|thanks|thank |let me)"
    rf"| [-–—] |\s?[()]\s?|: ",
    re.I,
)


class Clause(msgspec.Struct, frozen=True):
    """A part of a sentence. `turned` says that a "but" stands before it."""

    text: str
    turned: bool = False


class Sentence(msgspec.Struct, frozen=True):
    """A sentence, whether it asks, and whether it is the first of its message."""

    text: str
    asks: bool
    first: bool


def own_words(text: str) -> str:
    """The text without code, quotations and everything that looks pasted."""
    text = text[:MOST_READ].replace("\r", "\n").replace("’", "'").replace("‘", "'")
    text = _FENCE.sub(f"\n{GAP}\n", text)
    text = _INLINE.sub(GAP, text)
    if pasted := _PASTED.search(text):
        text = text[: pasted.start()]
    text = _QUOTED.sub(_unquoted, text)
    text = _SINGLE_QUOTED.sub(GAP, text)
    lines = (line for line in text.split("\n") if not _is_foreign(line))
    return "\n".join(_BULLET.sub("", line) for line in lines)


def _unquoted(found: re.Match[str]) -> str:
    """A title in quotation marks is a name; a sentence in them is somebody else's."""
    inside = found[1] or found[2] or found[3] or ""
    if found[0][-1:] in '"”»' and len(inside.split()) <= 6 and not _MINE.search(inside):
        return inside.rstrip(".,")
    return GAP


def _is_foreign(line: str) -> bool:
    head = line[:5]
    return head.lstrip().startswith((">", "|", "$ ")) or bool(_CODE_LINE.search(line[:400]))


def sentences(text: str) -> Iterator[Sentence]:
    """The sentences of one's own words. One that is too long to be speech is left out."""
    count = start = 0
    for stop in [*_END.finditer(text), None]:
        end = len(text) if stop is None else stop.start()
        mark = "" if stop is None else stop[0]
        if mark == "." and _ABBREVIATED.search(text[max(start, end - 8) : end]):
            continue
        raw = " ".join(text[start : min(end, start + MOST_SENTENCE + 1)].split())
        start = end + len(mark)
        if not raw:
            continue
        count += 1
        if count > MOST_SENTENCES:
            return
        if len(raw) <= MOST_SENTENCE:
            # Shouted, every word has a capital, and none tells a name any more.
            raw = raw.lower() if raw.isupper() and " " in raw else raw
            yield Sentence(raw, "?" in mark, count == 1)


def clauses(sentence: str) -> list[Clause]:
    """A sentence cut where a new statement begins; the words are kept as they were."""
    parts: list[Clause] = []
    start, turned = 0, False
    for cut in _BREAK.finditer(sentence):
        if len(parts) >= MOST_CLAUSES:
            return parts
        if text := sentence[start : cut.start()].strip(" ,"):
            parts.append(Clause(text, turned))
        start, turned = cut.end(), cut["but"] is not None
    if text := sentence[start:].strip(" ,"):
        parts.append(Clause(text, turned))
    return parts
