"""What a fact is about: the words of a clause, trimmed to the thing they name."""

from __future__ import annotations

import re
from collections.abc import Callable

from pagefile.memory.extraction import words
from pagefile.memory.extraction.clauses import GAP
from pagefile.recall.text.dates import number_of

MOST_WORDS = 8
MOST_ITEMS = 8

_ARTICLE = re.compile(r"^(?:the|a|an|some|any|lots of|a lot of|both|all kinds of) ", re.I)
_FILLER = re.compile(
    r"(?:,? (?:too|a lot|very much|so much|that much|much|at all|"
    r"as well|by the way|btw|though|please|and stuff|and such|"
    r"etc|actually|anyway|more than anything|the most|in general|in particular|especially|myself|"
    r"if that helps|fyi|as you know|full[- ]time|part[- ]time|since then|currently|already|"
    r"again))+$",
    re.I,
)
#: Where a relative clause or a reason begins, the thing has been named.
_CUT = re.compile(
    r",? (?:that|which|who|whose|where|when|because|'?cause|cuz|so|although|even though|"
    r"while|until|"
    r"after|before|than|instead of|rather than|together with|along with|due to|thanks to|not|"
    r"even more|especially|like|unlike|whenever|such as|including|lately)\b| ?-+ ",
    re.I,
)
_POINTING = re.compile(
    r"^(?:it|that|this|these|those|them|him|her|you|your|yours|us|me|how|what|when|where|why|to|"
    r"here|there|one|ones|his|their|its|such|anything|nothing|everything|something|someone|being|"
    r"as|so|too|more|better|doing|having|both|is|are|be|not|no|none|any)\b",
    re.I,
)
_POINTS_INSIDE = re.compile(
    r"\b(?:you|your|yours|it|this|that|these|those|them|things|stuff|him|her|his|their|they|he|she|error|bug|"
    r"answer)\b",
    re.I,
)
#: A verb of a clause, or its subject: not a thing any more.
_FINITE = re.compile(
    r"\b(?:i|we|is|are|was|were|am|has|had|makes?|brings?|lets|gets|turned|keeps?|gives?|remind|"
    r"there|can|will)\b",
    re.I,
)
_HANGING = re.compile(r"\b(?:to|of|in|on|at|for|with|from|about|the|a|an|and|or|my|our)$", re.I)
_JOINED = re.compile(r"\b(?:about|with|of|in|for|to|from|between|into|through|my|our)\b", re.I)
_GERUND = re.compile(r"(?:\w+ly )?\w{2,}ing\b", re.I)
#: What "the" may name without pointing at something in the talk.
_GENERIC = re.compile(
    r"(?:ocean|sea|beach|mountains?|outdoors|countryside|rain|snow|sun|city|cold|heat|winter|summer|"
    r"desert|theater|theatre|opera|cinema|movies|gym|woods|forest|smell of|sound of|taste of|"
    r"feeling of|violin|guitar|piano)\b"
)
_ITEMS = re.compile(r",? (?:and|or|as well as|plus) |, | & ", re.I)
_ONE_THING = re.compile(
    r"\b(?:rock (?:and|&|n) roll|mac and cheese|fish and chips|drum and bass|black and white|"
    r"arts and crafts|salt and vinegar|r ?& ?b|dungeons (?:and|&) dragons|science and technology|"
    r"peanut butter and jelly|gin and tonic|bed and breakfasts?|rhythm and blues)\b",
    re.I,
)
_QUANTITY = re.compile(
    r"^(?:a little(?: bit of)?|a bit of|some|fluent|basic|decent|good|fluently) ", re.I
)


_GREAT = "big|huge|avid|real|total|true|massive|great|lifelong|complete|die-hard"


def thing(text: str) -> str:
    """The thing named, or "" when nothing is: a pronoun, a gap, half a sentence."""
    if cut := _CUT.search(text):
        text = text[: cut.start()]
    text = _FILLER.sub("", text.strip(" ,.:;!*_")).strip(" ,.:;!*_")
    if _POINTING.match(text):
        return ""
    text = _ARTICLE.sub("", text)
    if _HANGING.search(text):
        return ""
    if not text or GAP in text or len(text.split()) > MOST_WORDS or _POINTS_INSIDE.search(text):
        return ""
    return text if any(letter.isalnum() for letter in text) else ""


def things(text: str, *, deeds: bool = False) -> list[str]:
    """The things of a list: "jazz, blues and soul". It ends where a new clause begins.

    Of `deeds` ("ride, cook for friends and read") each part is one.
    """
    named: list[str] = []
    for item in _items(text, deeds):
        if not (name := "" if _FINITE.search(item) else thing(item)):
            break
        named.append(name)
    return named


def tastes(text: str) -> list[str]:
    """Things that one can like in general; "the colour" is that of something in the talk."""
    text = re.sub(r"^(?:both|all kinds of|most|all) ", "", text)
    if text.startswith(("my ", "our ")):
        return []
    if text.startswith("the ") and not (text[4:5].isupper() or _GENERIC.match(text[4:])):
        return []
    return things(text)


