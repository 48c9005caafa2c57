"""What somebody wrote, as sentences and clauses; what they only pasted is left out.

All work is linear in the text, and only its beginning is read: people do not state
facts about themselves ten pages deep, and what is that long was pasted.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import StrEnum
from typing import Literal

import msgspec

from pagefile.memory.extraction import dates

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


# Is a clause a plain statement? Everything else is refused here, before any rule.
#
# Refusing too much costs a fact; refusing too little plants a false one. So a cue
# anywhere in a clause is enough, and it also spoils what follows in the sentence.


class Mood(StrEnum):
    """Why a clause was not taken as a statement."""

    QUESTION = "question"
    HYPOTHETICAL = "hypothetical"
    REPORTED = "reported"
    UNSURE = "unsure"
    JOKING = "joking"


_ASKS = re.compile(
    r"(?:and |so |but |or |ok |hey |hi |please )*"
    r"(?:what|who|whom|whose|where|when|why|how|which|can|could|would|will|do|does|did|is|are|am|"
    r"was|were|should|shall|may|have you|has|don't|doesn't|isn't|aren't|any (?:ideas?|tips|advice|"
    r"suggestions|recommendations))\b(?! my )",
    re.I,
)
#: "…, am I?" asks about all that stands before it.
_TAG = re.compile(
    r"(?:am|are|is|was|were|do|does|did|have|has|can|will)(?:n't)? "
    r"(?:i|we|he|she|it|they)(?: not)?",
    re.I,
)
_HYPOTHETICAL = re.compile(
    r"\b(?:if|unless|suppose|supposing|assum(?:e|ing)|imagin(?:e|ing)|pretend(?:ing)?|"
    r"hypothetical(?:ly)?|let'?s say|say i|wish(?:es)?|would|wouldn't|could|couldn't|might|"
    r"(?:i|we|he|she|they|you)'d|should|shouldn't|ought|were to|i were|as though|dreamed|dreamt|"
    r"in (?:my|our) (?:dreams|head|mind|imagination|fantas(?:y|ies))|"
    r"in theory|in an ideal|ideally|in another life|for example|for instance|e\.g|such as when|"
    r"otherwise|whenever|once i|when i was|when we were|until i|before i|by the time)\b",
    re.I,
)
_UNSURE = re.compile(
    r"\b(?:maybe|perhaps|probably|possibly|presumably|supposedly|apparently|allegedly|"
    r"not sure|unsure|whether|guess|seems?|seemed|looks? like|looked like|feels? like|felt like|"
    r"think|thinking|considering|wonder(?:ing)?|want(?:s|ed)? to|wanna|hop(?:e|es|ing) to|"
    r"hopefully|"
    r"try(?:ing)? to|tried to|supposed to|about to|tempted|almost|nearly|kind of|sort of|"
    r"someday|some day|one day|was going to|were going to|don't know|doubt|afraid i|"
    r"will (?:have to|need)|need to|applied|interview)\b|(?-i:\bmay\b)",
    re.I,
)
_REPORTED = re.compile(
    r"\b(?:said|says|saying|told|tells|heard|hears|claims?|claimed|according to|reportedly|rumou?r|"
    r"thinks|thought|believes?|believed|mentioned|wrote|writes|asked|asks|reads|states|stated|"
    r"swears|insists?|exact words|character|protagonist|"
    r"in (?:the|my|this|that|a) (?:novel|book|movie|film|story|show|game|article|series|song|play|"
    r"episode|scene|text|email|dream|script|example|dataset|joke))\b",
    re.I,
)
_OWN_REPORT = re.compile(
    r"^(?:as|like) i (?:said|mentioned|told you|wrote)(?: before| earlier)?,? |"
    r"^i (?:already )?(?:said|mentioned|told you)(?: before| earlier)?(?: that)? (?=i |my |we )",
    re.I,
)
_JOKING = re.compile(
    r"(?:^|\s)/s\b|\byeah,? right\b|\boh,? (?:sure|great|joy|yeah|yay)\b|\b(?:lol|lmao|rofl|haha+|"
    r"hehe|jk|just kidding|kidding|joking|sarcasm|irony|ironically)\b|[😂🤣🙄😜😏]|\(not\b",
    re.I,
)
#: At the end of a statement it is only a tone; elsewhere it may be the point.
_LAUGHTER = re.compile(
    r"(?:[\s,]{0,3}(?:\b(?:lol|lmao|rofl|(?:ha){2,9}h?|(?:he){2,9}h?)\b|[😂🤣])){1,4}\s?$", re.I
)
_MATERIAL = (
    r"(?:essay|story|text|draft|letter|code|poem|article|paragraph|script|speech|blog post|"
    r"e-?mail|novel|chapter|lyrics|song|monologue|dialogue|transcript|snippet|passage|excerpt)s?"
)
_POLITE = r"^(?:please |can you |could you |now |then |ok,? |okay,? |i want you to |help me )*"
_TASK = re.compile(
    _POLITE
    + r"(?:(?:translate|rewrite|rephrase|paraphrase|proofread|summari[sz]e|write|draft|compose|"
    r"generate|create|act as|act like|pretend|imagine|role-?play|let's play|you(?: are|'re) "
    r"(?:now |an? ))\b"
    r"|(?:correct|edit|fix|improve|continue|complete|classify|extract|parse|analy[sz]e|"
    r"repeat|reply to|"
    r"respond to|answer|consider|read) (?:this|my|the|these|that|following|below|it)\b)"
    r"|\b(?:the following|this (?:text|sentence|email|paragraph|passage|essay|letter)|as "
    r"follows)\b"
    rf"|\b(?:here(?:'s| is| are| comes)|below is|this is|attached is) "
    rf"(?:my|our|the|an?|some)(?: [\w'-]{{1,20}}){{0,3}}? {_MATERIAL}\b"
    rf"|^(?:my |the )?(?:[\w'-]{{1,20}} )?{_MATERIAL}(?: so far)?:",
    re.I,
)


def without_own_report(text: str) -> str:
    """What one says that one said is one's own statement."""
    return _OWN_REPORT.sub("", text, count=1)


