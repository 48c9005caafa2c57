"""The OpenAPI document: shapes of bodies come from the values that are really encoded."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import msgspec
from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from pagefile.surfaces.http.problems import MEDIA_TYPE, Problem

_SCHEMAS = "#/components/schemas/"
_REF = _SCHEMAS + "{name}"
_REFUSALS = {
    "400": "The request is malformed.",
    "401": "No key, or one that is unknown, revoked or expired.",
    "403": "The key may not do that.",
    "404": "There is no such thing in this tenant.",
    "408": "The body took too long.",
    "409": "Somebody was faster, or it is there already. Re-read, then retry.",
    "412": "`If-Match` names another version.",
    "413": "Larger than allowed, or a limit would be passed.",
    "415": "The body is of another media type.",
    "422": "A parameter or the body breaks a rule; `field` and `rule` say which.",
    "429": "Too many requests.",
    "501": "Not supported by this engine, index or installation.",
    "503": "The store did not answer; `outcome` says whether it may have been done.",
}
#: Headers that some operations understand, and what they look like there.
_HEADERS = {
    "Idempotency-Key": (
        r"^[\x21-\x7e]{1,200}$",
        "A repeat with the same key, within a day, is answered as this one was.",
    ),
    "If-Match": (r'^(W/)?"[0-9]{1,18}"$', "The version that is expected; otherwise 412."),
    "If-None-Match": (
        r'^((W/)?"[0-9]{1,18}"|\*)$',
        "The version that is known: 304 if it still is.",
    ),
    "Last-Event-ID": (r"^[0-9]{1,18}$", "The last event that was seen; it goes on behind that."),
}
#: What routes understand that change a version, show one, or go on with a stream.
GUARDS = ("If-Match", "If-None-Match")
KNOWS = ("If-None-Match",)
RESUMES = ("Last-Event-ID",)
#: The chapters of the document, in the order in which somebody new would read them.
TAGS = {
    "episodes": "What happened: exchanges of a session, findable from the moment they are stored.",
    "recall": "Questions to what is remembered, each answer with its score and reasons.",
    "facts": "What is known, since when, and what was believed before.",
    "graph": "Facts as edges between entities.",
    "blocks": "Short texts that belong into every prompt.",
    "context": "Prompts under a token budget, and receipts of what went into them.",
    "threads": "Messages between agents: append, read, fork, follow.",
    "registry": "Conversations by the path of their calls.",
    "runs": "Working sets that survive a crash, changed by patches.",
    "ledger": "Every event of a run, in order.",
    "batches": "Changes to long-term items: proposed, reviewed, committed.",
    "items": "Long-term items as they are, and as they were.",
    "packs": "A run as one file, to be moved or kept.",
    "privacy": "What is kept of a user: shown, exported, brought back, forgotten.",
    "store": "The store below: documents, history, checks.",
    "operations": "For those who run the server.",
    "earlier system": "The paths and fields of the earlier system, for clients that know them.",
}
#: Every shape that a route names, and the mark that stands for it until all are known:
#: two of them may have one name, and only then get longer ones.
_shapes: dict[str, Any] = {}
_MARK = "x-shape"
#: Shapes that share a name, by where they are, and what each is called in the document.
#: Modules may move, so the document names none.
_APART = {
    "pagefile.memory.items.change.Change": "ItemChange",
    "pagefile.memory.items.text_search.Hit": "ItemHit",
    "pagefile.recall.hit.Hit": "Hit",
    "pagefile.store.records.Change": "Change",
    "pagefile.store.records.Problem": "StoreProblem",
    "pagefile.surfaces.http.problems.Problem": "Problem",
    "pagefile.surfaces.http.routes.blocks.Removed": "BlockRemoved",
    "pagefile.surfaces.http.routes.facts.Done": "FactDone",
    "pagefile.surfaces.http.routes.facts.Proposed": "FactProposed",
    "pagefile.surfaces.http.routes.legacy_runs.Proposed": "LegacyProposed",
    "pagefile.surfaces.http.routes.packs.Removed": "PackRemoved",
    "pagefile.surfaces.http.routes.registry.Done": "RegistryDone",
    "pagefile.surfaces.http.routes.runs.Deleted": "RunDeleted",
    "pagefile.surfaces.http.routes.threads.Deleted": "ThreadDeleted",
}
_REFUSES = "x-refuses"
#: Chapters that need no model, index or extra that may be missing.
_ALWAYS_THERE = frozenset({"operations", "threads", "registry", "ledger", "batches", "items"})


def named(shape: Any) -> dict[str, Any]:
    """What stands for a shape, until the document is made."""
    _shapes.setdefault(str(shape), shape)
    return {_MARK: str(shape)}


def told(
    *,
    takes: Any = None,
    gives: Any = None,
    status: int = 200,
    optional: bool = False,
    binary: str = "",
    upload: str = "",
    says: str = "Done.",
    headers: tuple[str, ...] = (),
    refuses: tuple[int, ...] = (),
) -> dict[str, Any]:
    """What a route tells of itself besides its parameters; for the decorator.

    `takes` and `gives` are shapes of JSON bodies; `upload` and `binary` are the
    media types of bodies that are files. `headers` are those it understands, and
    `refuses` the statuses of refusals that do not follow from all this.
    """
    answer: dict[str, Any] = {"description": says}
    if gives is not None:
        answer["content"] = {"application/json": {"schema": named(gives)}}
    elif binary:
        answer["content"] = {binary: {"schema": {"type": "string"}}}
    extra: dict[str, Any] = {}
    if takes is not None:
        extra["requestBody"] = {
            "required": not optional,
            "content": {"application/json": {"schema": named(takes)}},
        }
    elif upload:
        schema = {"type": "string", "format": "binary"}
        content = {media: {"schema": schema} for media in (upload, "application/octet-stream")}
        extra["requestBody"] = {"required": True, "content": content}
    if headers:
        extra["parameters"] = [header(name) for name in headers]
    if refuses:
        extra[_REFUSES] = [str(status) for status in refuses]
    extra["responses"] = {str(status): answer}
    return {"openapi_extra": extra, "status_code": status}


def header(name: str) -> dict[str, Any]:
    """A header as a parameter of an operation."""
    pattern, says = _HEADERS[name]
    schema = {"type": "string", "pattern": pattern}
    return {"name": name, "in": "header", "required": False, "schema": schema, "description": says}


def document_maker(
    app: FastAPI,
    version: str,
    honours_key: Callable[[str, str], bool],
) -> Callable[[], Any]:
    """What `app.openapi` becomes; made once, when it is first asked for.

    `honours_key` says of a method and a path whether a repeat is told from a new request.
    """

    def openapi() -> Any:
        if app.openapi_schema is None:
            app.openapi_schema = _made(app, version, honours_key)
        return app.openapi_schema

    return openapi


def _made(
    app: FastAPI,
    version: str,
    honours_key: Callable[[str, str], bool],
) -> dict[str, Any]:
    document = get_openapi(
        title=app.title,
        version=version,
        description=app.description,
        routes=app.routes,
        tags=[{"name": name, "description": says} for name, says in TAGS.items()],
    )
    paths: dict[str, Any] = document["paths"]
    for path, methods in paths.items():
        for method, operation in methods.items():
            if honours_key(method.upper(), path):
                operation.setdefault("parameters", []).append(header("Idempotency-Key"))
            # What FastAPI supposes of parameters is in its words, not ours.
            operation["responses"].pop("422", None)
            operation["responses"] |= {
                status: {"$ref": f"#/components/responses/{status}"}
                for status in _refusals_of(method, path, operation)
            }
            if method == "get" and "If-None-Match" in _names_of(operation):
                operation["responses"]["304"] = {"description": "It is as it was."}
            operation["operationId"] = _operation_id(method, path)
            operation["summary"] = operation["summary"].capitalize()
            if path in ("/health", "/ready"):
                operation["security"] = []
    components = document.setdefault("components", {})
    problem = {"content": {MEDIA_TYPE: {"schema": named(Problem)}}}
    components["responses"] = {
        status: {"description": says, **problem} for status, says in _REFUSALS.items()
    }
    found, components["schemas"] = msgspec.json.schema_components(
        _shapes.values(), ref_template=_REF
    )
    document = _with_names(_unmarked(document, dict(zip(_shapes, found, strict=True))))
    components = document["components"]
    schemas = components["schemas"]
    components["schemas"] = {_APART.get(name, name): shape for name, shape in schemas.items()}
    components["securitySchemes"] = {
        "key": {"type": "http", "scheme": "bearer"},
        "header": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
    }
    document["security"] = [{"key": []}, {"header": []}]
    made: dict[str, Any] = document
    return made


def _names_of(operation: dict[str, Any]) -> set[str]:
    return {each["name"] for each in operation.get("parameters", ())}


def _refusals_of(method: str, path: str, operation: dict[str, Any]) -> list[str]:
    """The refusals that an operation can give, by what it takes and where it stands."""
    found = set(operation.pop(_REFUSES, ()))
    if path not in ("/health", "/ready"):
        found |= {"401", "403", "429"}
    if path != "/health":
        found.add("503")
    names = _names_of(operation)
    if "requestBody" in operation:
        found |= {"400", "408", "413", "415", "422"}
    if names - set(_HEADERS):
        found.add("422")
    if "{" in path:
        found.add("404")
    if "Idempotency-Key" in names:
        # The same key for another request is 422, one that is under way 409.
        found |= {"400", "409", "422"}
    if "If-Match" in names:
        found |= {"400", "412"}
    if not _ALWAYS_THERE & set(operation["tags"]):
        found.add("501")
    return sorted(found)


def _operation_id(method: str, path: str) -> str:
    return method + re.sub(r"[^A-Za-z0-9]+", "_", path).rstrip("_")


def _plain(part: dict[str, Any]) -> dict[str, Any]:
    """A tuple of fixed length without `prefixItems`, which tools for OpenAPI stumble over."""
    if "prefixItems" not in part:
        return part
    kinds = [
        each for i, each in enumerate(part["prefixItems"]) if each not in part["prefixItems"][:i]
    ]
    rest = {name: value for name, value in part.items() if name != "prefixItems"}
    return {**rest, "items": kinds[0] if len(kinds) == 1 else {"anyOf": kinds}}


def _unmarked(part: Any, schemas: dict[str, Any]) -> Any:
    """The same with every mark replaced by the schema it stands for."""
    if isinstance(part, dict):
        if _MARK in part:
            return _unmarked(schemas[part[_MARK]], {})
        return {name: _unmarked(value, schemas) for name, value in _plain(part).items()}
    return [_unmarked(each, schemas) for each in part] if isinstance(part, list) else part


def _with_names(part: Any) -> Any:
    """The same with references to the names of `_APART`."""
    if isinstance(part, dict):
        return {name: _with_names(value) for name, value in part.items()}
    if isinstance(part, list):
        return [_with_names(each) for each in part]
    if isinstance(part, str) and part.startswith(_SCHEMAS):
        name = part.removeprefix(_SCHEMAS)
        return _SCHEMAS + _APART.get(name, name)
    return part
