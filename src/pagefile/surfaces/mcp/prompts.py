"""Prompts: what a person picks from a menu to start with what is known."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from pagefile.errors import Invalid, NotFound, shown
from pagefile.surfaces.mcp.caller import Caller
from pagefile.surfaces.mcp.identity import READ
from pagefile.surfaces.mcp.thread_tools import GetContext, context


class PromptArgument(msgspec.Struct, frozen=True):
    name: str
    about: str
    required: bool = True


class PromptForm(msgspec.Struct, frozen=True):
    """One prompt: what it takes, and the text that it becomes."""

    name: str
    title: str
    about: str
    arguments: tuple[PromptArgument, ...]
    write: Callable[[Caller, Mapping[str, str]], str]


def _answer(caller: Caller, given: Mapping[str, str]) -> str:
    question = given["question"]
    known = context(caller, GetContext(query=question, user_id=given.get("user_id")))
    return f"{known.text}\n\nAnswer this with what is known above:\n\n{question}"


def _resume(caller: Caller, given: Mapping[str, str]) -> str:
    brief = caller.run(given["run_id"]).brief(max_tokens=caller.budget.most)
    return f"{brief}\n\nGo on with this run: do its next action, then say what changed."


PROMPTS = (
    PromptForm(
        "answer_from_memory",
        "Answer from memory",
        "A question, under what is remembered about it.",
        (
            PromptArgument("question", "What to answer."),
            PromptArgument("user_id", "Whose memories.", required=False),
        ),
        _answer,
    ),
    PromptForm(
        "resume_run",
        "Go on with a run",
        "A run's objective, state and next action, to go on with it.",
        (PromptArgument("run_id", "The run's id."),),
        _resume,
    ),
)


def written(caller: Caller, name: str, given: Mapping[str, str] | None) -> str:
    """The text of a prompt.

    Raises:
        NotFound: there is no such prompt. Invalid: an argument is missing or unknown.
    """
    caller.require(READ)
    form = next((form for form in PROMPTS if form.name == name), None)
    if form is None:
        raise NotFound(f"there is no prompt {shown(name)}", "list the prompts")
    arguments = dict(given or {})
    for argument in form.arguments:
        if argument.required and argument.name not in arguments:
            raise Invalid(argument.name, "is missing", f"{name} needs it")
    unknown = sorted(set(arguments) - {argument.name for argument in form.arguments})
    if unknown:
        raise Invalid(unknown[0], f"is no argument of {name}", "leave it out")
    return form.write(caller, arguments)
