"""From a conversation's journal back to its state, after a crash or a takeover."""

from __future__ import annotations

from typing import Any

from pagefile.dispatch.activation import Activation, Watcher
from pagefile.dispatch.answers import slot_of
from pagefile.dispatch.conversation import Conversation
from pagefile.dispatch.letter import Letter
from pagefile.errors import Corrupt
from pagefile.store.store import Store

_PAGE = 1_000


class JournalReader:
    """Reads journals of one store, and the slots that they speak of."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def catch_up(self, conversation: Conversation) -> list[Activation]:
        """Fold what was not seen yet; the activations that it made ready.

        Letters whose slots were erased have no payload, and are not delivered.
        """
        places: dict[str, tuple[int, int]] = {}
        while True:
            entries = self._store.read(conversation.journal, conversation.seen, limit=_PAGE)
            if not entries:
                break
            for entry in entries:
                if not entry.erased and entry.index not in conversation.own:
                    for record in entry.value:
                        self._fold(conversation, record, entry.position, places)
                conversation.seen = entry.index + 1
                conversation.own.discard(entry.index)
        self._fetch(conversation, places)
        return [
            act
            for act in conversation.activations.values()
            if act.inbox and act.running is None and not act.queued
        ]

    def _fold(
        self,
        conversation: Conversation,
        record: list[Any],
        position: int,
        places: dict[str, tuple[int, int]],
    ) -> None:
        kind = record[0]
        if kind == "in":
            letter = Letter(record[1], "request", conversation.thread, record[2], record[3])
            places[letter.id] = position, record[4]
            conversation.requests.append(letter)
            conversation.start_next()
        elif kind == "retry":
            letter = _taken(conversation, record[2], record[1])
            letter.attempts, letter.due_us = record[3], record[4]
            conversation.activations[record[2]].inbox.appendleft(letter)
        elif kind == "stop":
            _answer(conversation)
        elif kind == "hop":
            self._fold_hop(conversation, record, position, places)

    def _fold_hop(
        self,
        conversation: Conversation,
        record: list[Any],
        position: int,
        places: dict[str, tuple[int, int]],
    ) -> None:
        _, id, thread, sends, ended, answered, watches, spent = record
        _taken(conversation, thread, id)
        caller = conversation.activations[thread]
        conversation.messages += len(sends)
        conversation.spent += spent
        for send in sends:
            if send[1] == "call":
                conversation.open_call(caller, send[2], send[3])
        if answered:
            _answer(conversation)
        elif ended:
            conversation.release(caller)
        for send in sends:
            letter = Letter(send[0], send[1], send[2], send[3], send[4])
            act = conversation.activations.get(letter.thread)
            if act is not None:
                act.inbox.append(letter)
                places[letter.id] = position, send[5]
        for watch in watches:
            _fold_watch(conversation, caller, watch)

    def _fetch(self, conversation: Conversation, places: dict[str, tuple[int, int]]) -> None:
        """Read the slots of the letters that are still to be worked on."""
        letters = [*conversation.waiting(), *conversation.requests]
        for letter in letters:
            place = places.get(letter.id)
            if letter.entry is None and place is not None:
                letter.entry = slot_of(self._store, letter.thread, *place)


def _answer(conversation: Conversation) -> None:
    conversation.requests.popleft()
    conversation.release(conversation.activations[conversation.thread])
    conversation.start_next()


def _taken(conversation: Conversation, thread: str, id: str) -> Letter:
    """Take a letter out of the inbox it is first in."""
    act = conversation.activations.get(thread)
    if act is None or not act.inbox or act.inbox[0].id != id:
        raise Corrupt(
            f"the journal of conversation {conversation.thread!r} does not add up",
            "something else wrote to it: erase the conversation",
        )
    return act.inbox.popleft()


def _fold_watch(conversation: Conversation, act: Activation, watch: list[Any]) -> None:
    if watch[0] == "+":
        if act.watchers is None:
            act.watchers = {}
        act.watchers[watch[1]] = Watcher(*watch[1:])
    elif watch[0] == "-":
        (act.watchers or {}).pop(watch[1], None)
    else:
        other = conversation.activations.get(watch[1])
        if other is not None and other.watchers and watch[2] in other.watchers:
            other.watchers[watch[2]].raised = True