def without_laughter(text: str) -> str:
    """The sentence without a laugh at its end."""
    return _LAUGHTER.sub("", text, count=1)


def refusal(text: str) -> Mood | None:
    """Why this clause states nothing for certain, or None."""
    for mood, cue in (
        (Mood.HYPOTHETICAL, _HYPOTHETICAL),
        (Mood.UNSURE, _UNSURE),
        (Mood.REPORTED, _REPORTED),
    ):
        if cue.search(text):
            return mood
    return None


def is_task(sentence: str) -> bool:
    """Whether it sets a task whose material may follow: that is not about the speaker."""
    return _TASK.search(sentence) is not None


def statements(sentence: Sentence) -> list[str]:
    """The clauses of a sentence that are plainly stated, in order."""
    said = without_laughter(sentence.text)
    if _JOKING.search(said) or is_task(said):
        return []
    parts = clauses(without_own_report(said))
    if sentence.asks:
        parts = _before_the_question(parts)
    plain: list[str] = []
    spoilt = conditional = False
    for part in parts:
        if part.turned and not conditional:
            spoilt = False
        mood = refusal(part.text)
        conditional = conditional or mood is Mood.HYPOTHETICAL
        spoilt = spoilt or mood is not None or part.text.endswith(GAP)
        if not spoilt:
            plain.append(part.text)
    return plain


def _before_the_question(parts: list[Clause]) -> list[Clause]:
    """What a sentence states before it asks; all of it is the question if nothing says where."""
    if parts and _TAG.fullmatch(parts[-1].text):
        return []
    for i, part in enumerate(parts):
        if _ASKS.match(part.text):
            return parts[:i]
    return []


# What a clause says of its subject: its words in one form, affirmed, denied or ended.


Polarity = Literal["affirmed", "denied", "ended"]

