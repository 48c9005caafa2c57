"""A second commit of the same idempotency key: the same content, or an error."""

from __future__ import annotations

import msgspec

from pagefile.errors import Invalid
from pagefile.store.engine import Engine, Prepared, RawCommit, Sealed, Write
from pagefile.store.records import Action, Content, digest_of, read_manifest


def repeat_of(commit: RawCommit) -> Sealed:
    """What the first commit of a key answered, read back from its manifest."""
    indexes: list[int] = []
    versions: list[int] = []
    for entry in read_manifest(commit.position, commit.manifest):
        if entry[0] in (Action.APPEND, Action.FORK):
            indexes.append(int(entry[2]))
        elif entry[0] in (Action.PUT, Action.DELETE):
            versions.append(int(entry[2]))
    return Sealed(commit, tuple(indexes), tuple(versions), True)


def require_same_content(engine: Engine, tenant: str, batch: Prepared, first: RawCommit) -> None:
    """Refuse a batch that reuses a key for something else.

    The first commit's salts are in its records, so its digests can be made
    again from the new content. Where the records were erased since, nothing is
    left to compare, and the repeat is answered: a replay must not resurrect.
    """
    entries = read_manifest(first.position, first.manifest)
    asked = [(write, content) for write in batch.writes for content in (write.contents or (None,))]
    # A dropped fork may have let go of more than it asked for.
    while len(entries) > len(asked) and entries[-1][0] == Action.PRUNE:
        entries.pop()
    if len(entries) != len(asked):
        raise _other_content(first)
    for (write, content), entry in zip(asked, entries, strict=True):
        if not _agrees(engine, tenant, write, content, entry):
            raise _other_content(first)


def _agrees(
    engine: Engine,
    tenant: str,
    write: Write,
    content: Content | None,
    entry: tuple[int | bytes, ...],
) -> bool:
    if write.action != entry[0]:
        return False
    stream = engine.stream_number(tenant, int(entry[1]))
    if stream is None or not stream.name:
        return True
    if stream.name != write.name:
        return False
    if content is None:
        return write.number is None or write.number == entry[2]
    rows = engine.rows(tenant, stream, int(entry[2]), int(entry[2]), 1)
    if not rows or rows[0].content is None:
        return True
    salted_alike = msgspec.structs.replace(content, salt=rows[0].content.salt)
    return digest_of(write.name, salted_alike) == entry[3]


def _other_content(first: RawCommit) -> Invalid:
    return Invalid(
        "key",
        f"it already committed something else at position {first.position}",
        "use a new key for new content",
    )
