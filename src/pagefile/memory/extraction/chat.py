"""A client of the OpenAI-compatible chat API: one question, one answer, patience in between."""

from __future__ import annotations

import email.utils
import json
import random
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType, TracebackType
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import urlsplit, urlunsplit

import msgspec

from pagefile.errors import Forbidden, Invalid, Unsupported, shown
from pagefile.memory.extraction.candidate import TokenBudget
from pagefile.memory.extraction.errors import (
    Cancelled,
    Malformed,
    Misdirected,
    NoApi,
    Refused,
    Silent,
)
from pagefile.store.arguments import require_count, require_seconds

# What a server of the chat API answers, taken apart.


#: Statuses that another attempt may not meet.
BUSY = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 520, 522, 524, 529})


class Completion(msgspec.Struct, frozen=True):
    """What the model said, why it stopped, and what that cost."""

    text: str
    finish: str
    tokens: int


class Busy(Exception):
    """One attempt failed in a way that another may not."""

    def __init__(
        self, fact: str, retry_after: float | None = None, *, billed: bool = False
    ) -> None:
        super().__init__(fact)
        self.retry_after = retry_after
        #: The question may have been read, and is paid for then.
        self.billed = billed


def completion_of(answer: Any, safe: Callable[[str], str]) -> Completion:
    tokens = _usage(answer)
    failure = answer.get("error") if isinstance(answer, dict) else None
    if failure:  # Some gateways put the failure of what stands behind them into a 200.
        code = failure.get("code") if isinstance(failure, dict) else None
        if code in BUSY:
            raise Busy(f"error {code} {shown(safe(str(failure)))}")
        raise Malformed(
            f"the server answered {shown(safe(str(failure)))}", "see to it", tokens=tokens
        )
    try:
        choice = answer["choices"][0]
        content = choice["message"]["content"]
        finish = choice.get("finish_reason") or ""
    except (LookupError, TypeError, AttributeError):
        raise Malformed(
            "the answer has no choice with a message", "look what the URL serves", tokens=tokens
        ) from None
    if isinstance(content, list):
        parts = [part.get("text") for part in content if isinstance(part, dict)]
        content = "".join(part for part in parts if isinstance(part, str))
    if not isinstance(content, str):
        raise Malformed(
            f"the message has no text (it stopped by {shown(finish)})", "try again", tokens=tokens
        )
    return Completion(content, str(finish), tokens)


def _usage(answer: Any) -> int:
    usage = answer.get("usage") if isinstance(answer, dict) else None
    total = usage.get("total_tokens") if isinstance(usage, dict) else None
    if isinstance(usage, dict) and not isinstance(total, int):
        parts = (usage.get("prompt_tokens"), usage.get("completion_tokens"))
        total = sum(part for part in parts if isinstance(part, int))
    return total if isinstance(total, int) and 0 <= total < 2**53 else 0


if TYPE_CHECKING:
    pass

#: Characters per token are seldom fewer; a guess that is too high only reserves too much.
_CHARACTERS_PER_TOKEN = 3
_TOKENS_PER_MESSAGE = 8
_GLANCE_SECONDS = 0.05
_DAY_SECONDS = 86_400.0
#: Statuses that may be about what one request holds; all others are about where it is sent.
_OF_THE_REQUEST = frozenset({400, 413, 422, 431, 451})
#: More than an error shows, so that a key is never cut before it is found.
_MOST_LOOKED_AT = 4_096
_HOST = re.compile(r"[\w.:%-]+")
_URL_RULE = "give http(s)://host/v1, without user and password"


