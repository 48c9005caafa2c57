"""Relations and names: who a clause is about."""

from __future__ import annotations

import re

import msgspec

from pagefile.memory.extraction import words
from pagefile.memory.extraction.words import listed

_ROLES: dict[str, tuple[str, str]] = {}
for _predicate, _role, _spoken in (
    ("has_sister", "sister", "sister sis"),
    ("has_brother", "brother", "brother bro"),
    ("has_sibling", "sibling", "sibling"),
    ("has_mother", "mother", "mother mom mum mommy mama"),
    ("has_father", "father", "father dad daddy papa"),
    ("has_parent", "parents", "parents folks"),
    ("has_son", "son", "son"),
    ("has_daughter", "daughter", "daughter"),
    ("has_child", "child", "child kid baby"),
    ("married_to", "wife", "wife"),
    ("married_to", "husband", "husband hubby"),
    ("married_to", "spouse", "spouse"),
    ("has_partner", "partner", "partner girlfriend boyfriend"),
    ("engaged_to", "fiancé", "fiancé fiancée fiance fiancee"),
    ("has_friend", "friend", "friend buddy mate"),
    ("has_colleague", "colleague", "colleague coworker co-worker teammate"),
    ("has_boss", "boss", "boss manager supervisor"),
    ("has_roommate", "roommate", "roommate flatmate housemate"),
    ("has_neighbor", "neighbor", "neighbor neighbour"),
    ("has_grandmother", "grandmother", "grandmother grandma granny nana"),
    ("has_grandfather", "grandfather", "grandfather grandpa granddad"),
    ("has_uncle", "uncle", "uncle"),
    ("has_aunt", "aunt", "aunt auntie"),
    ("has_cousin", "cousin", "cousin"),
    ("has_niece", "niece", "niece"),
    ("has_nephew", "nephew", "nephew"),
    ("has_grandchild", "grandchild", "grandson granddaughter grandchild"),
    ("has_doctor", "doctor", "doctor dentist therapist gp"),
    ("has_teacher", "teacher", "teacher tutor coach"),
    ("has_client", "client", "client"),
):
    for _word in _spoken.split():
        _ROLES[_word] = (_predicate, _role)

_PLURALS = {"kids": "kid", "children": "child", "babies": "baby", "wives": "wife"}
_HOUSEHOLD = listed(
    """
    brother sister sibling son daughter kid child children twin niece nephew cousin grandson
    granddaughter grandchild grandchildren stepson stepdaughter stepbrother stepsister
    """
)

_ROLE = "|".join(sorted(map(re.escape, [*_ROLES, *_PLURALS]), key=len, reverse=True))
_RELATIVE = re.compile(
    rf"(?:my|our) (?P<which>(?:best|close|good|old|new|younger|older|elder|eldest|oldest|youngest|"
    rf"little|big|twin|late|dear|ex|step|former) ?-?)*(?P<role>{_ROLE})s?\b(?!-|'| of )",
    re.I,
)
_POSSESSED = re.compile(rf"(?:my|our) (?:(?:\w+ )?)(?P<role>{_ROLE})'s? ", re.I)
_PET_POSSESSED = re.compile(rf"(?:my|our) (?:\w+ )?(?P<kind>{words.PET})'s? ", re.I)
_PET = re.compile(
    rf"(?:my|our) (?:(?:old|new|little) )?(?!late |former |previous |childhood )"
    rf"(?P<kind>(?:\w+ )??(?:{words.PET}))(?!-)\b(?!')",
    re.I,
)

_PART = r"[A-ZÀ-ÖØ-ÞŁŚŠŽČĆŞİ][\w'\-]*[\w]|[A-ZÀ-ÖØ-Þ]\."
NAME = (
    rf"(?:(?:Mr|Mrs|Ms|Dr|Prof|St)\.? )?(?:{_PART})(?: (?:(?:de|da|van|von|der|bin|al|la|le) "
    rf")?(?:{_PART})){{0,3}}"
)
_NAME = re.compile(NAME)
_TITLED = re.compile(r"(?:Mr|Mrs|Ms|Dr|Prof)\b")


class Subject(msgspec.Struct, frozen=True):
    """Who a clause is about, what is left of it, and how the speaker is related to them."""

    name: str
    rest: str
    first_person: bool
    #: (predicate, name) of the speaker's relation that the naming itself states.
    relation: tuple[str, str] | None = None
    #: What an animal is, when it was named.
    kind: str = ""
    #: The predicate that a name given in the rest would have: "my wife is called …".
    role: str = ""
    #: "We", who share a home but no birthday.
    plural: bool = False
    #: Only a name: it may be a product's.
    stranger: bool = False


#: One person likes, is and has. A word before "like" is no person.
_PLAIN_FORM = re.compile(
    r" (?:like|love|live|work|enjoy|hate|have|own|speak|play|drive|prefer|run|study|am|are|"
    r"eat|take|"
    r"suffer|dislike|collect|adore|come|go)\b"
)
_FIRST = re.compile(r"(?:i|we)(?: both| all| personally| myself)? (?=\S)", re.I)
_LONE_PARENT = re.compile(r"(?:Mom|Mum|Dad|Grandma|Grandpa|Granny)\b(?= [a-z])")