def _items(text: str, deeds: bool) -> list[str]:
    """The parts of a list. Only parts alike are parts: "books about art and war" is one."""
    if _ONE_THING.search(text):
        return [text]
    if cut := _CUT.search(text):
        text = text[: cut.start()]
    parts = _ITEMS.split(text)
    marks = _ITEMS.findall(text)
    if marks and marks[-1] == ", ":  # No "and" before the last: what follows the comma is no item.
        parts, marks = parts[:1], []
    items = parts[:1]
    for mark, part in zip(marks, parts[1:], strict=True):
        last = items[-1]
        manifold = " " in last.strip() and (_GERUND.match(last) or _JOINED.search(last))
        if manifold and not deeds and not _GERUND.match(part) and mark != ", ":
            items[-1] = last + mark + part
        else:
            items.append(part)
    return items[:MOST_ITEMS]


#: Departments, mostly; the countries among them are known.
_INITIALS = re.compile(r"(?!UK|US|USA|UAE|EU|NYC|LA|SF|DC|NZ|HK)[A-Z]{2,4}")


_HOUSED = re.compile(
    rf"(?:an?|our|my) (?:[\w-]+ ){{0,4}}?(?:{'|'.join(sorted(words.DWELLINGS))}) in "
    r"(?:downtown |central |northern |southern |eastern |western )?(?P<where>(?-i:[A-Z]).*)$",
    re.I,
)
#: Where in a place: what follows is not a part of its name.
_AROUND = re.compile(
    r",? (?:near|close to|next to|not far from|opposite|outside|beside|right|just|"
    r"in (?:the|an?|my|our)) ",
    re.I,
)


def has_capital(text: str) -> bool:
    return any(word[:1].isupper() for word in text.split())


def place(text: str) -> str:
    """A place: something with a capital, a known name, or a kind of dwelling."""
    if inside := _HOUSED.match(text):
        text = inside["where"]  # "a flat in Bonn" is in Bonn.
    around = _AROUND.split(text, maxsplit=1)[0]
    if around[:1].isupper() or around.lower() in words.PLACES:
        text = around
    text = re.split(r" (?:with|for|and|to|by|on|at|as) ", text, maxsplit=1)[0]
    name = thing(text)
    lower = name.lower()
    if lower in words.NOWHERE:
        return ""
    if lower in words.PLACES or f"the {lower}" in words.PLACES:
        return name
    if lower in words.SOFTWARE or lower in words.FIELDS or _INITIALS.fullmatch(name):
        return ""
    if re.search(r"\b(?:department|team|office|future|past|world|bubble|meeting)\b", lower):
        return ""
    if has_capital(name) and not re.fullmatch(r"(?:19|20)\d\d", name):
        return name
    dwelling = re.match(r"(?:[\w-]+ ){0,3}?([\w-]+)(?: (?:near|in|outside|of|by) .+)?$", lower)
    return name if dwelling and dwelling[1] in words.PLACE_NOUNS else ""


def organisation(text: str) -> str:
    """An employer or a school: something with a capital, or a kind of house."""
    name = thing(re.split(r" (?:as|in|on|doing|with|and|from|where) ", text, maxsplit=1)[0])
    if has_capital(name):
        return name
    kind = re.search(
        r"\b(?:bank|hospital|company|startup|school|university|restaurant|clinic|firm|agency|"
        r"museum|library|hotel|factory|bakery|government|airline|cafe|supermarket|store)$",
        name,
    )
    # "a bank" says too little; "a bank that …" was cut down to it.
    return name if kind and " " in name else ""


def company(text: str) -> str:
    """An employer known by its name alone: one can join and start many other things."""
    name = organisation(text)
    group = re.search(
        r"\b(?:group|club|gym|program|programme|class|team|course|church)\b", name, re.I
    )
    return name if text[:1].isupper() and not group else ""


def left_employer(text: str) -> str:
    """An employer that was left: people leave places, people and parties too."""
    name = re.split(r" (?:to|for|because|after|due|over|since|on) ", text, maxsplit=1)[0].strip(
        " .,!"
    )
    parts = name.split()
    if not 1 <= len(parts) <= 4 or GAP in name or not all(part[:1].isupper() for part in parts):
        return ""
    lower = name.lower()
    if lower in words.PLACES or lower in words.SOFTWARE or lower in words.LEFT_OTHERWISE:
        return ""
    first = parts[0].lower()
    if first in words.GIVEN_NAMES or first.strip(".") in ("mr", "mrs", "ms", "dr", "prof"):
        return ""
    if parts[-1].lower() in words.LEARNED_AT:
        return ""
    foreign = (words.NOT_NAMES - words.COMPANIES) | words.LANGUAGES | words.RELIGIONS
    return "" if any(part.lower() in foreign for part in parts) else name


def partner(text: str) -> str:
    """Somebody by name, also after what they were to one: "my husband Tom"."""
    return person(
        re.sub(r"^my (?:ex-?)? ?(?:wife|husband|spouse|partner|girlfriend|boyfriend),? ", "", text)
    )


def allergen(text: str) -> str:
    name = thing(text)
    vague = re.fullmatch(r"(?:food|known|other|drug|serious|severe|real|bad|seasonal)", name, re.I)
    return "" if vague else name


