"""`/docs` and `/redoc`: the document for people, with nothing fetched from elsewhere.

The scripts are those that FastAPI's users know. They come from the package
`fastapi-offline`, of which only the files are used, none of its code.
"""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from pathlib import Path

import msgspec
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from pagefile.errors import NotFound, Unsupported
from pagefile.surfaces.http.openapi import document

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
PUBLIC = frozenset(f"{ASSETS}{name}" for name in (*_FILES, *_OWN))

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


def routes() -> list[Route]:
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