def subject_of(clause: str, speaker: str) -> Subject | None:
    """The subject a clause begins with; None when it is nobody that rules speak about."""
    if first := _FIRST.match(clause):
        return Subject(speaker, clause[first.end() :], True, plural=first[0][:2].lower() == "we")
    if pet := _PET.match(clause):
        return _pet(clause, pet)
    if relative := _RELATIVE.match(clause):
        return _relative(clause, relative, speaker)
    if parent := _LONE_PARENT.match(clause):
        _, role = _ROLES[parent[0].lower()]
        return Subject(f"{speaker}'s {role}", clause[parent.end() :].strip(), False)
    name = _NAME.match(clause)
    if name is None or not is_person(name[0]):
        return None
    rest = clause[name.end() :]
    if not rest.startswith(" ") or _PLAIN_FORM.match(rest):
        return None
    return Subject(name[0], rest.strip(), False, stranger=not _TITLED.match(name[0]))


class Owner(msgspec.Struct, frozen=True):
    """Whose attribute a clause begins with, and what is left of the clause."""

    name: str
    rest: str
    #: What they are to the speaker, as a predicate; and what an animal is.
    relation: str = ""
    kind: str = ""
    #: "The name is …": said of oneself only where nothing else has one.
    vague: bool = False


def owner_of(clause: str, speaker: str) -> Owner | None:
    """Whose attribute it is: "my …", "my sister's …", "Bob's …"."""
    if found := _PET_POSSESSED.match(clause):
        kind = found["kind"].lower()
        return Owner(f"{speaker}'s {kind}", clause[found.end() :], "has_pet", kind)
    if found := _POSSESSED.match(clause):
        predicate, role = _ROLES[_singular(found["role"])]
        return Owner(f"{speaker}'s {role}", clause[found.end() :], predicate)
    if (found := re.match(r"(?:my|our|the) ", clause, re.I)) and not _RELATIVE.match(clause):
        vague = found[0].lower() != "my "
        return Owner(speaker, clause[found.end() :], vague=vague)
    if (found := re.match(rf"({NAME})'s ", clause)) and is_person(found[1]):
        return Owner(found[1], clause[found.end() :])
    return None


def is_person(name: str, *, related: bool = False) -> bool:
    """Whether words with capitals can be somebody's name; sentences begin with a capital too."""
    parts = name.split()
    if "'" in parts[-1][-3:]:
        return False  # "Family's", "I'll": a name of that form is rare, the others are not.
    if len(parts) > 4 or any(part.lower().strip(".") in words.NOT_NAMES for part in parts):
        return False
    return related or name.lower() not in words.PLACES


def household(noun: str) -> bool:
    """Whether a noun is a relative that people count: "two sons"."""
    return noun.lower() in _HOUSEHOLD or noun.lower().removesuffix("s") in _HOUSEHOLD


def _pet(clause: str, found: re.Match[str]) -> Subject | None:
    rest = clause[found.end() :].strip()
    kind = found["kind"].lower()
    name = _NAME.match(rest) if found["kind"].islower() and kind != "chicken" else None
    if name is None:
        return Subject("", rest, False, None, kind, "has_pet")
    after = rest[name.end() :].strip(" ,")
    return Subject(name[0], after, False, ("has_pet", name[0]), kind)


def _relative(clause: str, found: re.Match[str], speaker: str) -> Subject | None:
    rest = clause[found.end() :].strip(" ,")
    predicate, role = _ROLES[_singular(found["role"])]
    if found["which"] and found["which"].strip().lower() in ("ex", "ex-", "late", "former", "step"):
        return None
    plain = Subject(f"{speaker}'s {role}", rest, False, None, "", predicate)
    name = _NAME.match(rest)
    # "My Brother printer": a relation is not written with a capital.
    if name is None or not found["role"].islower() or not is_person(name[0], related=True):
        return plain
    return Subject(name[0], rest[name.end() :].strip(" ,"), False, (predicate, name[0]))


def _singular(word: str) -> str:
    word = word.lower()
    return _PLURALS.get(word, word)


def relation(noun: str) -> str:
    """The predicate for somebody who is that to the speaker, or ""."""
    return _ROLES.get(_singular(noun), ("", ""))[0]


def names(text: str) -> list[str]:
    """The people of a list: "Ben and Tilly"; nobody when a part of it is no name."""
    parts = re.split(r",? and |, ", text.strip(" .,"))
    found = [
        part
        for part in parts
        if _NAME.fullmatch(part) and is_person(part) and not is_kind(part) and not part.isupper()
    ]
    return found if len(found) == len(parts) <= 6 else []


def is_kind(name: str) -> bool:
    """Whether it says what somebody is, not who: "Italian", "Catholic"."""
    word = name.lower()
    if word in words.NATIONALITIES or word in words.RELIGIONS or word in words.JOB_HEADS:
        return True
    return _QUALITY.search(word) is not None or word in words.CONDITION_ADJECTIVES


_QUALITY = re.compile(rf"(?:ed|ing|ious|ful|less|able)$|^{words.DIETS}$")
