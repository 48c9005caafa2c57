"""XSD made from forms: a named type for each class, and an element for each payload."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pagefile.dispatch.xml.forms import Choice, Form, Listing, Mapping, Plain, RecordForm, Row
from pagefile.dispatch.xml.limits import lxml_etree

XSD = "http://www.w3.org/2001/XMLSchema"


def schema_of(payloads: Iterable[RecordForm]) -> Any:
    """The schema of some payloads, as a tree."""
    return _Writer().schema(list(payloads))


class _Writer:
    def __init__(self) -> None:
        self._etree = lxml_etree()
        self._root = self._etree.Element(_x("schema"), nsmap={"xs": XSD})
        self._done: set[str] = set()
        self._todo: list[RecordForm] = []

    def schema(self, payloads: list[RecordForm]) -> Any:
        for payload in payloads:
            self._add(self._root, "element", name=payload.element, type=self._type(payload))
        while self._todo:
            record = self._todo.pop(0)
            about = self._add(self._root, "complexType", name=record.type_name)
            fields = self._add(about, "all")
            for field in record.fields.values():
                least = {} if field.required else {"minOccurs": "0"}
                self._element(fields, field.element, field.form, **least)
        return self._root

    def _element(self, parent: Any, name: str, form: Form, **more: str) -> None:
        if form.nillable:
            more["nillable"] = "true"
        if isinstance(form, Choice) and not form.several:
            self._add(parent, "element", name=name, type=self._type(form.records[0]), **more)
            return
        if isinstance(form, Plain) and form.choices is None:
            self._add(parent, "element", name=name, type=f"xs:{form.scalar.xsd}", **more)
            return
        element = self._add(parent, "element", name=name, **more)
        if isinstance(form, Plain):
            simple = self._add(element, "simpleType")
            values = self._add(simple, "restriction", base=f"xs:{form.scalar.xsd}")
            for text in form.choices or ():
                self._add(values, "enumeration", value=text)
            return
        self._content(self._add(element, "complexType"), form)

    def _content(self, parent: Any, form: Form) -> None:
        if isinstance(form, Choice):
            choice = self._add(parent, "choice")
            for record in form.records:
                self._add(choice, "element", name=record.element, type=self._type(record))
            return
        sequence = self._add(parent, "sequence")
        if isinstance(form, Listing):
            self._element(sequence, "Item", form.item, minOccurs="0", maxOccurs="unbounded")
        elif isinstance(form, Row):
            for number, item in enumerate(form.items, 1):
                self._element(sequence, f"Item{number}", item)
        elif isinstance(form, Mapping):
            entry = self._add(
                sequence, "element", name="Entry", minOccurs="0", maxOccurs="unbounded"
            )
            pair = self._add(self._add(entry, "complexType"), "sequence")
            self._element(pair, "Key", form.key)
            self._element(pair, "Value", form.value)

    def _type(self, record: RecordForm) -> str:
        if record.type_name not in self._done:
            self._done.add(record.type_name)
            self._todo.append(record)
        return record.type_name

    def _add(self, parent: Any, tag: str, **attributes: str) -> Any:
        return self._etree.SubElement(parent, _x(tag), **attributes)


def _x(tag: str) -> str:
    return f"{{{XSD}}}{tag}"
