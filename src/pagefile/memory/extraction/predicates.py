"""The predicates that extractors use, and how many objects each may have at a time."""

from __future__ import annotations

import re

from pagefile.memory.extraction.word_list import listed

#: One object at a time: a new one ends the one before.
SINGLE = frozenset(
    listed(
        """
    has_name nickname pronouns age birthday birth_year born_in lives_in comes_from
    grew_up_in works_at job_title employment_status marital_status married_to engaged_to
    has_partner has_mother has_father has_boss follows_diet blood_type native_language
    timezone email phone address height weight shoe_size zodiac_sign religion nationality
    studies_at
    """
    )
)

#: Several objects at a time: a new one stands beside the others.
MULTI = frozenset(
    listed(
        """
    works_in runs likes dislikes prefers allergic_to intolerant_to does_not_eat
    does_not_drink has_condition takes_medication owns drives has_pet has_family speaks
    learning studies studied graduated_from has_degree plays hobby habit plans_to has_sister
    has_brother has_sibling has_son has_daughter has_child has_friend has_colleague
    has_roommate has_neighbor has_grandmother has_grandfather has_uncle has_aunt has_cousin
    has_niece has_nephew has_grandchild has_doctor has_teacher has_client
        has_parent afraid_of is_a website
    """
    )
)

_FAVORITE = "favorite_"


def favorite(thing: str) -> str:
    """The predicate of somebody's favourite thing of a kind."""
    return _FAVORITE + "_".join(thing.split())


def canonical(predicate: str) -> str:
    """One spelling: `livesIn`, `Lives In` and `lives-in` are `lives_in`."""
    split = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", predicate.strip())
    return re.sub(r"[\s\-_]+", "_", split).lower().strip("_")