_NO_FOOD = re.compile(
    r"(?:another|more|much|many|enough|out|alone|at|in|on|with|without|before|after|until|while|"
    r"late|early|fast|quickly|slowly|well|properly|healthy|healthily|breakfast|lunch|dinner|"
    r"right|yet|again|all|like|for|if|bite|from|and|or|last|whole|rest|food|solid|often|"
    r"together|either|tonight)\b",
    re.I,
)


_AT_TIMES = re.compile(r" (?:after|before|until|while|when|during|at|on|past)\b(?! all)", re.I)


def foods(text: str) -> list[str]:
    """What one eats or drinks; not when, where or how much of it."""
    text = re.sub(r" for [\w ]{2,30} reasons$", "", text)
    if _AT_TIMES.search(text):
        return []
    return [] if _NO_FOOD.match(_ARTICLE.sub("", text)) else things(text)


def job(text: str) -> str:
    """An occupation: its last noun is one, or it heads something ("head of sales")."""
    name = thing(
        re.split(r" (?:at|for|with|in|from|by|on|here|specializing) ", text, maxsplit=1)[0]
    )
    if not name:
        return ""
    parts = name.lower().split()
    if len(parts) > 2 and parts[1] == "of" and parts[0] in words.JOB_LEADS:
        return name
    head = parts[parts.index("of") - 1] if "of" in parts[1:] else parts[-1]
    return name if head in words.JOB_HEADS else ""


def title(text: str) -> str:
    """What somebody works as: any noun, since the verb says that it is one."""
    return thing(re.split(r" (?:at|for|with|in|from) ", text, maxsplit=1)[0])


def language(text: str) -> str:
    """A language, without how well it is spoken."""
    name = _QUANTITY.sub("", text.strip())
    return name if name.lower() in words.LANGUAGES else ""


def languages(text: str) -> list[str]:
    return [name for part in _ITEMS.split(text)[:MOST_ITEMS] if (name := language(part))]


def age(text: str) -> str:
    number = number_of(text)
    return str(number) if number is not None and 1 <= number <= 120 else ""


def person(text: str) -> str:
    name = thing(text)
    parts = name.split()
    if not 1 <= len(parts) <= 4 or parts[0].lower() in words.NOT_NAMES:
        return ""
    return (
        name
        if all(part[:1].isupper() or part in ("de", "da", "van", "von") for part in parts)
        else ""
    )


def member(group: frozenset[str]) -> Callable[[str], str]:
    def clean(text: str) -> str:
        name = thing(text)
        return name if name.lower() in group else ""

    return clean


def business(text: str) -> str:
    name = thing(text)
    kind = re.split(r" (?:called|named|in|for|with) ", name, maxsplit=1)[0]
    return name if kind.split()[-1:] and kind.split()[-1].lower() in words.BUSINESSES else ""


def condition(text: str) -> str:
    return words.CONDITION_ADJECTIVES.get(text.lower(), "")


def product(text: str) -> str:
    """A thing one owns: named like a product, or of a kind that lasts."""
    name = thing(text)
    if re.search(rf"\b{words.DURABLES}\b", name, re.I) or has_capital(name.split(" ")[0]):
        return (
            ""
            if re.search(
                r"\b(?:meeting|interview|issue|problem|idea|concern|request|doubt|feeling|appointment|deadline|task|favor|dream|cold|fever|suggestion|flight|exam|call|question|date|party)\b",
                name,
                re.I,
            )
            else name
        )
    return ""


def preferred(text: str) -> str:
    return thing(re.split(r" (?:to|over|rather than|instead of|more than) ", text, maxsplit=1)[0])


def liked(text: str) -> list[str]:
    """What one likes, or likes to do."""
    if found := re.match(r"to (?=[a-z])(?!just|help|think|say|know|believe|see|be |do )", text):
        return things(text[found.end() :], deeds=True)
    return tastes(text)


def fancied(text: str) -> str:
    """What somebody is a fan of, without how great a fan they are."""
    return thing(re.sub(rf"^an? (?:(?:{_GREAT})(?: |$))*", "", text + " ").strip())


def field(text: str) -> str:
    name = thing(re.split(r" (?:at|in) ", text, maxsplit=1)[0])
    return (
        ""
        if re.search(r"\b(?:hard|more|night|home|library|abroad|exam|test|online)\b", name)
        else name
    )


def day(text: str) -> str:
    return re.sub(r"(?<=\d)(?:st|nd|rd|th)\b|\bthe | of\b", "", text).strip()


def deed(text: str) -> str:
    """Something that is done, in the words it was said in; "" when they point elsewhere."""
    text = _FILLER.sub("", text.strip(" ,.:;!")).strip(" ,.")
    if cut := re.search(r",? (?:because|so that|which|although|while|to help|so)\b", text):
        text = text[: cut.start()]
    return "" if GAP in text or not 1 <= len(text.split()) <= MOST_WORDS + 2 else text


def is_machine(job: str) -> bool:
    """Whether a program may be called that as well: a broker, a model, a password manager."""
    return job.lower().split()[-1] in words.MACHINES
