"""The rules of a step: from what a handler came to, to what is committed and sent.

Every step is taken on the state in memory first and committed then; a refused
commit throws the state away and reads it anew.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import msgspec

from pagefile.context import registry_documents
from pagefile.context.names import PATHS
from pagefile.context.path import MOST_NAMES, ROOT_NAMES
from pagefile.context.slot import payload_type_of
from pagefile.dispatch.conversation import Activation, Conversation, Watcher, put_dead_letter
from pagefile.dispatch.journal import Draft
from pagefile.dispatch.letter import (
    ROUTING_ERROR,
    SYSTEM,
    TODO,
    TODO_COMPLETE,
    CloseEffect,
    Effects,
    Failure,
    HandlerResponse,
    Letter,
    LetterKind,
    NoReply,
    Outcome,
    SlotEffect,
    StateEffect,
    Stop,
    SystemError,
    TodoClosed,
    TodoComplete,
    TodoRegistered,
    TodoUntil,
    WatchEffect,
    system_error,
)
from pagefile.dispatch.listener import STATES, DispatchLimits, Listeners
from pagefile.store.batch import Delete, Put

# One step while it is taken: what the journal will say of it.


class Hop(msgspec.Struct, eq=False, gc=False):
    """A step of one activation on its way into a draft."""

    draft: Draft
    act: Activation
    #: Id, kind, thread, recipient, sender and the number of the slot, for each message.
    sends: list[list[Any]] = []
    #: 1 when the activation ended with this step.
    ended: int = 0
    #: The request that was answered, and the number of the slot; 0 when none was.
    answered: list[Any] | int = 0
    watches: list[list[Any]] = []
    spent: int = 0


# Watchers: "tell me when a payload of this type has come to my thread".


def watch(hop: Hop, effect: WatchEffect) -> None:
    """Begin to watch; it ends with the activation at the latest."""
    watcher = Watcher(effect.id, effect.wait_for, effect.from_listener, effect.description)
    if hop.act.watchers is None:
        hop.act.watchers = {}
    hop.act.watchers[effect.id] = watcher
    hop.watches.append(["+", effect.id, effect.wait_for, effect.from_listener, effect.description])


def close(hop: Hop, effect: CloseEffect) -> bool:
    """Close a watcher; whether it had been raised."""
    watcher = (hop.act.watchers or {}).pop(effect.id, None)
    hop.watches.append(["-", effect.id])
    return watcher is not None and watcher.raised


def raise_matching(hop: Hop, act: Activation, payload: Any, sender: str) -> None:
    """A message comes to a thread: raise those who waited for it."""
    kind = payload_type_of(payload)
    for watcher in (act.watchers or {}).values():
        if not watcher.raised and watcher.matches(kind, sender):
            watcher.raised = True
            hop.watches.append(["!", act.thread, watcher.id])


_SECOND = 1_000_000


class Stepper:
    """Takes steps under one set of listeners and limits."""

    def __init__(
        self,
        listeners: Listeners,
        limits: DispatchLimits,
        new_thread: Callable[[], str],
        new_message: Callable[[], str],
        *,
        registers_calls: bool = False,
    ) -> None:
        self._listeners = listeners
        self._limits = limits
        self._max_depth = min(limits.max_depth, MOST_NAMES - ROOT_NAMES)
        self._new_thread = new_thread
        self._new_message = new_message
        self._registers_calls = registers_calls

    def step(self, conversation: Conversation, outcome: Outcome | Stop, draft: Draft) -> bool:
        """Take one step; False when what it is about has ended meanwhile."""
        if isinstance(outcome, Stop):
            first = conversation.activations.get(conversation.thread)
            if first is None:
                return False
            hop = Hop(draft, first)
            self._stop(conversation, hop, outcome.code, outcome.message)
            draft.records.append(["stop", hop.answered])
            return True
        letter = outcome.letter
        act = conversation.activations.get(letter.thread)
        if act is None or act.running is None or act.running.id != letter.id:
            return False
        act.running = None
        failure = outcome.failure
        if outcome.unrecorded:
            self._stop_unrecorded(conversation, letter, failure, draft)
            return True
        if failure is not None and failure.pause is not None:
            self._retry(letter, act, failure.pause, draft)
            return True
        hop = Hop(draft, act)
        if failure is not None:
            self._fail(conversation, hop, letter, failure)
        else:
            self._go_on(conversation, hop, outcome)
        draft.records.append(
            [
                "hop",
                letter.id,
                letter.thread,
                hop.sends,
                hop.ended,
                hop.answered,
                hop.watches,
                hop.spent,
            ]
        )
        return True

    def _retry(self, letter: Letter, act: Activation, pause: float, draft: Draft) -> None:
        letter.attempts += 1
        letter.due_us = time.time_ns() // 1_000 + int(pause * _SECOND)
        act.inbox.appendleft(letter)
        act.queued = True
        draft.delayed.append((act, letter))
        draft.records.append(["retry", letter.id, letter.thread, letter.attempts, letter.due_us])

    def _go_on(self, conversation: Conversation, hop: Hop, outcome: Outcome) -> None:
        act, draft, effects = hop.act, hop.draft, outcome.effects
        responses = outcome.responses
        if effects is not None:
            if effects.made or effects.spent:
                self._take_effect(conversation, hop, effects)
            if effects.sent:
                emitted = [HandlerResponse(payload, to) for payload, to in effects.sent]
                responses = [*emitted, *responses]
        conversation.messages += len(responses)
        if conversation.messages > self._limits.max_messages:
            self._stop(conversation, hop, "budget", "the request caused too many messages")
            return
        for response in responses:
            if response.is_response:
                self._respond(conversation, hop, response.payload)
                return
            self._send(conversation, hop, response)
        if act.is_done:
            self._end_without_reply(conversation, hop)
        elif act.inbox:
            act.queued = True
            draft.ready.append(act)

    # Sending

    def _send(self, conversation: Conversation, hop: Hop, response: HandlerResponse) -> None:
        act, payload, to = hop.act, response.payload, response.to
        if to == act.listener:
            number, ordinal = hop.draft.slot(
                act.thread,
                payload,
                to,
                to,
                limit=self._limits.max_slots_per_thread,
                own=True,
            )
            self._deliver(hop, act, "self", to, payload, number, ordinal)
            return
        if to in (TODO, TODO_COMPLETE):
            self._todo(hop, payload, str(to))
            return
        targets = self._targets(act, payload, to)
        if not targets:
            self._tell_self(hop, ROUTING_ERROR)
            return
        if act.depth >= self._max_depth:
            error = system_error(
                "depth",
                f"calls may nest {self._max_depth} deep",
                act.listener,
                retry_allowed=False,
            )
            self._tell_self(hop, error)
            return
        for target in targets:
            self._call(conversation, hop, target, payload)

    def _targets(self, act: Activation, payload: Any, to: object) -> list[str]:
        """Whom the message reaches: those it names, of those that this listener may call."""
        me = self._listeners.get(act.listener)
        if me is None:
            return []
        if to is not None:
            named = self._listeners.get(to) if isinstance(to, str) else None
            if named is None or not named.accepts(payload) or not me.may_call(named.name):
                return []
            return [named.name]
        return [one.name for one in self._listeners.taking(payload) if me.may_call(one.name)]

    def _call(self, conversation: Conversation, hop: Hop, name: str, payload: Any) -> None:
        act, draft, limit = hop.act, hop.draft, self._limits.max_slots_per_thread
        callee = conversation.open_call(act, self._new_thread(), name)
        if self._registers_calls:
            path = registry_documents.put_path(
                callee.thread, conversation.path_of(callee), conversation.user
            )
            draft.operations.append(path)
        draft.slot(act.thread, payload, act.listener, name, limit=limit)
        number, ordinal = draft.slot(callee.thread, payload, act.listener, name, limit=limit)
        self._deliver(hop, callee, "call", act.listener, payload, number, ordinal)

    def _deliver(
        self,
        hop: Hop,
        act: Activation,
        kind: LetterKind,
        sender: str,
        payload: Any,
        number: int,
        ordinal: int,
    ) -> None:
        """Put a recorded message into an inbox; it is worked on once it is committed."""
        letter = Letter(self._new_message(), kind, act.thread, act.listener, sender)
        hop.draft.letters.append((letter, number, payload))
        hop.sends.append([letter.id, kind, act.thread, act.listener, sender, ordinal])
        if act.watchers:
            raise_matching(hop, act, payload, sender)
        act.inbox.append(letter)
        if not act.queued and act.running is None and act is not hop.act:
            act.queued = True
            hop.draft.ready.append(act)

    def _tell_self(self, hop: Hop, error: SystemError) -> None:
        act = hop.act
        number, ordinal = hop.draft.slot(
            act.thread, error, SYSTEM, act.listener, limit=self._limits.max_slots_per_thread
        )
        self._deliver(hop, act, "error", SYSTEM, error, number, ordinal)

    # Ending

    def _respond(self, conversation: Conversation, hop: Hop, payload: Any) -> None:
        act, draft, limit = hop.act, hop.draft, self._limits.max_slots_per_thread
        above = None if act.caller is None else conversation.activations.get(act.caller)
        if act.caller is None:
            number, ordinal = draft.slot(
                act.thread, payload, act.listener, conversation.initiator, limit=limit
            )
            self._answer(conversation, hop, number, ordinal, payload)
        elif above is not None:
            draft.slot(act.thread, payload, act.listener, above.listener, limit=limit)
            self._release(conversation, hop)
            self._reply(hop, above, "reply", act.listener, payload)

    def _reply(
        self, hop: Hop, above: Activation, kind: LetterKind, sender: str, payload: Any
    ) -> None:
        number, ordinal = hop.draft.slot(
            above.thread,
            payload,
            sender,
            above.listener,
            limit=self._limits.max_slots_per_thread,
        )
        self._deliver(hop, above, kind, sender, payload, number, ordinal)

    def _end_without_reply(self, conversation: Conversation, hop: Hop) -> None:
        act = hop.act
        if act.caller is None:
            self._answer(conversation, hop, -1, -1, None)
            return
        above = conversation.activations.get(act.caller)
        self._release(conversation, hop)
        if above is not None:
            self._reply(hop, above, "reply", SYSTEM, NoReply(act.listener))

    def _fail(self, conversation: Conversation, hop: Hop, letter: Letter, failure: Failure) -> None:
        act = hop.act
        letter.attempts += 1
        hop.draft.operations.append(put_dead_letter(conversation, letter, failure))
        hop.draft.dead.append(letter)
        error = system_error(failure.code, failure.message, act.listener, retry_allowed=True)
        self._end_with(conversation, hop, error)

    def _stop(self, conversation: Conversation, hop: Hop, code: str, message: str) -> None:
        """End the whole request."""
        first = conversation.activations[conversation.thread]
        hop.act = first
        error = system_error(code, message, first.listener, retry_allowed=False)
        self._end_with(conversation, hop, error)

    def _stop_unrecorded(
        self, conversation: Conversation, letter: Letter, failure: Failure | None, draft: Draft
    ) -> None:
        """End the whole request with an error that stands in the journal alone."""
        hop = Hop(draft, conversation.activations[conversation.thread])
        code, message = ("full", "") if failure is None else (failure.code, failure.message)
        error = system_error(code, message, letter.to, retry_allowed=False)
        self._answer(conversation, hop, -1, -1, error)
        answered = [*hop.answered, error.code, error.message, error.listener]  # type: ignore[misc]
        draft.records.append(["hop", letter.id, letter.thread, [], 1, answered, [], 0])

    def _end_with(self, conversation: Conversation, hop: Hop, error: SystemError) -> None:
        act = hop.act
        if act.caller is None:
            number, ordinal = hop.draft.slot(
                act.thread,
                error,
                SYSTEM,
                conversation.initiator,
                limit=self._limits.max_slots_per_thread,
            )
            self._answer(conversation, hop, number, ordinal, error)
            return
        above = conversation.activations.get(act.caller)
        self._release(conversation, hop)
        if above is not None:
            self._reply(hop, above, "error", SYSTEM, error)

    def _answer(
        self, conversation: Conversation, hop: Hop, number: int, ordinal: int, payload: Any
    ) -> None:
        """The request is done with: tell whoever waits, and let the next one begin."""
        draft = hop.draft
        request = conversation.requests.popleft()
        hop.answered = [request.id, ordinal]
        draft.answers.append((request.id, number, payload))
        self._release(conversation, hop)
        following = conversation.start_next()
        if following is not None:
            path = registry_documents.put_path(
                following.thread, conversation.path_of(following), conversation.user
            )
            draft.operations.append(path)
            following.queued = True
            draft.ready.append(following)
        else:
            draft.ends = True

    def _release(self, conversation: Conversation, hop: Hop) -> None:
        hop.ended = 1
        gone = conversation.release(hop.act)
        if self._registers_calls:
            hop.draft.operations += [Delete(PATHS + thread) for thread in gone]
        elif hop.act.caller is None:
            hop.draft.operations.append(Delete(PATHS + hop.act.thread))
        hop.draft.released += gone

    # Effects and watchers

    def _take_effect(self, conversation: Conversation, hop: Hop, effects: Effects) -> None:
        act, draft = hop.act, hop.draft
        hop.spent = effects.spent
        conversation.spent += effects.spent
        limit = self._limits.max_slots_per_thread
        for effect in effects.made:
            if isinstance(effect, SlotEffect):
                draft.slot(act.thread, effect.payload, act.listener, effect.to, limit=limit)
            elif isinstance(effect, StateEffect):
                name = f"{STATES}{act.thread}/{effect.name}"
                draft.operations.append(
                    Put(name, effect.value, user=conversation.user, kind="state")
                )
            elif isinstance(effect, WatchEffect):
                watch(hop, effect)
            else:
                close(hop, effect)

    def _todo(self, hop: Hop, payload: Any, to: str) -> None:
        act, limit = hop.act, self._limits.max_slots_per_thread
        reply: TodoRegistered | TodoClosed
        if to == TODO and isinstance(payload, TodoUntil):
            id = self._new_message()
            watch(
                hop,
                WatchEffect(id, payload.wait_for, payload.from_listener, payload.description),
            )
            reply = TodoRegistered(id, payload.wait_for, payload.description)
        elif to == TODO_COMPLETE and isinstance(payload, TodoComplete):
            reply = TodoClosed(payload.id, close(hop, CloseEffect(payload.id)))
        else:
            self._tell_self(hop, ROUTING_ERROR)
            return
        hop.draft.slot(act.thread, payload, act.listener, to, limit=limit)
        number, ordinal = hop.draft.slot(act.thread, reply, to, act.listener, limit=limit)
        self._deliver(hop, act, "reply", to, reply, number, ordinal)
