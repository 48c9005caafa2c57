"""The OpenAPI document, made of the table of operations, and the pages that show it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, get_args

import msgspec
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

import pagefile
from pagefile.errors import NotFound, Unsupported
from pagefile.operations import Operation, glossary
from pagefile.surfaces.http.problems import MEDIA_TYPE, Problem
from pagefile.surfaces.http.table import served

_DESCRIPTION = (
    "Virtual memory for AI agents. Send your key as `Authorization: Bearer pf_…`. "
    "Refusals are problem+json with `ok`, `error` and `detail`."
)
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
_MARK = "x-shape"
#: Shapes that share a name, by where they are, and what each is called in the document.
#: Modules may move, so the document names none.
_APART = {
    "pagefile.operations.memory.Removed": "BlockRemoved",
    "pagefile.operations.facts.Done": "FactDone",
    "pagefile.operations.facts.Proposed": "FactProposed",
    "pagefile.memory.items.change.Change": "ItemChange",
    "pagefile.memory.items.reader.Hit": "ItemHit",
    "pagefile.recall.hit.Hit": "Hit",
    "pagefile.store.records.Change": "Change",
    "pagefile.store.records.Problem": "StoreProblem",
    "pagefile.surfaces.http.problems.Problem": "Problem",
    "pagefile.surfaces.http.earlier.Proposed": "LegacyProposed",
    "pagefile.operations.packs.Removed": "PackRemoved",
    "pagefile.operations.threads.Done": "RegistryDone",
    "pagefile.operations.runs.Deleted": "RunDeleted",
    "pagefile.operations.threads.Deleted": "ThreadDeleted",
}
_NO_NAME = re.compile(r"[^A-Za-z0-9]+")
#: Chapters that need no model, index or extra that may be missing.
_ALWAYS_THERE = frozenset({"operations", "threads", "registry", "ledger", "batches", "items"})


def _header(name: str) -> dict[str, Any]:
    """A header as a parameter of an operation."""
    pattern, says = _HEADERS[name]
    schema = {"type": "string", "pattern": pattern}
    return {"name": name, "in": "header", "required": False, "schema": schema, "description": says}


@cache
def document() -> dict[str, Any]:
    """The whole document; made once, when it is first asked for."""
    paths: dict[str, Any] = {}
    shapes = _Shapes()
    for operation in sorted(served(), key=_chapter):
        http = operation.http
        assert http is not None
        paths.setdefault(http.path, {})[http.method.lower()] = _entry(operation, shapes)
    problem = {"content": {MEDIA_TYPE: {"schema": shapes.named(Problem)}}}
    responses = {status: {"description": says, **problem} for status, says in _REFUSALS.items()}
    components = {
        "responses": responses,
        "securitySchemes": {
            "key": {"type": "http", "scheme": "bearer"},
            "header": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
        },
    }
    made = {
        "openapi": "3.1.0",
        "info": {
            "title": "Pagefile",
            "description": _DESCRIPTION,
            "version": pagefile.__version__,
        },
        "paths": paths,
        "components": components,
        "tags": [{"name": name, "description": says} for name, says in TAGS.items()],
        "security": [{"key": []}, {"header": []}],
    }
    return shapes.put_into(made)


def _chapter(operation: Operation) -> int:
    """Where in the order of `TAGS` an operation stands."""
    assert operation.http is not None
    return [*TAGS].index(operation.http.tag)


def _entry(operation: Operation, shapes: _Shapes) -> dict[str, Any]:
    """How the document tells of an operation."""
    http, bound = operation.http, operation.bound
    assert http is not None
    answer: dict[str, Any] = {"description": operation.says}
    if operation.gives_file:
        # The first is what clients were promised before; what comes is the second.
        file = {operation.gives_file: {"schema": {"type": "string"}}}
        answer["content"] = {"application/json": {"schema": {}}} | file
    else:
        answer["content"] = {"application/json": {"schema": shapes.named(bound.answer)}}
    made: dict[str, Any] = {
        "tags": [http.tag],
        "summary": operation.name.replace("_", " ").capitalize(),
        "description": bound.description,
        "operationId": http.method.lower() + _NO_NAME.sub("_", http.path).rstrip("_"),
    }
    parameters = [*_parameters(operation), *map(_header, _headers_of(operation))]
    if parameters:
        made["parameters"] = parameters
    if operation.upload:
        body = {"schema": {"type": "string", "format": "binary"}}
        content = dict.fromkeys((operation.upload, "application/octet-stream"), body)
        made["requestBody"] = {"required": True, "content": content}
    elif bound.body is not None:
        shape = {"application/json": {"schema": shapes.named(bound.body)}}
        made["requestBody"] = {"required": not operation.may_be_empty, "content": shape}
    refusals = {
        status: {"$ref": f"#/components/responses/{status}"}
        for status in _refusals_of(operation, made)
    }
    made["responses"] = {str(http.status): answer} | refusals
    if operation.knows:
        made["responses"]["304"] = {"description": "It is as it was."}
    if operation.is_public:
        made["security"] = []
    return made


def _headers_of(operation: Operation) -> Iterator[str]:
    if operation.guard:
        yield from ("If-Match", "If-None-Match")
    if operation.resumes:
        yield "Last-Event-ID"
    if operation.knows:
        yield "If-None-Match"
    if operation.changes:
        yield "Idempotency-Key"


def _parameters(operation: Operation) -> list[dict[str, Any]]:
    bound = operation.bound
    if bound.texts is None:
        return []
    [_], shapes = msgspec.json.schema_components([bound.texts])
    properties = shapes[bound.texts.__name__]["properties"]
    found = []
    for each in sorted(bound.parameters, key=lambda each: each.place != "path"):
        if each.place == "body":
            continue
        schema = _as_parameter(properties[each.wire], each.shape)
        says = {name: schema[name] for name in ("description",) if name in schema}
        title = each.wire.replace("_", " ").title()
        where = {"name": each.wire, "in": each.place, "required": each.is_required}
        found.append(where | {"schema": schema | {"title": title}} | says)
    return found


def _as_parameter(schema: dict[str, Any], shape: Any) -> dict[str, Any]:
    """The schema of a text: that it may be left out is said by its being optional."""
    made = {name: part for name, part in schema.items() if name != "default" or part is not None}
    choices = list(_choices(shape))
    for part in (made, *made.get("anyOf", ())):
        if "enum" in part:
            part |= {"type": "string", "enum": choices}
    return made


def _choices(shape: Any) -> Iterator[Any]:
    """What a parameter can be, in the order in which it is written down."""
    for part in get_args(shape):
        if isinstance(part, str):
            yield part
        else:
            yield from _choices(part)


def _refusals_of(operation: Operation, made: Mapping[str, Any]) -> list[str]:
    """The refusals that an operation can give, by what it takes and where it stands."""
    http = operation.http
    assert http is not None
    found = set(map(str, operation.refuses))
    if not operation.is_public:
        found |= {"401", "403", "429"}
    if http.path != "/health":
        found.add("503")
    if "requestBody" in made:
        found |= {"400", "408", "413", "415", "422"}
    if operation.bound.texts is not None:
        found.add("422")
    if http.names:
        found.add("404")
    if operation.changes:
        # The same key for another request is 422, one that is under way 409.
        found |= {"400", "409", "422"}
    if operation.guard:
        found |= {"400", "412"}
    if http.tag not in _ALWAYS_THERE:
        found.add("501")
    return sorted(found)


def _plain(part: dict[str, Any]) -> dict[str, Any]:
    """A tuple of fixed length without `prefixItems`, which tools for OpenAPI stumble over."""
    if "prefixItems" not in part:
        return part
    kinds = [
        each for i, each in enumerate(part["prefixItems"]) if each not in part["prefixItems"][:i]
    ]
    rest = {name: value for name, value in part.items() if name != "prefixItems"}
    return {**rest, "items": kinds[0] if len(kinds) == 1 else {"anyOf": kinds}}


class _Shapes:
    """The shapes that the document names, each marked until all are known.

    Two of them may have one name, and only then get longer ones.
    """

    def __init__(self) -> None:
        self._shapes: dict[str, Any] = {}

    def named(self, shape: Any) -> dict[str, Any]:
        """What stands for a shape, until the document is made."""
        self._shapes.setdefault(str(shape), shape)
        return {_MARK: str(shape)}

    def put_into(self, made: dict[str, Any]) -> dict[str, Any]:
        """The document with the shapes among its components, and references to them."""
        found, schemas = msgspec.json.schema_components(self._shapes.values(), ref_template=_REF)
        made["components"]["schemas"] = schemas
        made = _with_names(_unmarked(made, dict(zip(self._shapes, found, strict=True))))
        schemas = made["components"]["schemas"]
        named = {_APART.get(name, name): shape for name, shape in schemas.items()}
        for name, shape in named.items():
            _describe(name, shape)
        made["components"]["schemas"] = named
        return made


def _describe(of: str, shape: dict[str, Any]) -> None:
    """Say what each field of a shape is, where the shape does not."""
    for name, part in shape.get("properties", {}).items():
        said = glossary.about(name, shape.get("description"), of=of)
        if said:
            part.setdefault("description", said)


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


#: Where the files lie below the server, and their media types.
ASSETS = "/docs/assets/"
_STYLE, _SCRIPT = "text/css; charset=utf-8", "text/javascript; charset=utf-8"
_FILES = {
    "swagger-ui-bundle.js": _SCRIPT,
    "swagger-ui.css": _STYLE,
    "redoc.standalone.js": _SCRIPT,
}
#: Our own: with a script of its own in the page, a policy against foreign ones would be none.
_OWN = {
    "docs.js": (
        'SwaggerUIBundle({url: "openapi.json", dom_id: "#page", deepLinking: true, filter: true,'
        ' docExpansion: "none", defaultModelsExpandDepth: 0, displayRequestDuration: true,'
        " validatorUrl: null, presets: [SwaggerUIBundle.presets.apis,"
        " SwaggerUIBundle.SwaggerUIStandalonePreset]});\n"
    ),
    "redoc.js": (
        'Redoc.init("openapi.json", {hideDownloadButtons: false, nativeScrollbars: true,'
        " requiredPropsFirst: true,"
        ' theme: {typography: {fontFamily: "system-ui, sans-serif",'
        ' headings: {fontFamily: "system-ui, sans-serif"}}}}, document.getElementById("page"));\n'
    ),
}
#: What answers without a key: everybody's files.
ASSETS_SERVED = frozenset(f"{ASSETS}{name}" for name in (*_FILES, *_OWN))

# Both pages write styles into themselves, and Redoc searches in a worker that it makes.
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:; connect-src 'self'; worker-src blob:; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
)
_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Pagefile API</title>
<link rel="icon" href="data:,">
{style}</head>
<body style="margin: 0">
<div id="page"></div>
<script src="docs/assets/{library}"></script>
<script src="docs/assets/{own}"></script>
</body>
</html>
"""
_DAY = "public, max-age=86400"