class ChatClient:
    """Asks one model at one place. Threads may share it; `close` it when done.

    C1  At most `concurrency` requests are under way, abandoned ones included.
    C2  An attempt ends within `timeout` seconds, however slowly the server drips.
    C3  429, 5xx, timeouts and lost connections are tried `retries` times more, after a
        pause that doubles and is drawn at random, or as long as the server asked for.
    C4  The key is in the header of the request and nowhere else: no repr, no error.
    C5  A set `cancel` ends the call at once, also while the server thinks.

    Proxies and certificates of the environment are not looked up; give `proxy`.
    """

    def __init__(
        self,
        base_url: str,
        model: str,
        *,
        api_key: str = "",
        timeout: float = 60.0,
        retries: int = 4,
        first_pause: float = 0.5,
        most_pause: float = 30.0,
        concurrency: int = 4,
        most_bytes: int = 1_000_000,
        json_mode: bool = True,
        proxy: str | None = None,
    ) -> None:
        self._url = _endpoint(base_url)
        #: What errors show: some servers take a key in the query.
        self._place = self._url.partition("?")[0]
        if not isinstance(model, str) or not model.strip():
            raise Invalid("model", f"{shown(model)} is no name", "give the name of a chat model")
        _require_key(api_key)
        for field, seconds in (
            ("timeout", timeout),
            ("first_pause", first_pause),
            ("most_pause", most_pause),
        ):
            require_seconds(seconds, field)
        self.model = model
        self._timeout = timeout
        self._retries = require_count(retries, "retries", most=20)
        self._first_pause = first_pause
        self._most_pause = most_pause
        self._most_bytes = require_count(most_bytes, "most_bytes", least=1)
        self._slots = threading.BoundedSemaphore(
            require_count(concurrency, "concurrency", least=1, most=256)
        )
        self._json_mode = json_mode
        self._unwanted: set[str] = set()
        self._httpx = _httpx()
        try:
            self._httpx.URL(self._url)
        except self._httpx.InvalidURL as error:
            raise Invalid("base_url", f"{shown(base_url)} is no URL", _URL_RULE) from error
        self._key = api_key
        self._client = self._httpx.Client(
            headers={"Authorization": f"Bearer {api_key}"} if api_key else {},
            limits=self._httpx.Limits(max_connections=concurrency),
            follow_redirects=False,  # The key goes where it was told to go, and nowhere else.
            trust_env=False,
            proxy=proxy,
        )

    def __repr__(self) -> str:
        return f"ChatClient({self._place!r}, {self.model!r})"

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def complete(
        self,
        messages: Sequence[Mapping[str, str]],
        *,
        max_tokens: int = 1024,
        budget: TokenBudget | None = None,
        cancel: threading.Event | None = None,
    ) -> Completion:
        """The model's answer, at temperature 0.

        Raises:
            Silent: no answer after all retries. Malformed: an answer that is no completion.
            Forbidden: the key is not taken. Refused: the request is not.
            Misdirected: there is no such model, or no chat API at this place.
            BudgetSpent: the budget has not enough left. Cancelled: `cancel` was set.
        """
        require_count(max_tokens, "max_tokens", least=1)
        asked = tokens_of(messages)
        budget = budget or TokenBudget(2**62)
        attempt = 0
        while True:
            _require_wanted(cancel)
            with budget.call(asked + max_tokens, cancel) as share:
                try:
                    completion = self._once(messages, max_tokens, cancel)
                    share.cost = completion.tokens or asked + _tokens_in(completion.text)
                    return completion
                except Busy as busy:
                    share.cost = asked if busy.billed else 0
                    pause = self._pause(attempt, busy)
                except Malformed as error:
                    share.cost = error.tokens or asked
                    raise
                except Cancelled:
                    share.cost = asked  # It was sent, and is answered to nobody.
                    raise
                except Exception:
                    share.cost = 0
                    raise
            attempt += 1
            if cancel is None:
                time.sleep(pause)
            elif cancel.wait(pause):
                _require_wanted(cancel)

    def _pause(self, attempt: int, busy: Busy) -> float:
        """How long to wait before the next attempt; raises when there is none."""
        asked = busy.retry_after
        if attempt >= self._retries or (asked is not None and asked > self._most_pause):
            raise Silent(
                f"{self._place} gave no answer in {attempt + 1} attempts, at last: {busy}",
                "try again later, or look after the server",
                retry_after=asked,
            ) from busy.__cause__
        if asked is not None:  # Not all at once who were told the same.
            return asked * random.uniform(1.0, 1.1)
        longest = min(self._most_pause, self._first_pause * 2**attempt)
        return float(longest * random.uniform(0.5, 1.0))

    def _once(
        self,
        messages: Sequence[Mapping[str, str]],
        max_tokens: int,
        cancel: threading.Event | None,
    ) -> Completion:
        """One attempt; two when the server says which parameter it does not know."""
        for _ in range(4):
            body = self._body(messages, max_tokens)
            status, headers, content = self._held(body, cancel)
            if status in (400, 422) and (name := self._unknown_parameter(content, body)):
                self._unwanted.add(name)
                continue
            break
        return self._read(status, headers, content)

    def _body(self, messages: Sequence[Mapping[str, str]], max_tokens: int) -> dict[str, Any]:
        body: dict[str, Any] = {"model": self.model, "messages": [dict(m) for m in messages]}
        if "temperature" not in self._unwanted:
            body["temperature"] = 0
        name = "max_completion_tokens" if "max_tokens" in self._unwanted else "max_tokens"
        body[name] = max_tokens
        if self._json_mode and "response_format" not in self._unwanted:
            body["response_format"] = {"type": "json_object"}
        return body

    def _unknown_parameter(self, content: bytes, body: Mapping[str, Any]) -> str:
        text = content[:_MOST_LOOKED_AT].decode("utf-8", "replace")
        for name in ("response_format", "temperature", "max_tokens"):
            if name in text and name in body:
                return name
        return ""

    def _held(
        self, body: Mapping[str, Any], cancel: threading.Event | None
    ) -> tuple[int, Mapping[str, str], bytes]:
        """Send within a slot, in a thread of its own: only so can a call be left in time."""
        while not self._slots.acquire(timeout=_GLANCE_SECONDS):
            _require_wanted(cancel)
        if self._client.is_closed:
            self._slots.release()
            raise Silent("this client is closed", "make another")
        return _Beside(lambda: self._send(body), self._slots.release).result(self._timeout, cancel)

    def _send(self, body: Mapping[str, Any]) -> tuple[int, Mapping[str, str], bytes]:
        deadline = time.monotonic() + self._timeout
        content = bytearray()
        try:
            with self._client.stream(
                "POST", self._url, json=body, timeout=self._timeout
            ) as response:
                for chunk in response.iter_bytes():
                    content += chunk
                    if len(content) > self._most_bytes:
                        raise Malformed(
                            f"{self._place} answered with more than {self._most_bytes} bytes",
                            "look what it serves, or raise most_bytes",
                        )
                    # The client's own timeout starts anew with every byte.
                    if time.monotonic() > deadline:
                        raise Busy(f"no whole answer in {self._timeout} seconds", billed=True)
                return response.status_code, response.headers, bytes(content)
        except self._httpx.TimeoutException as error:
            sent = not isinstance(error, self._httpx.ConnectTimeout | self._httpx.PoolTimeout)
            raise Busy(f"no answer in {self._timeout} seconds", billed=sent) from error
        except self._httpx.TransportError as error:
            raise Busy(self._safe(f"{type(error).__name__}: {error}")) from error
        except self._httpx.DecodingError as error:
            raise Malformed(
                f"{self._place} sent a body that is not in the encoding it names",
                "look what it serves",
            ) from error

    def _read(self, status: int, headers: Mapping[str, str], content: bytes) -> Completion:
        if status in BUSY or status >= 500:
            raise Busy(f"status {status} {self._excerpt(content)}", _retry_after(headers))
        if status in (401, 403):
            raise Forbidden(
                f"{self._place} refused the key (status {status})", "give a key that it takes"
            )
        if not 200 <= status < 300:
            kind = Refused if status in _OF_THE_REQUEST else Misdirected
            raise kind(
                "request",
                f"{self._place} answered with status {status} {self._excerpt(content)}",
                "look at base URL and model",
            )
        try:
            return completion_of(json.loads(content), self._safe)
        except (ValueError, RecursionError) as error:
            media = self._safe(headers.get("content-type", "no type"))
            raise NoApi(
                f"{self._place} answered with {shown(media)} that is no JSON", "look what it serves"
            ) from error

    def _excerpt(self, content: bytes) -> str:
        return shown(self._safe(content[:_MOST_LOOKED_AT].decode("utf-8", "replace")))

    def _safe(self, text: str) -> str:
        """Text of the server's, which may repeat what it was sent, without the key."""
        return text.replace(self._key, "…") if self._key else text


