"""What the index stores: entries, the logs they lie in, and the catalogue of a tenant."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import msgspec

from pagefile.errors import Conflict, Corrupt, Unavailable, Unsupported
from pagefile.recall.embed.embedder import Floats, packed
from pagefile.recall.text.analysis import folded, terms_of, words
from pagefile.store.arguments import OF_TENANT
from pagefile.store.batch import Append, Batch, Condition, Operation, Put, Vector, VersionIs
from pagefile.store.codec.decoder import convert, json_decoder
from pagefile.store.codec.writer import encoded
from pagefile.store.records import Entry
from pagefile.store.store import Store

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


# The logs that an index is folded from: their names, and what their entries say.
#
# recall/<generation>/<whose>        in that user's partition
# recall/<generation>/making         nobody's, and without content: see `mark_of`


#: How many entries are read at once; more take no less time, and stay in memory meanwhile.
PAGE = 250
#: The kind of an entry that says only: something before this was erased, read again.
REREAD = "reread"
#: What the names of all of them begin with.
LOGS = "recall/"
_DECODER = json_decoder(IndexEntry)


def log_of(generation: int, whose: str) -> str:
    """The name of the log of one partition."""
    return f"{LOGS}{generation}/{whose}"


def marks_of(generation: int) -> str:
    """The name of the log of what is stored while that generation is made."""
    return f"{LOGS}{generation}/making"


def mark_of(generation: int) -> Append:
    """The operation that says: something was added to the index in force meanwhile.

    By the length of that log, who makes the new one knows whether it holds everything.
    """
    return Append(marks_of(generation), None, kind="recall")


def generation_of(log: str) -> int:
    """Which generation a log belongs to, by its name."""
    return int(log.split("/")[1])


def logs_of_index(store: Store) -> Iterator[str]:
    """The names of all logs of the index, of every generation."""
    after = ""
    while names := store.names("log", prefix=LOGS, after=after, limit=1_000):
        yield from names
        after = names[-1]


def append_entry(
    log: str, entry: IndexEntry, user: str | None, vector: Vector | None = None
) -> Append:
    """The operation that makes something findable, or no longer so."""
    # Text, numbers and truth values under names of ours: nothing that JSON would change.
    return Append(log, encoded(entry), user=user, kind="recall", vector=vector)


def entries_of(store: Store, log: str, start: int = 0) -> Iterator[Entry]:
    """All entries of a log, from one on, page by page."""
    while page := store.read(log, start, limit=PAGE):
        yield from page
        start = page[-1].index + 1


def before(store: Store, log: str, since: int) -> int:
    """A number in a log below which there is nothing after a position, found from its end."""
    length, back = store.length(log), PAGE
    while since and back < length:
        page = store.read(log, length - back, limit=1)
        if page and page[0].position <= since:
            return length - back
        back *= 2
    return 0


def decoded(entry: Entry) -> IndexEntry:
    """What an entry of the index says."""
    try:
        return _DECODER.decode(entry.body)
    except msgspec.DecodeError as error:
        raise Corrupt(
            f"entry {entry.index} of {entry.log!r} is none of a search index ({error})",
            "rebuild the index with reindex()",
        ) from error


# What a tenant's search index is made with: the embedding model, the analysis, the generation.
#
#     recall-model        in the tenant's own partition
#
# Every write to the index commits on condition that this document has not
# changed, so two models can never be mixed, whatever two processes do at once.


DOCUMENT = "recall-model"
#: The name of having no embedder: the lexical arm alone.
NO_MODEL = "none"
#: The name of what made an index whose catalogue was damaged, until it is made anew.
UNKNOWN = "unknown"


class Model(msgspec.Struct, frozen=True):
    """How entries of the index were made."""

    name: str
    dimensions: int
    analysis: int


class Catalogue(msgspec.Struct, frozen=True):
    """The model in force, the generation of logs it fills, and the document's version."""

    model: Model
    generation: int = 1
    #: Of an earlier version, which filled what is in force: that it is not whole.
    rebuilding: bool = False
    #: The generation that is made beside it, and the one it came after; 0 for none.
    making: int = 0
    leaving: int = 0
    version: int = 0

    @property
    def unchanged(self) -> VersionIs:
        """The condition that this is still what holds."""
        return VersionIs(DOCUMENT, self.version)

    @property
    def is_alone(self) -> bool:
        """Whether there are no logs of other generations."""
        return not (self.rebuilding or self.making or self.leaving)