_CONTRACTIONS = (
    (re.compile(r"\b(i)'m\b", re.I), r"\1 am"),
    (re.compile(r"\bim (?=a |an |from |\d|allergic |called |not )", re.I), "I am "),
    (re.compile(r"\b(we|you|they)'re\b", re.I), r"\1 are"),
    (re.compile(r"\b(i|we|you|they)'ve\b", re.I), r"\1 have"),
    (re.compile(r"\b(he|she|it|that|here|there)'s\b", re.I), r"\1 is"),
    (re.compile(r"\bcan(?:'t|not)\b", re.I), "can not"),
    (re.compile(r"\bwon't\b", re.I), "will not"),
    (re.compile(r"\b(do|does|did|is|are|was|were|have|has|had)n't\b", re.I), r"\1 not"),
    (re.compile(r"(?<=\w)'s (?=(?:a|an|not|from|allergic|called|named|\d+) )"), " is "),
    (re.compile(r"\b(have|has) got\b", re.I), r"\1"),
)
_LEAD = re.compile(
    r"(?:(?:(?:hi|hello|hey)(?: there| all| everyone| team| (?-i:[A-Z]\w+)(?=[,!]))?|well|so|"
    r"ok|okay|actually|btw|by the way|also|and|anyway|honestly|"
    r"now|currently|fyi|just so you know|no|nope|yes|yeah|oh|ah|unfortunately|sadly|luckily|"
    r"to be clear|in fact|for the record|for context|for reference|some background|background|"
    r"please remember|remember|note|please note|keep in mind|"
    r"i mean|i meant(?: to say)?|what i meant (?:is|was)|"
    r"correction|sorry|one thing|good (?:morning|evening|afternoon)|"
    r"right now|these days|nowadays|thanks|because|but|then|plus|update|as of today)"
    r"(?: that)?[,!:.]? )+",
    re.I,
)
_ADVERB = (
    r"(?:really|absolutely|actually|truly|also|still|now|currently|just|recently|already|totally|"
    r"definitely|certainly|simply|especially|particularly|personally|quite|very|genuinely|honestly|"
    r"originally|mostly|mainly|severely|highly|deathly|officially|basically|finally|happily|proudly|"
    r"completely|super|so|pretty|seriously|deeply|both|all|only)"
)
_ADVERBS = re.compile(
    rf"((?:(?:am|is|are|have been|has been|have|has|was|got|do) )?)((?:{_ADVERB} )+)", re.I
)
_NOT = re.compile(
    r"(?P<aux>(?:do|does|did|am|is|are|have|has|can|will|was|were|had) )?"
    r"(?P<no>not|never|hardly|barely|rarely|no|neither|without)\b(?! longer) ?",
    re.I,
)
_NO_LONGER = re.compile(r"((?:am|is|are|have|has|can) )?no longer ", re.I)
_USED_TO = re.compile(r"used to (?=[a-z])", re.I)
_STOPPED = re.compile(r"(?:have |has )?(?:stopped|quit|gave up|given up) (?=[a-z]+ing\b)", re.I)
_COMPANY = re.compile(
    r" (?:with|for|to be with|because of) (?:my|our|a|the|some|work|love)\b[\w ]{0,40}$", re.I
)


class Phrase(msgspec.Struct, frozen=True):
    """A verb phrase without adverbs, negation and words of time."""

    text: str
    polarity: Polarity
    times: tuple[str, ...]
    #: It happened just before it was said.
    just: bool = False


def plain(clause: str) -> str:
    """The clause without contractions, and without what leads into it."""
    for pattern, full in _CONTRACTIONS:
        clause = pattern.sub(full, clause)
    if lead := _LEAD.match(clause):
        clause = clause[lead.end() :]
    return clause


def phrase_of(rest: str, times: list[str]) -> Phrase | None:
    """The phrase after a subject; None when it denies the past or the future."""
    rest, late = dates.split_tail(rest)
    if not late and (company := _COMPANY.search(rest)):
        # "moved to Porto last March with my partner": the time stands before the company.
        alone, late = dates.split_tail(rest[: company.start()])
        rest = alone if late else rest
    times = [*times, *late]
    just = False
    rest, said = _without_adverbs(rest)
    just = just or "just" in said
    polarity: Polarity = "affirmed"
    if found := _USED_TO.match(rest):
        rest, polarity = rest[found.end() :], "ended"
    elif found := _NO_LONGER.match(rest):
        rest, polarity = (found[1] or "") + rest[found.end() :], "ended"
    elif found := _STOPPED.match(rest):
        rest, polarity = "am " + rest[found.end() :], "ended"
    elif found := _NOT.match(rest):
        aux = (found["aux"] or "").lower()
        if aux in ("did ", "will ", "was ", "were ", "had "):
            return None
        keeps = aux if aux in ("am ", "is ", "are ", "have ", "has ", "can ") else ""
        rest = keeps + rest[found.end() :]
        over = any(time in ("anymore", "any more", "any longer") for time in times)
        polarity = "ended" if over and found["no"].lower() == "not" else "denied"
    rest, said = _without_adverbs(rest)
    return Phrase(rest, polarity, tuple(times), just or "just" in said)


def _without_adverbs(rest: str) -> tuple[str, str]:
    found = _ADVERBS.match(rest)
    return (found[1] + rest[found.end() :], found[2].lower()) if found else (rest, "")
