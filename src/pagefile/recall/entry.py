"""What the index keeps of one thing that can be found."""

from __future__ import annotations

import re

import msgspec

from pagefile.recall.embed.embedder import Floats, packed
from pagefile.recall.text.analysis import folded, terms_of, words

_MOST_SPACES = re.compile(r"\s+")
_ASKS = re.compile(r"[?？؟][\s\"'”’)\]]*$")


class IndexEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One searchable thing, analysed: everything that a search needs, and no raw text.

    A later entry with the same `key` replaces the earlier one; one that is `gone`
    removes it.
    """

    #: Name of the document that the thing is.
    key: str
    #: "episode", "fact", "item", …
    kind: str
    #: The terms in their order, joined by spaces.
    text: str = ""
    #: How many words the raw text had; a short turn leans on its neighbours.
    heard: int = 0
    #: Who said it, normalised by `speaker_of`; "" when unknown.
    speaker: str = ""
    #: Whether the speaker was only read from the text, which then holds the name as a word.
    guessed: bool = False
    session: str = ""
    #: When it happened.
    time_us: int = 0
    #: Of items and facts: active, superseded, …
    status: str = ""
    scope: str = ""
    #: float16, little endian, of unit length; empty when there is none.
    vector: bytes = b""
    #: Whether the vector was given, and cannot be made again from the text.
    brought: bool = False
    #: Whether the text ends in a question: what is asked is seldom what was told.
    asks: bool = False
    gone: bool = False


def speaker_of(name: str) -> str:
    """A name as speakers are compared: folded, with single spaces."""
    return _MOST_SPACES.sub(" ", folded(name)).strip() if name else ""


#: What stands before a colon without being a name.
_LABELS = frozenset(
    [
        "answer",
        "example",
        "from",
        "hint",
        "important",
        "info",
        "nb",
        "note",
        "notes",
        "ps",
        "question",
        "re",
        "reminder",
        "subject",
        "summary",
        "task",
        "tip",
        "title",
        "to",
        "todo",
        "update",
        "warning",
    ]
)
_NAMED = re.compile(r"([A-Z][\w'’.-]*(?: [A-Z][\w'’.-]*){0,3}):\s+(?=\S)")


def speaker_in(text: str) -> tuple[str, str]:
    """Who seems to speak and what is said, where a text says so itself: `Ann Lee: I am in Rome`.

    "" and the text where it does not, or where what stands there is no name. It is a
    guess: `Allergies: peanuts` looks the same.
    """
    found = _NAMED.match(text)
    if found is None or folded(found[1]) in _LABELS:
        return "", text
    return found[1], text[found.end() :]


def told(text: str, speaker: str = "", caption: str = "") -> str:
    """What an embedder is given of a thing: who said it, too, since questions name people."""
    said = f"{speaker}: {text}" if speaker else text
    return f"{said} {caption}".strip() if caption else said


def entry_of(
    *,
    key: str,
    kind: str,
    text: str,
    speaker: str = "",
    guessed: bool = False,
    session: str = "",
    time_us: int = 0,
    status: str = "",
    scope: str = "",
    vector: Floats | bytes | None = None,
    brought: bool = False,
    caption: str = "",
) -> IndexEntry:
    """The entry of a raw text.

    `caption` is text that belongs to the thing but was not said, such as that of a picture.
    The vector is best that of `told(…)`, and is to be of unit length, as `embed_texts` gives it.
    """
    heard = words(f"{text}\n{caption}" if caption else text)
    return IndexEntry(
        key=key,
        kind=kind,
        text=" ".join(terms_of(heard)),
        heard=len(heard),
        speaker=speaker_of(speaker),
        guessed=guessed,
        session=session,
        time_us=time_us,
        status=status,
        scope=scope,
        vector=b"" if vector is None else vector if isinstance(vector, bytes) else packed(vector),
        brought=brought,
        # Most ask nothing, which is seen at once.
        asks=("?" in text or not text.isascii()) and _ASKS.search(text) is not None,
    )


def gone(key: str, kind: str = "") -> IndexEntry:
    """The entry that removes a key."""
    return IndexEntry(key=key, kind=kind, gone=True)