def read_catalogue(store: Store) -> Catalogue | None:
    """What the index is made with; None before the first entry."""
    found = store.get(DOCUMENT)
    if found is None or found.erased:
        return None
    try:
        form = convert(found.value, _Stored)
    except msgspec.ValidationError as error:
        raise Corrupt(
            f"document {DOCUMENT!r} does not say what the index is made with ({error})",
            "rebuild the index with reindex()",
        ) from error
    beside = (form.rebuilding, form.making, form.leaving)
    return Catalogue(form.model, form.generation, *beside, found.version)


def settle_catalogue(store: Store, wanted: Model) -> Catalogue:
    """The catalogue, made with this model if there is none yet.

    Raises:
        Unsupported: the index was made with another model. Corrupt: it was erased, and
            nobody knows.
    """
    while (held := read_catalogue(store)) is None:
        # In this order: whoever began the index wrote the catalogue first, and may do so now.
        has_entries = bool(store.names("log", prefix=LOGS, limit=1))
        found = store.get(DOCUMENT)
        if found is not None and not found.erased:
            continue
        if found is not None or has_entries:
            # Entries whose model nobody knows must not be mixed with others.
            raise Corrupt(
                f"document {DOCUMENT!r}, which says what the index is made with, was erased",
                "rebuild the index with reindex()",
            )
        try:
            return write_catalogue(store, Catalogue(wanted))
        except Conflict:
            continue
    require_model(held, wanted)
    return held


def mended_catalogue(store: Store, generation: int) -> Catalogue:
    """What to begin with where the catalogue cannot be read: an index of an unknown model.

    It is not whole: which of its generations was in force nobody knows.
    """
    found = store.get(DOCUMENT)
    version = 0 if found is None else found.version
    return Catalogue(Model(UNKNOWN, 0, 0), generation, rebuilding=True, version=version)


def write_catalogue(
    store: Store,
    catalogue: Catalogue,
    beside: Sequence[Operation] = (),
    when: Sequence[Condition] = (),
) -> Catalogue:
    """Store it as the version after its own.

    Raises:
        Conflict: somebody else changed it, or a further condition does not hold.
    """
    others = (catalogue.rebuilding, catalogue.making, catalogue.leaving)
    form = _Stored(catalogue.model, catalogue.generation, *others)
    put = Put(DOCUMENT, msgspec.to_builtins(form), user=OF_TENANT, kind="recall")
    commit = store.commit(Batch([put, *beside], [catalogue.unchanged, *when]))
    return msgspec.structs.replace(catalogue, version=commit.versions[0])


def require_model(held: Catalogue, wanted: Model) -> None:
    """Refuse an index that another model made.

    Raises:
        Unsupported: it did; it says so where another is being made.
    """
    if held.model == wanted:
        return
    step = "open it with the same embedder, or rebuild the index with reindex()"
    if held.making:
        step = "reindex() was begun: wait until it is done; if it was cut off, call it again"
    fact = f"the search index is made with {_named(held.model)}"
    raise Unsupported(f"{fact}, and this handle has {_named(wanted)}", step)


def require_whole(held: Catalogue) -> None:
    """Refuse to answer from a part of what is kept.

    Raises:
        Unavailable: an earlier version was cut off while it made the index.
    """
    if held.rebuilding:
        raise Unavailable(
            "the search index holds only a part: making it anew is under way, or was cut off",
            "wait until reindex() is done; if it was cut off, call it again",
        )


def _named(model: Model) -> str:
    if model.name == NO_MODEL:
        return f"no embedder (analysis {model.analysis})"
    return f"{model.name!r} ({model.dimensions} dimensions, analysis {model.analysis})"


class _Stored(msgspec.Struct):
    model: Model
    generation: int
    rebuilding: bool
    making: int = 0
    leaving: int = 0
