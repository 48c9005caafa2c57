"""The table of rules: what a verb phrase must look like to state a fact, and how sure that is."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Literal

import msgspec

from pagefile.memory.extraction import objects, words
from pagefile.memory.extraction.clauses import Polarity
from pagefile.memory.extraction.dates import NUMBER

#: How a rule's time is read: it holds, it began, it ended, or it held between two years.
Tense = Literal["holds", "began", "ended", "held", "lasts"]
Cleaner = Callable[[str], str | Sequence[str]]

BE = r"(?:am|is|are|be)"
HAVE = r"(?:have|has)"


class Emit(msgspec.Struct, frozen=True):
    """One fact that a match gives: from a group of it, cleaned, under a predicate."""

    group: str
    predicate: str
    clean: Cleaner
    #: The fact ends where the rule's begins: "moved from … to …".
    ends: bool = False
    #: Without it the whole match says nothing.
    needed: bool = True


class Rule(msgspec.Struct, frozen=True):
    """A form of words, what it states and how often that is right."""

    pattern: re.Pattern[str]
    emits: tuple[Emit, ...]
    confidence: float
    tense: Tense = "holds"
    polarity: Polarity = "affirmed"
    #: Whether it may be said of others too.
    anyone: bool = True
    #: A bare "have done" says that it was once so, not that it is: it needs a "since".
    needs_since: bool = False
    #: Whether "we" say something else with it: we left the party.
    alone: bool = False


def rule(
    pattern: str,
    *emits: Emit,
    sure: float,
    tense: Tense = "holds",
    polarity: Polarity = "affirmed",
    anyone: bool = True,
    needs_since: bool = False,
    alone: bool = False,
) -> Rule:
    """A rule whose pattern is the whole phrase, in any case."""
    compiled = re.compile(pattern + r"$", re.I)
    return Rule(compiled, emits, sure, tense, polarity, anyone, needs_since, alone)


def of(predicate: str, clean: Cleaner = objects.thing, group: str = "o") -> Emit:
    """The fact without which a rule states nothing."""
    return Emit(group, predicate, clean)


def also(predicate: str, clean: Cleaner, group: str, ends: bool = False) -> Emit:
    """A fact that a rule states beside its first, if the words are there."""
    return Emit(group, predicate, clean, ends, needed=False)


# Where people live, what they are, what they work and whom they belong to.


_AT = r"(?: (?:at|for|with) (?P<org>.+?))?"

LIFE_RULES = (
    # Home
    rule(
        rf"(?:lives?|resides?|{BE} (?:living|residing)|{HAVE} been living) (?:in|at|near|on) "
        rf"(?P<o>.+)",
        of("lives_in", objects.place),
        sure=0.95,
    ),
    rule(
        rf"{HAVE} (?:lived|resided) in (?P<o>.+)",
        of("lives_in", objects.place),
        sure=0.9,
        needs_since=True,
    ),
    rule(
        rf"(?:{BE}|{HAVE} been) based (?:in|out of) (?P<o>.+)",
        of("lives_in", objects.place),
        sure=0.85,
        anyone=False,
    ),
    rule(r"lived in (?P<o>.+)", of("lives_in", objects.place), sure=0.8, tense="held"),
    rule(
        rf"(?:{HAVE} )?(?:moved|relocated|emigrated|immigrated)(?: from (?P<old>.+?))? to "
        rf"(?P<o>.+?)(?: from (?P<left>.+))?",
        of("lives_in", objects.place),
        also("lives_in", objects.place, "old", ends=True),
        also("lives_in", objects.place, "left", ends=True),
        sure=0.9,
        tense="began",
    ),
    rule(
        r"(?:left|moved (?:away from|out of)) (?P<o>.+)",
        Emit("o", "lives_in", objects.member(words.PLACES)),
        sure=0.75,
        tense="ended",
    ),
    rule(
        rf"(?:{HAVE} )?left (?P<o>.+)",
        of("works_at", objects.left_employer),
        sure=0.85,  # It ends only what is known: an employer of that name.
        tense="ended",
        anyone=False,
        alone=True,
    ),
    rule(
        rf"(?:{BE}|comes?|hails?)(?: originally)? from (?!the )(?P<o>.+)",
        of("comes_from", objects.place),
        sure=0.85,
    ),
    rule(
        r"(?:grew up|was raised) in (?P<o>.+)",
        of("grew_up_in", objects.place),
        sure=0.9,
        tense="lasts",
    ),
    # Birth and age
    rule(
        rf"{BE} (?P<o>{NUMBER})(?: years? old| years? of age| yo)?",
        of("age", objects.age),
        sure=0.85,
    ),
    rule(rf"{BE} an? (?P<o>{NUMBER})[- ]year[- ]old\b.*", of("age", objects.age), sure=0.95),
    rule(
        rf"(?:turned|{HAVE} turned) (?P<o>{NUMBER})",
        of("age", objects.age),
        sure=0.9,
        tense="began",
    ),
    rule(
        r"was born (?:on (?P<o>[\w ,]{4,20}?))(?: (?:in|at) (?P<place>[^\d]+))?",
        of("birthday", objects.day),
        also("born_in", objects.place, "place"),
        sure=0.95,
        tense="lasts",
    ),
    rule(r"was born in (?P<o>[^\d]+)", of("born_in", objects.place), sure=0.9, tense="lasts"),
    # Names
    rule(
        rf"{BE} (?:called|named) (?P<o>.+)", of("has_name", objects.person), sure=0.9, anyone=False
    ),
    rule(
        r"(?:go|goes) by (?:the name )?(?P<o>.+)",
        of("nickname", objects.person),
        sure=0.85,
        anyone=False,
    ),
    # Work
    rule(
        rf"(?:(?:works?|{BE} working|{HAVE} been working) (?:at|for)|{BE} employed (?:at|by|with)) "
        rf"(?P<o>.+?)(?: as (?:an? |the )?(?P<title>.+))?",
        of("works_at", objects.organisation),
        also("job_title", objects.title, "title"),
        sure=0.95,
    ),
    rule(
        rf"{HAVE} worked (?:at|for) (?P<o>.+?)(?: as (?:an? |the )?(?P<title>.+))?",
        of("works_at", objects.organisation),
        also("job_title", objects.title, "title"),
        sure=0.9,
        needs_since=True,
    ),
    rule(
        r"worked (?:at|for) (?P<o>.+)", of("works_at", objects.organisation), sure=0.8, tense="held"
    ),
    rule(
        rf"(?:works?|{BE} working|{HAVE} been working) as (?:an? |the )?(?P<o>.+?){_AT}",
        of("job_title", objects.title),
        also("works_at", objects.organisation, "org"),
        sure=0.95,
    ),
    rule(
        rf"(?:works?|{BE} working) in (?:the )?(?P<o>[\w-]+)(?: industry| sector)?",
        of("works_in", objects.member(words.FIELDS)),
        sure=0.85,
    ),
    rule(
        rf"(?:{HAVE} )?(?:started(?: working| work| a new job| a job| my new job| my job)? "
        rf"(?:at|for|with)|joined) (?P<o>.+?)(?: as (?:an? |the )?(?P<title>.+))?",
        of("works_at", objects.company),
        also("job_title", objects.title, "title"),
        sure=0.8,
        tense="began",
    ),
    rule(
        rf"(?:(?:just )?(?:got|landed|accepted|found|started)|{HAVE}) (?:a|my) (?:new "
        rf")?(?:job|position|role) (?:at|with) (?P<o>.+?)(?: as (?:an? |the )?(?P<title>.+))?",
        of("works_at", objects.organisation),
        also("job_title", objects.title, "title"),
        sure=0.85,
        tense="began",
    ),
    rule(
        rf"(?:{HAVE} )?(?:quit|left|lost|resigned from|retired from|(?:was|got|been) "
        rf"(?:fired|laid off) from)(?: (?:my|the) (?:job|position|role) (?:at|with)) "
        rf"(?P<o>.+)",
        of("works_at", objects.organisation),
        sure=0.9,
        tense="ended",
    ),
    rule(
        rf"(?:{HAVE} )?(?:resigned|(?:was|got|been) (?:fired|laid off)) from (?P<o>.+)",
        of("works_at", objects.organisation),
        sure=0.85,
        tense="ended",
    ),
    rule(
        rf"(?:{BE}|{HAVE} been) (?:an?|the) (?P<o>.+?){_AT}",
        of("job_title", objects.job),
        also("works_at", objects.organisation, "org"),
        sure=0.9,
    ),
    rule(
        r"(?:became|was promoted to|got promoted to|was hired as|got hired as) (?:an? )?(?P<o>.+)",
        of("job_title", objects.job),
        sure=0.85,
        tense="began",
    ),
    rule(
        rf"{BE} (?:in )?(?P<o>self-employed|self employed|unemployed|retired|freelancing|"
        rf"a student|between jobs|a freelancer|a stay-at-home (?:mom|dad|parent))",
        of("employment_status"),
        sure=0.9,
    ),
    rule(r"(?P<o>retired)", of("employment_status"), sure=0.85, tense="began"),
    rule(
        rf"(?:runs?|owns?|{BE} running|founded|co-founded) (?P<o>(?:an?|my own|our own) .+)",
        of("runs", lambda t: objects.business(re.sub(r"^(?:my|our) own ", "", t))),
        sure=0.85,
        anyone=False,
    ),
    # People
    rule(rf"{BE} married to (?P<o>.+)", of("married_to", objects.person), sure=0.95),
    rule(rf"{BE} engaged to (?P<o>.+)", of("engaged_to", objects.person), sure=0.95),
    rule(
        rf"{BE} (?:dating|seeing|in a relationship with) (?P<o>.+)",
        of("has_partner", objects.person),
        sure=0.8,
    ),
    rule(
        rf"(?:{BE}|{HAVE} been) (?P<o>married|divorced|widowed|engaged|single)",
        of("marital_status"),
        sure=0.85,
    ),
    rule(
        rf"(?:{HAVE} |{BE} |got )?(?P<status>divorced)(?: from)? (?P<o>.+)",
        Emit("o", "married_to", objects.partner, ends=True),
        also("marital_status", objects.thing, "status"),
        sure=0.9,
        tense="began",
    ),
    rule(
        rf"(?:{HAVE} )?(?:broke|broken|split) up with (?P<o>.+)",
        of("has_partner", objects.partner),
        sure=0.85,
        tense="ended",
    ),
    rule(r"got (?P<o>married|divorced|engaged)", of("marital_status"), sure=0.85, tense="began"),
)


# What people like, eat, suffer from, own, speak, learn and play.


_LOVES = (
    r"(?:(?:loves?|likes?|enjoys?|adores?)|(?:have|has)(?: always)? (?:loved|liked|enjoyed|"
    r"adored)|always loved)"
)

_HATED = (of("dislikes", objects.tastes), also("likes", objects.tastes, "o", ends=True))

TASTE_RULES = (
    # Taste
    rule(rf"{_LOVES} (?P<o>.+)", of("likes", objects.liked), sure=0.85),
    rule(
        rf"{BE} (?:an? )?(?:big |huge |massive |great |lifelong |avid |die-hard |real |total "
        rf")*(?:fan|lover) of (?P<o>.+)",
        of("likes", objects.tastes),
        sure=0.85,
    ),
    rule(
        rf"{BE} (?P<o>an? [\w ]+) (?:fan|lover|enthusiast|buff)",
        of("likes", objects.fancied),
        sure=0.75,
    ),
    rule(
        rf"(?:{BE}|{HAVE} been) (?:into|fond of|obsessed with|passionate about|crazy about|"
        rf"keen on|addicted to) (?P<o>.+)",
        of("likes", objects.tastes),
        sure=0.8,
    ),
    rule(
        r"(?:hates?|dislikes?|despises?|detests?|loathes?) (?P<o>.+)",
        *_HATED,
        sure=0.85,
    ),
    rule(
        r"can not (?:stand|bear) (?P<o>.+)",
        *_HATED,
        sure=0.85,
        polarity="denied",
    ),
    rule(
        r"can (?:stand|bear|tolerate) (?P<o>.+)",
        *_HATED,
        sure=0.85,
        polarity="denied",
    ),
    rule(
        r"(?:like|likes|enjoy|love) (?P<o>.+)",
        *_HATED,
        sure=0.85,
        polarity="denied",
    ),
    rule(
        rf"{BE} (?:an? )?(?:big |huge )?fan of (?P<o>.+)",
        *_HATED,
        sure=0.75,
        polarity="denied",
    ),
    rule(
        rf"{BE} (?:afraid|scared|terrified) of (?P<o>.+)", of("afraid_of", objects.tastes), sure=0.8
    ),
    rule(r"prefers? (?P<o>.+)", of("prefers", objects.preferred), sure=0.85),
    # Food and health
    rule(
        rf"(?:{BE}|{HAVE} been) allergic to (?P<o>.+)", of("allergic_to", objects.things), sure=0.95
    ),
    rule(
        rf"{HAVE} (?:a |an )?(?:severe |bad |mild |serious )?(?P<o>[\w ]+?) allerg(?:y|ies)",
        of("allergic_to"),
        sure=0.9,
    ),
    rule(
        rf"{HAVE} an? (?:severe |bad |mild )?allergy to (?P<o>.+)",
        of("allergic_to", objects.things),
        sure=0.95,
    ),
    rule(rf"{BE} (?P<o>[\w]+)[ -]intolerant", of("intolerant_to"), sure=0.9),
    # What one is not, one may have been thought to be: it ends.
    rule(
        rf"(?:{BE}|{HAVE} been) allergic to (?P<o>.+)",
        of("allergic_to", objects.things),
        sure=0.9,
        tense="ended",
        polarity="denied",
    ),
    rule(
        rf"{HAVE} (?:an? )?(?P<o>[\w ]+?) allerg(?:y|ies)",
        of("allergic_to", objects.allergen),
        sure=0.85,
        tense="ended",
        polarity="denied",
    ),
    rule(
        rf"{HAVE} (?:an? |any )?allerg(?:y|ies) to (?P<o>.+)",
        of("allergic_to", objects.things),
        sure=0.9,
        tense="ended",
        polarity="denied",
    ),
    rule(
        rf"{BE} (?P<o>[\w]+)[ -]intolerant",
        of("intolerant_to"),
        sure=0.85,
        tense="ended",
        polarity="denied",
    ),
    rule(
        rf"(?:{BE}|{HAVE} been)(?: on)?(?: an?)?(?: strict)? (?P<o>{words.DIETS})(?: diet)?",
        of("follows_diet"),
        sure=0.9,
    ),
    rule(
        rf"(?:became|went|turned)(?: an?)? (?P<o>{words.DIETS})",
        of("follows_diet"),
        sure=0.9,
        tense="began",
    ),
    rule(
        r"(?:can )?eat (?P<o>.+)", of("does_not_eat", objects.foods), sure=0.85, polarity="denied"
    ),
    rule(
        r"(?:can )?drink (?P<o>.+)",
        of("does_not_drink", objects.foods),
        sure=0.85,
        polarity="denied",
    ),
    rule(rf"{HAVE} (?P<o>{words.CONDITIONS})", of("has_condition"), sure=0.9),
    rule(
        rf"{BE} (?P<o>{'|'.join(words.CONDITION_ADJECTIVES)})",
        of("has_condition", objects.condition),
        sure=0.85,
    ),
    rule(r"(?:was|got) diagnosed with (?P<o>.+)", of("has_condition"), sure=0.9, tense="began"),
    rule(
        rf"(?:suffers?|{BE} suffering) from (?P<o>.+)",
        of("has_condition", objects.things),
        sure=0.85,
    ),
    rule(
        rf"(?:takes?|{BE} taking|{BE} on) (?P<o>{words.MEDICINE})(?: (?:every|twice|once|"
        rf"daily|for|each|in the|at night|three).*)?",
        of("takes_medication"),
        sure=0.85,
    ),
    # Things
    rule(
        r"drives? (?P<o>(?:an?|the) .+)",
        of("drives", lambda t: "" if re.search(r"\bhard\b|bargain", t) else objects.thing(t)),
        sure=0.85,
    ),
    rule(r"owns? (?P<o>.+)", of("owns"), sure=0.9),
    rule(rf"{HAVE} (?P<o>(?:an?|my own) .+)", of("owns", objects.product), sure=0.7),
    rule(
        r"(?:bought|purchased) (?P<o>(?:an?|my first|a new) .+)",
        of("owns", lambda t: objects.product(re.sub(r"^my first |^a new ", "", t))),
        sure=0.75,
        tense="began",
    ),
    # Languages, study, play
    rule(r"(?:can )?(?:speaks?) (?P<o>.+)", of("speaks", objects.languages), sure=0.95),
    rule(rf"{BE} fluent in (?P<o>.+)", of("speaks", objects.languages), sure=0.95),
    rule(
        rf"(?:{BE}|{HAVE} been) (?:learning|studying) (?P<o>{'|'.join(sorted(words.LANGUAGES))})",
        of("learning"),
        sure=0.9,
    ),
    rule(rf"(?:{BE}|{HAVE} been) learning(?: how)? to (?P<o>.+)", of("learning"), sure=0.8),
    rule(
        rf"(?:study|studies|{BE} studying|{HAVE} been studying) (?P<o>.+?)(?: at (?P<org>.+))?",
        of("studies", objects.field),
        also("studies_at", objects.organisation, "org"),
        sure=0.85,
    ),
    rule(
        rf"(?:study|studies|{BE} studying) at (?P<o>.+)",
        of("studies_at", objects.organisation),
        sure=0.9,
    ),
    rule(
        rf"{BE} an? (?:[\w-]+ ){{0,3}}student (?:at|in) (?P<o>.+)",
        of("studies_at", objects.organisation),
        sure=0.9,
    ),
    rule(
        r"graduated (?:from|at) (?P<o>.+)",
        of("graduated_from", objects.organisation),
        sure=0.95,
        tense="began",
    ),
    rule(
        r"(?:majored in|studied) (?P<o>[^\d]+?)(?: at .+)?",
        of("studied", objects.field),
        sure=0.85,
        tense="lasts",
    ),
    rule(
        rf"{HAVE} an? (?P<o>(?:phd|ph\.d\.|doctorate|master's(?: degree)?|masters?|"
        rf"bachelor's(?: degree)?|mba|degree|ba|bsc|msc|law degree)(?: in .+)?)",
        of("has_degree"),
        sure=0.95,
    ),
    rule(
        rf"(?:plays?|{HAVE} played|{HAVE} been playing)(?: the| a lot of| some| "
        rf"competitive)? (?P<o>{words.PLAYED}(?:(?:,? and|,) (?:the )?{words.PLAYED})*)(?: .*)?",
        of("plays", objects.things),
        sure=0.85,
    ),
    rule(
        r"(?P<o>collects? .+)",
        of("hobby", lambda t: objects.thing(re.sub(r"^collects", "collect", t))),
        sure=0.75,
    ),
    rule(rf"{BE} in the (?P<o>.+?) time ?zone", of("timezone"), sure=0.9, anyone=False),
    rule(rf"{BE} (?P<o>\w+)", of("nationality", objects.member(words.NATIONALITIES)), sure=0.8),
    rule(rf"{BE} (?:an? )?(?P<o>\w+)", of("religion", objects.member(words.RELIGIONS)), sure=0.75),
)
