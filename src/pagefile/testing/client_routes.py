"""The routes of the server, each as what a client calls: its noun, its name, its arguments."""

from __future__ import annotations

import inspect
import keyword
from collections.abc import Iterator
from typing import Annotated, Any, get_args, get_origin

import msgspec
from fastapi.routing import APIRoute

from pagefile.assembly.receipt import AssemblyReceipt
from pagefile.surfaces.http import openapi
from pagefile.surfaces.http.authentication import right_for
from pagefile.surfaces.http.pagination import Page
from pagefile.surfaces.http.routes import ROUTERS
from pagefile.surfaces.http.slots import Slot
from pagefile.testing.client_shapes import Shapes, spelled

#: What a tag is called in a client, where it is not called the same.
NOUNS = {"recall": "memory", "operations": "server"}
#: What a route is called, where it is not called as its function.
NAMES: dict[str, str] = {
    "threads.list_threads": "list",
    "threads.get_thread": "get",
    "threads.list_slots": "slots",
    "threads.get_slot": "slot",
    "threads.append_slot": "append",
    "threads.append_slots": "append_many",
    "threads.fork_thread": "fork",
    "threads.follow_thread": "follow",
    "threads.delete_thread": "delete",
    "registry.call": "call",
    "runs.list_runs": "list",
    "runs.get_run": "get",
    "runs.patch_run": "patch",
    "runs.delete_run": "delete",
    "runs.fork_run": "fork",
    "runs.roll_back": "rollback",
    "runs.diff_run": "diff",
    "runs.rebuild_run": "rebuild",
    "runs.repair_run": "repair",
    "ledger.read_ledger": "read",
    "ledger.log_event": "log",
    "ledger.follow_ledger": "follow",
    "ledger.make_milestone": "milestone",
    "ledger.list_episodes": "episodes",
    "ledger.get_episode": "episode",
    "batches.list_batches": "list",
    "batches.get_batch": "get",
    "items.search_items": "search",
    "items.get_item": "get",
    "items.item_history": "history",
    "packs.make_pack": "make",
    "packs.list_packs": "list",
    "packs.remove": "delete",
    "blocks.list_blocks": "list",
    "blocks.get_block": "get",
    "blocks.put_block": "put",
    "blocks.append_block": "append",
    "blocks.delete_block": "delete",
    "blocks.block_history": "history",
    "episodes.list_episodes": "list",
    "episodes.get_episode": "get",
    "episodes.session_messages": "messages",
    "facts.assert_facts": "add",
    "facts.query_facts": "query",
    "facts.fact_history": "history",
    "facts.fact_story": "get",
    "facts.list_aliases": "aliases",
    "facts.list_proposals": "proposals",
    "privacy.list_users": "users",
    "context.get_receipt": "receipt",
    "context.list_receipts": "receipts",
    "threads.pin_thread": "pin",
    "threads.unpin_thread": "unpin",
}
#: What pages of a listing hold.
PAGES: dict[str, Any] = {
    "threads.list_slots": Slot,
    "context.list_receipts": AssemblyReceipt,
    "ledger.read_ledger": dict[str, Any],
    "ledger.episode_events": dict[str, Any],
    "store.document_history": dict[str, Any],
    "store.log": dict[str, Any],
}
#: What the events of a stream are.
STREAMS: dict[str, Any] = {
    "threads.follow_thread": Slot,
    "ledger.follow_ledger": dict[str, Any],
}
#: Routes that take the expected version in a header alone.
GUARDED = frozenset({"blocks.delete_block"})
#: Moments stand in queries as texts.
MOMENTS = frozenset({"valid_at", "known_at", "since", "until"})
_EVENTS = "text/event-stream"


class Parameter(msgspec.Struct, frozen=True):
    """One argument of a call, and what it is called on the wire."""

    name: str
    wire: str
    hint: str
    default: str | None = None
    where: str = "body"
    #: Values that have a user each.
    is_owned: bool = False

    @property
    def told(self) -> str:
        return f"{self.name}: {self.hint}" + ("" if self.default is None else f" = {self.default}")


