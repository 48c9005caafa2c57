"""What a handler may do: read its own thread, and leave effects that commit with its message."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from pagefile.context.names import require_name, require_text
from pagefile.context.thread import ThreadContext
from pagefile.dispatch.letter import (
    CloseEffect,
    Effects,
    LetterKind,
    SlotEffect,
    StateEffect,
    WatchEffect,
)
from pagefile.errors import Forbidden, Invalid, LimitExceeded, shown
from pagefile.store import codec
from pagefile.store.arguments import require_count

#: A state's name is part of a document's, next to a thread id.
_MOST_STATE_NAME = 128


class Reach(NamedTuple):
    """The functions behind a handle; they lead to one thread and nowhere else."""

    view: Callable[[], ThreadContext]
    state: Callable[[str], Any]
    new_id: Callable[[], str]


class OwnThread:
    """The capability of one run of a handler; worth nothing once the run is over.

    Whatever is done through it happens when the message is acknowledged, in the
    same commit, hence exactly once; after an error, a timeout or a crash, not
    at all. Anything else that a handler does happens at least once.
    """

    __slots__ = (
        "_effects",
        "_left",
        "_most",
        "_reach",
        "_states",
        "attempt",
        "kind",
        "message_id",
        "name",
        "sender",
        "thread_id",
        "user_id",
    )

    def __init__(
        self,
        name: str,
        thread_id: str,
        message_id: str,
        kind: LetterKind,
        sender: str,
        attempt: int,
        user_id: str | None,
        reach: Reach,
        left: int,
        most: int,
    ) -> None:
        self.name = name
        self.thread_id = thread_id
        self.message_id = message_id
        #: request, call, self, reply or error.
        self.kind = kind
        self.sender = sender
        #: 1 the first time that the message is tried.
        self.attempt = attempt
        self.user_id = user_id
        self._reach = reach
        self._left = left
        self._most = most
        self._states: dict[str, Any] = {}
        self._effects: Effects | None = Effects()

    # Reading

    @property
    def history(self) -> ThreadContext:
        """Everything recorded in this thread so far; it only reads."""
        self._living()
        return self._reach.view()

    def get(self, name: str, default: Any = None) -> Any:
        """What was put under this name in this thread, this run's own included."""
        self._living()
        _require_state_name(name)
        if name in self._states:
            return codec.decode(*self._states[name])
        found = self._reach.state(name)
        return default if found is None else found

    @property
    def tokens_left(self) -> int:
        """What this request may still spend."""
        return self._left

    @property
    def most(self) -> int:
        """How many effects one run may have."""
        return self._most

    # Effects

    def append(self, payload: Any, to: str | None = None) -> None:
        """Add a slot to this thread, from this listener."""
        if to is not None:
            require_name("to", to)
        codec.encode(payload)
        self._room().made.append(SlotEffect(payload, self.name if to is None else to))

    def put(self, name: str, value: Any) -> None:
        """Keep a value under a name in this thread."""
        _require_state_name(name)
        if value is None:
            raise Invalid("value", "is None", "None is what `get` says when there is nothing")
        effects = self._room()
        self._states[name] = codec.encode(value)
        effects.made.append(StateEffect(name, value))

    def emit(self, payload: Any, to: str | None = None) -> None:
        """Send one more message beside those that the handler returns."""
        if to is not None:
            require_name("to", to)
        codec.encode(payload)
        effects = self._room()
        effects.sent.append((payload, to))

    def watch(self, wait_for: type | str, *, from_listener: str = "", description: str = "") -> str:
        """Say in the metadata, from when such a payload comes until it is closed; its id."""
        require_text("from_listener", from_listener)
        require_text("description", description)
        if isinstance(wait_for, type):
            typed = codec.is_typed(wait_for)
            wait_for = codec.type_name(wait_for) if typed else wait_for.__name__
        require_name("wait_for", wait_for)
        id = self._reach.new_id()
        self._room().made.append(WatchEffect(id, wait_for, from_listener, description))
        return id

    def close_watch(self, id: str) -> None:
        """End a watcher."""
        require_name("id", id)
        self._room().made.append(CloseEffect(id))

    def spend(self, tokens: int) -> None:
        """Note tokens that this request used up.

        Raises:
            LimitExceeded: it has not that many left.
        """
        require_count(tokens, "tokens")
        effects = self._living()
        if tokens > self._left:
            raise LimitExceeded(
                "the tokens of one request",
                limit=self._left,
                wanted=tokens,
                next_step="answer with what there is, or raise max_tokens",
            )
        self._left -= tokens
        effects.spent += tokens

    # For the organism

    def close(self) -> Effects:
        """The run is over: what it left, and nothing from now on."""
        effects = self._living()
        self._effects = None
        return effects

    def revoke(self) -> None:
        """The run came to nothing."""
        self._effects = None

    def _living(self) -> Effects:
        if self._effects is None:
            raise Forbidden(
                f"the run of {self.name!r} that this handle belongs to is over",
                "use a handle only while its handler runs",
            )
        return self._effects

    def _room(self) -> Effects:
        effects = self._living()
        if len(effects.made) + len(effects.sent) >= self._most:
            raise LimitExceeded(
                "the effects of one run of a handler",
                limit=self._most,
                wanted=self._most + 1,
                next_step="do the rest in a call to yourself",
            )
        return effects


def _require_state_name(name: object) -> None:
    require_name("name", name)
    if len(str(name).encode()) > _MOST_STATE_NAME:
        raise Invalid("name", shown(name), f"keep it within {_MOST_STATE_NAME} bytes")
