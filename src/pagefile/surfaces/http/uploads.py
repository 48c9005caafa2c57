"""Bodies that are files."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from starlette.requests import Request

from pagefile.errors import Unavailable
from pagefile.surfaces.http.problems import Refused

_ANY = "application/octet-stream"
#: What else some media types are called.
_ALSO = {
    "application/zip": "application/x-zip-compressed",
    "application/x-ndjson": "application/jsonl",
}


@asynccontextmanager
async def uploaded(request: Request, media: str) -> AsyncIterator[Path]:
    """The request's body in a private file, which goes when the block ends.

    It is written as it comes, so that a large one takes no memory.
    """
    given = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if given not in (media, _ANY, _ALSO.get(media)):
        raise Refused(415, f"the body is {given or 'of no type'}: send {media}")
    with tempfile.TemporaryDirectory(prefix="pagefile-upload-") as folder:
        path = Path(folder) / "body"
        try:
            with path.open("xb") as file:
                async for chunk in request.stream():
                    await asyncio.to_thread(file.write, chunk)
        except OSError as error:
            raise Unavailable(
                f"the upload could not be kept ({error.strerror})", "look at the server's disk"
            ) from error
        yield path
