"""Episodes in a store: read by id, by session, by time."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from datetime import datetime

import msgspec

from pagefile.errors import Invalid, NotFound, shown
from pagefile.memory.documents import living, require_user
from pagefile.memory.episodes.episode import (
    BY_SESSION,
    BY_TIME,
    MERGED,
    Episode,
    Message,
    Role,
    document_of,
    episode_of,
    require_episode_id,
)
from pagefile.memory.facts.fact import moment_us
from pagefile.store.arguments import require_count
from pagefile.store.batch import Query
from pagefile.store.codec.sort_key import KeyValue, microseconds
from pagefile.store.records import Document
from pagefile.store.store import Store

_PAGE = 500
#: Nothing happens after this; keys of moments end here.
_LAST_US = 2**62

TimeRange = tuple[datetime | None, datetime | None]


class Episodes:
    """Finished exchanges of each user, in the order of their time, then of their id."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def get(self, episode_id: str, user_id: str | None) -> Episode:
        """One episode.

        Raises:
            NotFound: the user has none of that id.
        """
        require_episode_id(episode_id)
        require_user(user_id)
        found = self._store.get(document_of(episode_id, user_id))
        if found is None or found.erased:
            raise NotFound(
                f"there is no episode {shown(episode_id)} here", "give the user_id it belongs to"
            )
        return episode_of(found)

    def newest(
        self, user_id: str | None, limit: int, time_range: TimeRange | None = None
    ) -> list[Episode]:
        """The last episodes, newest first, within both ends of the range."""
        low, high = bounds_of(time_range)
        query = Query(BY_TIME, low=(low,), high=(high + 1,), user=user_id, reverse=True)
        page = self._store.find(query, limit=limit)
        return [episode_of(found) for found in living(page.items)]

    def newest_elsewhere(
        self, session_id: str, user_id: str | None, low: int, high: int
    ) -> Iterator[Episode]:
        """Episodes of all sessions but one between two moments, newest first, as asked for."""
        for document in self._between(user_id, (low,), (high + 1,), BY_TIME, newest_first=True):
            episode = episode_of(document)
            if episode.session_id != session_id:
                yield episode

    def newest_of_session(
        self, session_id: str, user_id: str | None, limit: int, low: int, high: int
    ) -> list[Episode]:
        """The last episodes of a session between two moments, newest first."""
        query = Query(
            BY_SESSION,
            low=(session_id, low),
            high=(session_id, high + 1),
            user=user_id,
            reverse=True,
        )
        return [episode_of(found) for found in living(self._store.find(query, limit=limit).items)]

    def of_session(
        self, session_id: str, user_id: str | None, *, newest_first: bool = False
    ) -> Iterator[Episode]:
        """A session's episodes, one after the other, read as they are asked for."""
        for document in self.documents(user_id, session_id=session_id, newest_first=newest_first):
            yield episode_of(document)

    def documents(
        self,
        user_id: str | None,
        *,
        session_id: str | None = None,
        before: datetime | None = None,
        newest_first: bool = False,
    ) -> Iterator[Document]:
        """The documents of a user's episodes, of one session or of all, before a moment."""
        end = _LAST_US if before is None else microseconds(before)
        prefix: tuple[str, ...] = () if session_id is None else (session_id,)
        field = BY_TIME if session_id is None else BY_SESSION
        low: KeyValue = (*prefix, -_LAST_US)
        high: KeyValue = (*prefix, end)
        return self._between(user_id, low, high, field, newest_first=newest_first)

    def _between(
        self, user_id: str | None, low: KeyValue, high: KeyValue, field: str, *, newest_first: bool
    ) -> Iterator[Document]:
        """The documents with keys from one to before another, read as they are asked for."""
        cursor: str | None = None
        while True:
            query = Query(
                field, low=low, high=high, user=user_id, cursor=cursor, reverse=newest_first
            )
            page = self._store.find(query, limit=_PAGE)
            yield from living(page.items)
            cursor = page.cursor
            if cursor is None:
                return

    def merged(self, user_id: str | None, documents: Container[str]) -> set[str]:
        """What those would be called that were merged into one of these documents."""
        return {
            document_of(each, user_id)
            for name in self._with_merged(user_id)
            if name in documents
            for each in self._merged_into(name)
        }

    def holding(self, user_id: str | None, episode_id: str) -> list[str]:
        """The documents that an episode of this id was merged into."""
        names = self._with_merged(user_id)
        return [name for name in names if episode_id in self._merged_into(name)]

    def _with_merged(self, user_id: str | None) -> Iterator[str]:
        """The documents that others were merged into."""
        cursor: str | None = None
        while True:
            query = Query(MERGED, True, user=user_id, cursor=cursor)
            page = self._store.find(query, limit=_PAGE)
            yield from (document.name for document in living(page.items))
            cursor = page.cursor
            if cursor is None:
                return

    def _merged_into(self, name: str) -> Iterator[str]:
        """Of every version: the last one names only some of those before it."""
        after = 0
        while versions := self._store.history(name, after=after, limit=_PAGE):
            for version in versions:
                yield from () if version.erased or version.deleted else version.sources
            after = versions[-1].version


