"""Is a clause a plain statement? Everything else is refused here, before any rule.

Refusing too much costs a fact; refusing too little plants a false one. So a cue
anywhere in a clause is enough, and it also spoils what follows in the sentence.
"""

from __future__ import annotations

import re
from enum import StrEnum

from pagefile.memory.extraction.clauses import GAP, Clause, Sentence, clauses


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
