"""Where people live, what they are, what they work and whom they belong to."""

from __future__ import annotations

import re

from pagefile.memory.extraction import objects, words
from pagefile.memory.extraction.patterns import BE, HAVE, Emit, also, of, rule
from pagefile.recall.text.dates import NUMBER

_AT = r"(?: (?:at|for|with) (?P<org>.+?))?"

RULES = (
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
