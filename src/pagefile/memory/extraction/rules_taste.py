"""What people like, eat, suffer from, own, speak, learn and play."""

from __future__ import annotations

import re

from pagefile.memory.extraction import objects, words
from pagefile.memory.extraction.patterns import BE, HAVE, also, of, rule

_LOVES = (
    r"(?:(?:loves?|likes?|enjoys?|adores?)|(?:have|has)(?: always)? (?:loved|liked|enjoyed|"
    r"adored)|always loved)"
)

_HATED = (of("dislikes", objects.tastes), also("likes", objects.tastes, "o", ends=True))

RULES = (
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