class _Beside:
    """A request in a thread of its own, which its caller may leave behind."""

    def __init__(
        self,
        send: Callable[[], tuple[int, Mapping[str, str], bytes]],
        done: Callable[[], None],
    ) -> None:
        self._send = send
        self._done = done
        self._finished = threading.Event()
        self._result: tuple[int, Mapping[str, str], bytes] | None = None
        self._error: BaseException | None = None
        threading.Thread(target=self._run, name="pagefile-chat", daemon=True).start()

    def _run(self) -> None:
        try:
            self._result = self._send()
        except BaseException as error:  # noqa: BLE001 - raised again where it is waited for
            self._error = error
        finally:
            self._done()
            self._finished.set()

    def result(
        self, timeout: float, cancel: threading.Event | None
    ) -> tuple[int, Mapping[str, str], bytes]:
        deadline = time.monotonic() + timeout
        while not self._finished.wait(_GLANCE_SECONDS if cancel else timeout):
            _require_wanted(cancel)
            if time.monotonic() >= deadline:
                raise Busy(f"no whole answer in {timeout} seconds", billed=True)
        if self._error is not None:
            raise self._error
        assert self._result is not None
        return self._result


def tokens_of(messages: Sequence[Mapping[str, str]]) -> int:
    """How many tokens a question may have, guessed from its length."""
    return sum(_tokens_in(message["content"]) for message in messages)


