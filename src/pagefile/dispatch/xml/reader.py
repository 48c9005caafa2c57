"""From elements to values, when the schema has let them pass."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from pagefile.dispatch.xml.forms import Choice, Form, Listing, Mapping, Plain, RecordForm, Row
from pagefile.dispatch.xml.writer import NIL
from pagefile.errors import Invalid, shown


def payload_of(record: RecordForm, element: Any) -> Any:
    """The payload that an element holds.

    Raises:
        Invalid: the class itself refuses it.
    """
    return _made(record, element, record.element)


def _made(record: RecordForm, element: Any, place: str) -> Any:
    values: dict[str, Any] = {}
    for child in element:
        field = record.fields[child.tag]
        values[field.given] = _value(field.form, child, f"{place}.{field.name}")
    try:
        return record.cls.model_validate(values) if record.is_model else record.cls(**values)
    except (ValueError, TypeError, ArithmeticError, LookupError) as error:
        # A class may check itself as it is made.
        told = " ".join(str(error).split())[:200]
        raise Invalid(place, f"is refused ({told})", "mend the payload") from error


def _value(form: Form, element: Any, place: str) -> Any:
    if form.nillable and element.get(NIL) in ("true", "1"):
        return None
    value = _content(form, element, place)
    if form.checks:
        try:
            # A scalar: bare, as there is no struct to be worked out.
            msgspec.convert(value, Annotated[type(value), *form.checks])  # noqa: TID251
        except msgspec.ValidationError as error:
            raise Invalid(place, str(error), "mend the payload") from error
    return value


def _content(form: Form, element: Any, place: str) -> Any:
    if isinstance(form, Plain):
        return _scalar(form, text_of(element), place)
    if isinstance(form, Choice):
        if not form.several:
            return _made(form.records[0], element, place)
        chosen = element[0]
        (record,) = (each for each in form.records if each.element == chosen.tag)
        return _made(record, chosen, place)
    if isinstance(form, Row):
        pairs = zip(form.items, element, strict=True)
        return tuple(_value(item, child, place) for item, child in pairs)
    if isinstance(form, Listing):
        return form.make([_value(form.item, child, place) for child in element])
    assert isinstance(form, Mapping)
    return {
        _value(form.key, entry[0], place): _value(form.value, entry[1], place) for entry in element
    }


def _scalar(form: Plain, text: str, place: str) -> Any:
    plain = text if form.scalar.exact and form.choices is None else text.strip()
    if form.scalar.exact and form.choices is not None and text in form.choices:
        return form.choices[text]
    try:
        value = form.scalar.read(plain)
        return value if form.choices is None else form.choices[form.scalar.write(value)]
    except (ValueError, ArithmeticError, LookupError) as error:
        raise Invalid(
            place, f"{shown(text)} is no {form.cls.__name__} ({error})", "mend the payload"
        ) from error


def text_of(element: Any) -> str:
    """The text in an element, in one piece whatever comments stood in it."""
    return "".join(element.itertext())
