"""What a tenant's search index is made with: the embedding model, the analysis, the generation.

    recall-model        in the tenant's own partition

Every write to the index commits on condition that this document has not
changed, so two models can never be mixed, whatever two processes do at once.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from pagefile.errors import Conflict, Corrupt, Unavailable, Unsupported
from pagefile.recall.logs import LOGS
from pagefile.store.batch import Batch, Condition, Operation, Put, VersionIs
from pagefile.store.codec.decoder import convert
from pagefile.store.names import OF_TENANT
from pagefile.store.store import Store

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