def _tokens_in(text: str) -> int:
    return len(text) // _CHARACTERS_PER_TOKEN + _TOKENS_PER_MESSAGE


def _require_wanted(cancel: threading.Event | None) -> None:
    if cancel is not None and cancel.is_set():
        raise Cancelled("the extraction was cancelled", "start it again")


def _endpoint(base_url: str) -> str:
    if not isinstance(base_url, str):
        raise Invalid("base_url", f"{shown(base_url)} is no URL", _URL_RULE)
    try:
        parts = urlsplit(base_url.strip())
        held = "@" in parts.netloc
        named = parts.scheme in ("http", "https") and _HOST.fullmatch(parts.hostname or "")
    except ValueError:
        held, named = False, None
    if held:  # Not shown: what stands before the @ may be a password.
        raise Invalid("base_url", "it has a user or a password in it", _URL_RULE)
    if not named:
        raise Invalid("base_url", f"{shown(base_url)} is no URL of a server", _URL_RULE)
    path = parts.path.rstrip("/").removesuffix("/chat/completions") + "/chat/completions"
    return urlunsplit((parts.scheme, parts.netloc, path, parts.query, ""))


def _require_key(key: str) -> None:
    if not isinstance(key, str) or not all("!" <= letter <= "~" for letter in key):
        raise Invalid(
            "api_key", "it has characters that a header cannot carry", "give it as issued"
        )


def _retry_after(headers: Mapping[str, str]) -> float | None:
    said = headers.get("retry-after", "").strip()
    if not said:
        return None
    if said.replace(".", "", 1).isascii() and said.replace(".", "", 1).isdigit():
        return min(float(said), _DAY_SECONDS)
    try:
        return max(0.0, email.utils.parsedate_to_datetime(said).timestamp() - time.time())
    except (ValueError, TypeError, OverflowError):
        return None


def _httpx() -> ModuleType:
    try:
        import httpx
    except ImportError as error:
        raise Unsupported(
            "asking a model needs the package httpx, which is not installed",
            "pip install httpx, or use the rules, which need nothing",
        ) from error
    return httpx
