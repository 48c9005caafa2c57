"""A model's reply as candidates, however it is wrapped; what holds no list of facts is refused."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from pagefile.memory.extraction.candidate import Candidate, Exchange, distinct, speaker_of
from pagefile.memory.extraction.errors import Malformed
from pagefile.memory.extraction.predicates import canonical

_MOST_STARTS = 64
_MOST_NAME = 200
_MOST_OBJECT = 1_000
_MOST_QUOTED = 200
#: What a model is taken to be sure of when it does not say.
_UNSAID = 0.7
#: A fact whose quotation is not in the exchange was made up in part at least.
_UNFOUND = 0.5

_THOUGHTS = re.compile(r"<think(?:ing)?>.*?(?:</think(?:ing)?>|\Z)", re.S | re.I)
_FENCED = re.compile(r"```[a-zA-Z]*\s*\n?(.*?)```", re.S)
_LISTS = ("facts", "triples", "items", "results", "data", "memories")
_NAMES = ("subject", "predicate", "object")
_NOTHING = frozenset({"", "null", "none", "n/a", "unknown", "undefined"})
_SPEAKER = frozenset({"i", "me", "user", "the user", "speaker", "the speaker"})


def candidates_in(text: str, exchange: Exchange, most_facts: int) -> list[Candidate]:
    """The facts of a reply, at most so many.

    Raises:
        Malformed: it has no list of facts. A list that is there and empty is an answer.
    """
    items = _list_in(_THOUGHTS.sub("", text))
    shaped = [item for item in items if isinstance(item, Mapping) and _has_names(item)]
    if items and not shaped:
        raise Malformed("the reply's list has no facts in it", "try again, or another model")
    found = [fact for item in shaped[:most_facts] if (fact := _candidate(item, exchange))]
    return distinct(found)


def _list_in(text: str) -> list[Any]:
    empty = False
    for value in _values(text):
        items = _facts_of(value)
        if items:
            return items
        empty = empty or items is not None
    if empty:
        return []
    raise Malformed("the reply has no JSON list of facts", "try again, or another model")


def _values(text: str) -> Iterator[Any]:
    """JSON values in a text, likeliest first: all of it, what is fenced, what starts anywhere."""
    for whole in (text, *(found[1] for found in _FENCED.finditer(text))):
        try:
            yield json.loads(whole, parse_constant=_no_constant)
        except (ValueError, RecursionError):
            continue
    decoder = json.JSONDecoder(parse_constant=_no_constant)
    at = 0
    for _ in range(_MOST_STARTS):
        start = re.compile(r"[\[{]").search(text, at)
        if start is None:
            return
        try:
            value, at = decoder.raw_decode(text, start.start())
        except (ValueError, RecursionError):
            at = start.end()
            continue
        yield value


def _no_constant(name: str) -> Any:
    return None if name else name  # NaN and Infinity are no numbers of JSON: as if unsaid.


def _facts_of(value: Any) -> list[Any] | None:
    """The list of facts that a value is or wraps; None when it is something else."""
    if isinstance(value, list):
        return value if not value or any(isinstance(item, Mapping) for item in value) else None
    if not isinstance(value, Mapping):
        return None
    if _has_names(value):
        return [value]
    for key in _LISTS:
        if isinstance(value.get(key), list):
            return _facts_of(value[key])
    lists = [inner for inner in value.values() if isinstance(inner, list)]
    return _facts_of(lists[0]) if len(lists) == 1 else None


def _has_names(item: Mapping[str, Any]) -> bool:
    return all(name in item for name in _NAMES)


def _candidate(item: Mapping[str, Any], exchange: Exchange) -> Candidate | None:
    subject, predicate, thing = (_text(item[name]) for name in _NAMES)
    predicate = canonical(predicate)
    if not (subject and predicate and thing):
        return None
    if max(len(subject), len(predicate)) > _MOST_NAME or len(thing) > _MOST_OBJECT:
        return None
    if subject.casefold() in _SPEAKER:
        subject = speaker_of(exchange)
    since, until = _time(item.get("valid_from"), exchange), _time(item.get("valid_until"), exchange)
    if since and until and until <= since:
        since = None
    quote = _text(item.get("quote"))
    sure = _confidence(item.get("confidence"))
    if quote and not _is_in(quote, exchange):
        quote, sure = "", min(sure, _UNFOUND)
    return Candidate(subject, predicate, thing, sure, since, until, quote[:_MOST_QUOTED])


def _text(value: Any) -> str:
    """A value as text; nothing for null, truth values, lists and words that mean nothing."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return ""
    text = " ".join(str(value).split())
    return "" if text.casefold() in _NOTHING else text


def _confidence(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return _UNSAID
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return _UNSAID
    return min(1.0, max(0.0, number)) if number == number else _UNSAID


def _time(value: Any, exchange: Exchange) -> datetime | None:
    if not isinstance(value, str):
        return None
    if re.fullmatch(r"\d{4}", value.strip()):
        value = f"{value.strip()}-01-01"
    elif re.fullmatch(r"\d{4}-\d\d", value.strip()):
        value = f"{value.strip()}-01"
    try:
        moment = datetime.fromisoformat(value.strip())
    except ValueError:
        return None
    return (
        moment
        if moment.utcoffset() is not None
        else moment.replace(tzinfo=exchange.occurred_at.tzinfo)
    )


def _is_in(quote: str, exchange: Exchange) -> bool:
    words = quote.casefold().strip(" .…\"'")
    return any(
        words in " ".join(text.casefold().split()) for text in (exchange.input, exchange.output)
    )
