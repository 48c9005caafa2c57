"""From values to elements."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from pagefile.dispatch.xml.forms import Choice, Form, Listing, Mapping, Plain, RecordForm, Row
from pagefile.errors import Invalid, LimitExceeded, Unsupported, shown
from pagefile.store.arguments import require_count

# How large a document may be, and what lxml is found by.


class XmlLimits(msgspec.Struct, frozen=True):
    """Bounds on a document that is read or written; one byte or level more is refused."""

    most_bytes: int = 1_000_000
    most_depth: int = 64
    most_elements: int = 50_000
    most_attribute: int = 10_000


def require_xml_limits(limits: XmlLimits) -> XmlLimits:
    """The limits, if they make sense."""
    # Above this, libxml2 has limits of its own, which it reports less clearly.
    require_count(limits.most_bytes, "most_bytes", least=1, most=10_000_000)
    require_count(limits.most_depth, "most_depth", least=3, most=200)
    require_count(limits.most_elements, "most_elements", least=1)
    require_count(limits.most_attribute, "most_attribute", least=1)
    return limits


def lxml_etree() -> Any:
    """The library, which is installed with an extra.

    Raises:
        Unsupported: it is not installed.
    """
    try:
        from lxml import etree
    except ModuleNotFoundError as error:
        raise Unsupported("lxml is not installed", "pip install 'pagefile[xml]'") from error
    return etree


def too_deep(depth: int, most: int) -> LimitExceeded:
    """What a document that is nested too deep is refused with."""
    return LimitExceeded(
        "the depth of a document", limit=most, wanted=depth, next_step="send something flatter"
    )


def too_many(count: int, most: int) -> LimitExceeded:
    """What a document of too many elements is refused with."""
    return LimitExceeded(
        "a document's number of elements", limit=most, wanted=count, next_step="send less"
    )


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


# XSD made from forms: a named type for each class, and an element for each payload.


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
