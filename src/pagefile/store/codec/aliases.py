"""Names in data of classes that have moved. A stored name never changes; a module's name may."""

from __future__ import annotations

from typing import Final

#: The name that a class of this package is stored under, and where the class is now.
MOVED: Final[dict[str, str]] = {
    "pagefile.batch:Absent": "pagefile.store.batch:Absent",
    "pagefile.batch:Append": "pagefile.store.batch:Append",
    "pagefile.batch:Batch": "pagefile.store.batch:Batch",
    "pagefile.batch:CountBelow": "pagefile.store.batch:CountBelow",
    "pagefile.batch:CreatedAt": "pagefile.store.batch:CreatedAt",
    "pagefile.batch:Delete": "pagefile.store.batch:Delete",
    "pagefile.batch:Drop": "pagefile.store.batch:Drop",
    "pagefile.batch:Fork": "pagefile.store.batch:Fork",
    "pagefile.batch:LengthBelow": "pagefile.store.batch:LengthBelow",
    "pagefile.batch:LengthIs": "pagefile.store.batch:LengthIs",
    "pagefile.batch:Prune": "pagefile.store.batch:Prune",
    "pagefile.batch:Put": "pagefile.store.batch:Put",
    "pagefile.batch:Selector": "pagefile.store.batch:Selector",
    "pagefile.batch:Unchanged": "pagefile.store.batch:Unchanged",
    "pagefile.batch:Vector": "pagefile.store.batch:Vector",
    "pagefile.batch:VersionIs": "pagefile.store.batch:VersionIs",
    "pagefile.content:Content": "pagefile.store.content:Content",
    "pagefile.context.shared:BackendConfig": "pagefile.context.shared_backend:BackendConfig",
    "pagefile.copying:CopyReport": "pagefile.store.log.copy:CopyReport",
    "pagefile.engine:Hit": "pagefile.store.engine:Hit",
    "pagefile.engine:Limits": "pagefile.store.engine:Limits",
    "pagefile.engine:RawCommit": "pagefile.store.engine:RawCommit",
    "pagefile.engine:Row": "pagefile.store.engine:Row",
    "pagefile.engine:Sealed": "pagefile.store.engine:Sealed",
    "pagefile.engine:Stream": "pagefile.store.engine:Stream",
    "pagefile.engine:Wiped": "pagefile.store.engine:Wiped",
    "pagefile.query:Query": "pagefile.store.query:Query",
    "pagefile.records:Change": "pagefile.store.records:Change",
    "pagefile.records:Commit": "pagefile.store.records:Commit",
    "pagefile.records:Document": "pagefile.store.records:Document",
    "pagefile.records:Entry": "pagefile.store.records:Entry",
    "pagefile.records:Head": "pagefile.store.records:Head",
    "pagefile.records:Page": "pagefile.store.records:Page",
    "pagefile.records:Problem": "pagefile.store.records:Problem",
    "pagefile.records:Receipt": "pagefile.store.records:Receipt",
    "pagefile.records:Report": "pagefile.store.records:Report",
    "pagefile.records:Stats": "pagefile.store.records:Stats",
    "pagefile.records:Touched": "pagefile.store.records:Touched",
}