class Described(msgspec.Struct, frozen=True):
    """A route, as the maker sees it."""

    noun: str
    name: str
    method: str
    path: str
    says: str
    parameters: tuple[Parameter, ...]
    gives: Any
    kind: str
    media: str
    has_body: bool
    is_exact: bool = False
    is_guarded: bool = False

    @property
    def is_safe(self) -> bool:
        return right_for(self.method, self.path) == "read"


def described(shapes: Shapes) -> Iterator[Described]:
    """Every route under /v1, and what tells of the server."""
    for router in ROUTERS:
        for route in router.routes:
            assert isinstance(route, APIRoute)
            if route.path.startswith("/v1/") or route.path in ("/health", "/ready", "/metrics"):
                yield _of_route(route, shapes)


def _of_route(route: APIRoute, shapes: Shapes) -> Described:
    method = next(iter(route.methods or ()))
    tag = str(route.tags[0])
    noun, full = NOUNS.get(tag, tag), f"{tag}.{route.endpoint.__name__}"
    told: dict[str, Any] = route.openapi_extra or {}
    takes = told.get("requestBody", {}).get("content", {})
    [answer] = told["responses"].values()
    [(media, content)] = answer["content"].items()
    gives: Any = _shape(content)
    kind = "send"
    if media == _EVENTS:
        kind, gives = "follow", STREAMS[full]
    elif media == "text/plain":
        kind, gives = "text", str
    elif media != "application/json":
        kind, gives = "download", int
    elif takes and "application/json" not in takes:
        kind, media = "upload", next(iter(takes))
    if gives is Page:
        gives = Page, PAGES.get(full, str)
    body = _shape(takes["application/json"]) if "application/json" in takes else None
    parameters = [*_in_path(route), *_in_body(body, noun, shapes), *_in_query(route, kind)]
    return Described(
        noun,
        NAMES.get(full, route.endpoint.__name__),
        method,
        route.path,
        (inspect.getdoc(route.endpoint) or "").strip(),
        tuple(parameters),
        gives,
        kind,
        media,
        body is not None,
        is_exact=method == "POST" and "/slots" in route.path,
        is_guarded=full in GUARDED,
    )


def _shape(content: dict[str, Any]) -> Any:
    return openapi._shapes.get(content["schema"].get("x-shape", ""))


def _in_path(route: APIRoute) -> Iterator[Parameter]:
    for name, parameter in inspect.signature(route.endpoint, eval_str=True).parameters.items():
        if f"{{{name}}}" in route.path:
            hint = "int" if parameter.annotation is int else "str"
            yield Parameter(name, name, hint, where="path")


def _in_query(route: APIRoute, kind: str) -> Iterator[Parameter]:
    for name, parameter in inspect.signature(route.endpoint, eval_str=True).parameters.items():
        if name == "request" or f"{{{name}}}" in route.path:
            continue
        hint = parameter.annotation
        if get_origin(hint) is Annotated:
            hint = get_args(hint)[0]
        text = "datetime | str | None" if name in MOMENTS else spelled(hint, request=True)
        default = None if parameter.default is parameter.empty else repr(parameter.default)
        where = "place" if kind == "follow" and name == "after" else "query"
        yield Parameter(name, name, text, default, where)


def _in_body(body: Any, noun: str, shapes: Shapes) -> Iterator[Parameter]:
    if body is None:
        return
    for field in msgspec.structs.fields(body):
        name = field.name + ("_" if keyword.iskeyword(field.name) else "")
        # What is left out is not sent: it needs no value of its own here.
        hint = shapes.spelled_for(field.type, noun).replace(" | msgspec.UnsetType", "")
        default: str | None = None
        if not field.required:
            plain = field.default
            if isinstance(plain, (str, int, float, bool)):
                default = repr(plain)
            else:
                default = "None"
                hint += "" if hint.endswith("| None") else " | None"
        yield Parameter(name, field.encode_name, hint, default, is_owned=_is_owned(field.type))


def _is_owned(hint: Any) -> bool:
    """Whether it is a list of things that belong to somebody."""
    if get_origin(hint) is Annotated:
        hint = get_args(hint)[0]
    if get_origin(hint) is not list:
        return False
    [inner] = get_args(hint)
    is_struct = isinstance(inner, type) and issubclass(inner, msgspec.Struct)
    return is_struct and "user_id" in inner.__struct_fields__
