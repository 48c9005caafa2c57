"""Asking Redis: commands out, answers or typed errors back, whichever server has the keys."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from redis.exceptions import ConnectionError as Broken
from redis.exceptions import NoScriptError, RedisError
from redis.exceptions import TimeoutError as TimedOut

from pagefile.engines.redis.connection import Command, script
from pagefile.engines.redis.errors import lost, refused
from pagefile.errors import PagefileError

if TYPE_CHECKING:
    from pagefile.engines.redis.connection import Server

#: What is raised when no answer came.
FAILURES = (Broken, TimedOut, OSError)


class NotSent(Exception):
    """There was no connection, so nothing was sent."""

    def __init__(self, reason: Exception) -> None:
        super().__init__(str(reason))
        self.reason = reason


class Link(ABC):
    """A way to whoever has some keys: one server, or the shard of a cluster that has them now."""

    #: The server without credentials, for messages.
    where: str

    @abstractmethod
    def require_usable(self) -> None:
        """Refuse a handle that was closed, or belongs to the parent process."""

    @abstractmethod
    def node(self) -> Server:
        """The server itself."""

    @abstractmethod
    def renew(self) -> None:
        """A connection broke: let go of what may be stale."""

    @abstractmethod
    def follow(self, error: RedisError) -> bool:
        """Whether a refusal says where, or that later, it would be none; then ask again."""

    @abstractmethod
    def exchange(self, commands: Sequence[Command], *, waits: bool = False) -> list[Any]:
        """Send all, then read all answers; an answer that is an error is among them.

        Commands that wait in the server are ended by closing.

        Raises:
            NotSent: there is no connection.
            redis.exceptions.ConnectionError, TimeoutError, OSError: no answer came.
        """

    def ask(self, *commands: Command) -> list[Any]:
        """Answers to commands that only read, sent once more when the connection was stale.

        Raises:
            Unavailable: the server does not answer.
        """
        try:
            try:
                answers = self.exchange(commands)
            except FAILURES:
                self.renew()
                answers = self.exchange(commands)
        except NotSent as error:
            raise lost(error.reason, self.where) from error.reason
        except FAILURES as error:
            raise lost(error, self.where) from error
        except RedisError as error:
            raise refused(error, self.where) from error
        for answer in answers:
            if isinstance(answer, RedisError):
                raise refused(answer, self.where) from answer
        return answers

    def ask_one(self, *command: Any) -> Any:
        """The answer to one command that only reads."""
        return self.ask(command)[0]

    def run(self, name: str, keys: Sequence[bytes], arguments: Sequence[Any]) -> Any:
        """The answer of a script that only reads, or may run twice without harm."""
        text, digest = script(name)
        command = ("EVALSHA", digest, len(keys), *keys, *arguments)
        try:
            return self.ask(command)[0]
        except PagefileError as error:
            if not isinstance(error.__cause__, NoScriptError):
                raise
        return self.ask(("EVAL", text, *command[2:]))[0]

    def block(self, *command: Any) -> Any:
        """The answer to a command that waits; `close` ends the wait.

        Raises:
            Unavailable: the server does not answer. Forbidden: the handle was closed.
        """
        try:
            answer = self.exchange((command,), waits=True)[0]
        except NotSent as error:
            raise lost(error.reason, self.where) from error.reason
        except (*FAILURES, ValueError, AttributeError) as error:
            # A connection that is taken away while it is read fails in many ways: by `close`,
            # or because a shard's server is another one now.
            self.require_usable()
            gone = error if isinstance(error, FAILURES) else ConnectionError("it was closed")
            raise lost(gone, self.where) from error
        if isinstance(answer, RedisError):
            raise refused(answer, self.where) from answer
        return answer