def bounds_of(time_range: TimeRange | None) -> tuple[int, int]:
    """The range in microseconds, both ends included; an open end is as far as time goes."""
    if time_range is None:
        return -_LAST_US, _LAST_US
    if not isinstance(time_range, tuple) or len(time_range) != 2:
        raise Invalid("time_range", shown(time_range), "give (from, until), either may be None")
    low, high = time_range
    bounds = (
        -_LAST_US if low is None else moment_us("time_range", low),
        _LAST_US if high is None else moment_us("time_range", high),
    )
    if bounds[0] > bounds[1]:
        raise Invalid("time_range", "ends before it begins", "give the earlier moment first")
    return bounds


def require_limit(limit: object, most: int = 1_000) -> int:
    """How many are wanted: 0 is none, and there is a most."""
    return require_count(limit, "limit", most=most)


# A session as messages again: the last ones, exactly counted, no tool call without its result.


def messages_of(episode: Episode) -> list[Message]:
    """What was said in an episode, in order."""
    said = [] if not episode.input else [Message(Role.USER, episode.input, episode.speaker)]
    said += episode.tool_transcript or ()
    if episode.output:
        said.append(Message(Role.ASSISTANT, episode.output))
    return said


def last_messages(newest_first: Iterable[Episode], limit: int) -> list[Message]:
    """The last messages in the order they were said, at most `limit`.

    Answers of tools stand right behind the call that asked for them, wherever
    they came, also in a later episode: no model takes them elsewhere. Where a
    call and its answers would have to be cut, they are left out, so there may
    be fewer. Calls that were not answered in full go, and so do answers to
    nothing; what was said with such a call stays.
    """
    units: list[list[Message]] = []
    answers = _Answers()
    count = 0
    for episode in newest_first:
        for message in reversed(_addressed(messages_of(episode))):
            unit = answers.with_theirs(message)
            count += len(unit)
            if count > limit:
                return _joined(units)
            units.append(unit)
        if count == limit:
            break
    return _joined(units)


def _joined(newest_first: list[list[Message]]) -> list[Message]:
    return [message for unit in reversed(newest_first) for message in unit]


def _addressed(messages: list[Message]) -> list[Message]:
    """The messages, with answers that name no call given those of the call they stand behind."""
    told: list[Message] = []
    open_ids: list[str] = []
    for message in messages:
        if message.role != Role.TOOL:
            open_ids = [call.id for call in message.tool_calls]
        elif message.tool_call_id is None and open_ids:
            message = msgspec.structs.replace(message, tool_call_id=open_ids.pop(0))
        elif message.tool_call_id in open_ids:
            open_ids.remove(message.tool_call_id)
        told.append(message)
    return told


class _Answers:
    """Answers of tools that were met before their calls, on the way back through a session."""

    def __init__(self) -> None:
        self._met = 0
        self._open: dict[str, list[tuple[int, Message]]] = {}

    def with_theirs(self, message: Message) -> list[Message]:
        """What is told in this message's place: a call with its answers, an answer with none."""
        if message.role == Role.TOOL:
            self._met += 1
            self._open.setdefault(message.tool_call_id or "", []).append((self._met, message))
            return []
        if not message.tool_calls:
            return [message]
        asked = {call.id for call in message.tool_calls}
        # An id may be used again later: what came first behind this call is its answer.
        found = [self._open.pop(name)[-1] for name in asked if name in self._open]
        if len(found) == len(asked):
            found.sort(key=lambda one: -one[0])
            return [message, *(answer for _, answer in found)]
        if message.content.strip():
            return [msgspec.structs.replace(message, tool_calls=())]
        return []