async def _docs(_: Request) -> Response:
    """The document, to be tried out."""
    style = '<link rel="stylesheet" href="docs/assets/swagger-ui.css">\n'
    return _page(style, "swagger-ui-bundle.js", "docs.js")


async def _redoc(_: Request) -> Response:
    """The document, to be read."""
    # Its makers' sign is an image from elsewhere, which is not fetched; their name stays.
    style = '<style>img[alt="redocly logo"] {display: none}</style>\n'
    return _page(style, "redoc.standalone.js", "redoc.js")


def _asset(request: Request) -> Response:
    """A script or style of the two pages."""
    name: str = request.path_params["name"]
    headers = {"cache-control": _DAY}
    if name in _OWN:
        return Response(_OWN[name], media_type=_SCRIPT, headers=headers)
    if name not in _FILES:
        raise NotFound(f"there is no file {name!r} here", "see /docs")
    return Response(_file(name), media_type=_FILES[name], headers=headers)


async def _root(_: Request) -> Response:
    """The documentation is a better start than an empty page."""
    return RedirectResponse("/docs", 307)


def _document(_: Request) -> Response:
    """The document, for programs."""
    return Response(_written(), media_type="application/json")


@cache
def _written() -> bytes:
    return msgspec.json.encode(document())


def pages() -> list[Route]:
    """The pages, and the document that they show."""
    found = [
        Route("/", _root),
        Route("/openapi.json", _document),
        Route("/docs", _docs),
        Route("/redoc", _redoc),
        Route(ASSETS + "{name}", _asset),
    ]
    for route in found:
        route.methods = {"GET"}
    return found


@cache
def _file(name: str) -> bytes:
    found = find_spec("fastapi_offline")
    if found is None or not found.submodule_search_locations:
        fact = "the pages need the files of fastapi-offline, which is missing"
        raise Unsupported(fact, "pip install 'pagefile[server]', or read /openapi.json")
    return (Path(found.submodule_search_locations[0]) / "static" / name).read_bytes()


def _page(style: str, library: str, own: str) -> Response:
    html = _PAGE.format(style=style, library=library, own=own)
    return Response(html, media_type="text/html", headers={"content-security-policy": _POLICY})
