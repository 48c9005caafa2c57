"""`pagefile copy`: arguments in, reports out."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from pagefile.engines import is_fleeting
from pagefile.errors import Conflict, Invalid, NotFound, shown
from pagefile.handle import Admin
from pagefile.migration import migrate
from pagefile.store.log.copy import CopyReport
from pagefile.store.records import Head
from pagefile.surfaces.cli.call import masked

Progress = Callable[[CopyReport], object]


class CopyAnswer(msgspec.Struct, frozen=True):
    """What `pagefile copy` says of one tenant."""

    tenant: str
    position: int
    digest: str
    behind: int
    commits: int
    records: int
    emptied: int
    size_bytes: int
    seconds: float
    verified: bool


def copy(
    source: str,
    target: str,
    *,
    tenant: str,
    all_tenants: bool = False,
    follow_seconds: float | None = None,
    verify: bool = False,
    progress: Progress | None = None,
) -> list[CopyAnswer]:
    """Copy one tenant, or all, from one store into another; go on where an earlier call ended.

    Raises:
        NotFound: the source, or the tenant in it, is not there; nothing was made.
        Conflict: the destination has another history; it says where they part.
    """
    if is_fleeting(target):
        raise Invalid(
            "target", f"{target} is gone when the command ends", "name a file or a server"
        )
    if source == target:
        raise Invalid("target", "is the source itself", "name another store")
    found = migrate(source, check=True)
    if found.before is None and found.known is not None:
        raise NotFound(f"there is no store at {shown(masked(source))}", "check SRC")
    with Admin(source) as from_, Admin(target) as to:
        there = from_.tenants()
        wanted = there if all_tenants else [tenant]
        if missing := [name for name in wanted if name not in there]:
            place = shown(masked(source))
            raise NotFound(f"{place} has no tenant {missing[0]!r}", "choose another --tenant")
        return [
            _copied(from_, to, name, follow_seconds, verify=verify, progress=progress)
            for name in wanted
        ]


def _copied(
    source: Admin,
    target: Admin,
    tenant: str,
    follow_seconds: float | None,
    *,
    verify: bool,
    progress: Progress | None,
) -> CopyAnswer:
    done = source.copy_to(target, tenant, follow_seconds=follow_seconds, progress=progress)
    if verify:
        handle = target.open(tenant)
        problems = handle.verify(head=Head(done.position, done.digest)).problems
        problems += handle.check().problems
        if problems:
            raise Conflict(
                f"the copy is not whole: {problems[0].what} (position {problems[0].position})",
                "run `verify` on both stores",
                target=tenant,
                expected=done.position,
                current=problems[0].position or 0,
            )
    return answer_of(done, verified=verify)


def answer_of(done: CopyReport, *, verified: bool = False) -> CopyAnswer:
    """A report as the command line shows it."""
    return CopyAnswer(
        done.tenant,
        done.position,
        done.digest.hex(),
        done.behind,
        done.commits,
        done.records,
        done.emptied,
        done.size_bytes,
        round(done.seconds, 3),
        verified,
    )


def progress_line(done: CopyReport) -> str:
    """One line that replaces itself."""
    share = 100 * done.position // done.total if done.total else 100
    place = f"{done.position:,} of {done.total:,} ({share} %)"
    return f"{done.tenant}: {place}, {done.rate:,.0f} records/s"
