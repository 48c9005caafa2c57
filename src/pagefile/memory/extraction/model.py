"""The extractor that asks a model."""

from __future__ import annotations

import threading
from typing import Self

from pagefile.errors import Invalid
from pagefile.memory.extraction import prompt
from pagefile.memory.extraction.budget import TokenBudget
from pagefile.memory.extraction.candidate import Candidate, Exchange
from pagefile.memory.extraction.chat import ChatClient, tokens_of
from pagefile.memory.extraction.errors import Malformed
from pagefile.memory.extraction.reply import candidates_in
from pagefile.store.arguments import require_count


class ChatExtractor:
    """Facts by a model behind the chat API: one call for one exchange.

    Keeps nothing between calls, so threads may share one; how many ask at once is the
    client's to bound. `max_tokens` is for one reply, `budget` for all calls together.
    """

    def __init__(
        self,
        client: ChatClient,
        *,
        max_tokens: int = 1024,
        max_facts_per_episode: int = 20,
        budget: TokenBudget | None = None,
    ) -> None:
        self._client = client
        self._max_tokens = require_count(max_tokens, "max_tokens", least=1)
        self._max_facts = require_count(
            max_facts_per_episode, "max_facts_per_episode", least=1, most=1_000
        )
        self._budget = budget
        least = tokens_of(prompt.instructions(self._max_facts)) + self._max_tokens
        if budget is not None and budget.limit < least:
            raise Invalid(
                "budget",
                f"{budget.limit:,} is less than one call may cost, {least:,} without the text",
                "give more, or lower max_tokens",
            )

    @property
    def name(self) -> str:
        return f"chat:{self._client.model}"

    @property
    def version(self) -> str:
        return prompt.VERSION

    def __repr__(self) -> str:
        return f"ChatExtractor({self._client!r})"

    def within(self, budget: TokenBudget) -> Self:
        """The same extractor under a round's budget; the connections are shared."""
        return type(self)(
            self._client,
            max_tokens=self._max_tokens,
            max_facts_per_episode=self._max_facts,
            budget=budget,
        )

    def close(self) -> None:
        """Close the client's connections."""
        self._client.close()

    def extract(
        self, exchange: Exchange, *, cancel: threading.Event | None = None
    ) -> list[Candidate]:
        """What the model finds stated in the exchange.

        Raises:
            Malformed: the reply holds no list of facts; that is not "no facts".
            Otherwise as `ChatClient.complete`.
        """
        if not exchange.input.strip() and not exchange.output.strip():
            return []
        completion = self._client.complete(
            prompt.messages_for(exchange, self._max_facts),
            max_tokens=self._max_tokens,
            budget=self._budget,
            cancel=cancel,
        )
        try:
            return candidates_in(completion.text, exchange, self._max_facts)
        except Malformed as error:
            cut = completion.finish == "length"
            raise Malformed(
                f"{error.fact}{', and was cut off' if cut else ''}",
                "raise max_tokens" if cut else error.next_step,
                tokens=completion.tokens,
            ) from error
