"""The default embedder: bge-small-en-v1.5, from files that a package carries inside it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pagefile.recall.embed.embedder import Floats, unit_rows, unit_vector
from pagefile.recall.embed.model_files import BGE_SMALL
from pagefile.recall.embed.onnx import BertModel
from pagefile.store.arguments import require_count

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
