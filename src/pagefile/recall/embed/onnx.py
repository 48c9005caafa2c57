"""One model of the BERT family, run by onnxruntime on a bounded number of threads."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

from pagefile.recall.embed.embedder import Floats
from pagefile.recall.embed.model_files import ModelFiles
from pagefile.recall.extras import required

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
