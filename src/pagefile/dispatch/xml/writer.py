"""From values to elements."""

from __future__ import annotations

from typing import Any

from pagefile.dispatch.xml.forms import Choice, Form, Listing, Mapping, Plain, RecordForm, Row
from pagefile.dispatch.xml.limits import XmlLimits, lxml_etree, too_deep, too_many
from pagefile.errors import Invalid, shown

XSI = "http://www.w3.org/2001/XMLSchema-instance"
NIL = f"{{{XSI}}}nil"


class Writer:
    """Writes one payload; refuses what XML cannot hold."""

    def __init__(self, limits: XmlLimits) -> None:
        self._etree = lxml_etree()
        self._limits = limits
        self._elements = 0

    def payload(self, record: RecordForm, value: Any) -> Any:
        """The element of a payload.

        Raises:
            Invalid: something in it has no form in XML. LimitExceeded: it is too deep or large.
        """
        root = self._etree.Element(record.element, nsmap={"xsi": XSI})
        self._fields(root, record, value, record.element, 1)
        # Declared where needed only.
        self._etree.cleanup_namespaces(root)
        return root

    def _fields(self, parent: Any, record: RecordForm, value: Any, place: str, depth: int) -> None:
        held = record.read(value)
        for field in record.fields.values():
            if field.name not in held:
                continue
            inner = held[field.name]
            if inner is None and field.none_is_default:
                continue
            self._element(parent, field.element, field.form, inner, f"{place}.{field.name}", depth)

    def _element(
        self, parent: Any, name: str, form: Form, value: Any, place: str, depth: int
    ) -> None:
        self._elements += 1
        if self._elements >= self._limits.most_elements:
            raise too_many(self._elements + 1, self._limits.most_elements)
        if depth >= self._limits.most_depth:
            raise too_deep(depth + 1, self._limits.most_depth)
        made = self._etree.SubElement(parent, name)
        if value is None and form.nillable:
            made.set(NIL, "true")
            return
        self._content(made, form, value, place, depth + 1)

    def _content(self, made: Any, form: Form, value: Any, place: str, depth: int) -> None:
        if isinstance(form, Plain):
            made.text = self._text(form, value, place)
        elif isinstance(form, Choice):
            self._chosen(made, form, value, place, depth)
        elif isinstance(form, Row):
            if not isinstance(value, tuple) or len(value) != len(form.items):
                raise _misfit(place, value)
            for number, (item, inner) in enumerate(zip(form.items, value, strict=True), 1):
                self._element(made, f"Item{number}", item, inner, place, depth)
        elif isinstance(form, Listing):
            if not isinstance(value, form.cls):
                raise _misfit(place, value)
            for inner in value:
                self._element(made, "Item", form.item, inner, place, depth)
        elif isinstance(form, Mapping):
            if not isinstance(value, dict):
                raise _misfit(place, value)
            for key, inner in value.items():
                entry = self._etree.SubElement(made, "Entry")
                self._element(entry, "Key", form.key, key, place, depth + 1)
                self._element(entry, "Value", form.value, inner, place, depth + 1)

    def _chosen(self, made: Any, form: Choice, value: Any, place: str, depth: int) -> None:
        for record in form.records:
            if type(value) is record.cls:
                inside = made
                if form.several:
                    inside = self._etree.SubElement(made, record.element)
                    depth += 1
                self._fields(inside, record, value, place, depth)
                return
        raise _misfit(place, value)

    def _text(self, form: Plain, value: Any, place: str) -> str:
        if form.choices is not None:
            for text, meant in form.choices.items():
                if meant is value or (type(meant) is type(value) and meant == value):
                    return text
            raise _misfit(place, value)
        fits = type(value) is form.cls or (form.cls is float and type(value) is int)
        if not fits:
            raise _misfit(place, value)
        try:
            text = form.scalar.write(value)
            # lxml looks for characters that XML does not have.
            self._etree.Element("probe").text = text
        except (ValueError, OverflowError) as error:
            raise Invalid(place, f"{shown(value)} ({error})", "XML cannot hold it") from error
        return text


def _misfit(place: str, value: Any) -> Invalid:
    return Invalid(place, f"{shown(value)} is not what the class declares", "give what it declares")
