"""A tree that was read leniently, made anew as the class wants it."""

from __future__ import annotations

from typing import Any

from pagefile.dispatch.xml.forms import Choice, Form, Listing, Mapping, Plain, RecordForm, Row
from pagefile.dispatch.xml.limits import lxml_etree
from pagefile.dispatch.xml.markup import folded
from pagefile.dispatch.xml.repair_notes import Notes
from pagefile.dispatch.xml.writer import NIL, XSI

_TRUTHS = {"yes": "true", "no": "false", "on": "true", "off": "false"}


def names_in(record: RecordForm) -> set[str]:
    """The folded names of all elements that a payload may have."""
    found: set[str] = set()
    _collect(Choice([record]), found, set())
    return found | {folded(record.element)}


def mended_tree(record: RecordForm, element: Any, notes: Notes) -> Any:
    """The element of a payload, as like the class as it can be made without inventing anything."""
    return _Mender(notes).payload(record, element)


class _Mender:
    def __init__(self, notes: Notes) -> None:
        self._etree = lxml_etree()
        self._notes = notes

    def payload(self, record: RecordForm, element: Any) -> Any:
        root = self._etree.Element(record.element, nsmap={"xsi": XSI})
        self._renamed(element, record.element)
        self._fields(root, record, element)
        self._etree.cleanup_namespaces(root)
        return root

    def _fields(self, made: Any, record: RecordForm, element: Any) -> None:
        wanted = {folded(name): name for name in record.fields}
        given: dict[str, list[Any]] = {}
        for child in self._children(record, element):
            name = wanted.get(folded(child.tag))
            if name is None:
                self._notes.add(f"an unknown element was left out: {record.element}/{child.tag}")
                continue
            self._renamed(child, name)
            given.setdefault(name, []).append(child)
        for key, text in element.attrib.items():
            name = wanted.get(folded(key))
            if name is not None and name not in given:
                self._notes.add(f"an attribute was made an element: {record.element}/{name}")
                child = self._etree.Element(name)
                child.text = text
                given[name] = [child]
        if _has_stray_text(element):
            self._notes.add(f"text between elements was left out: {record.element}")
        for name, field in record.fields.items():
            for child in self._once(name, field.form, given.get(name, [])):
                self._element(made, name, field.form, child)

    def _children(self, record: RecordForm, element: Any) -> list[Any]:
        """The children, and those of their children that belong here: an end tag was forgotten."""
        wanted = {folded(name): field.form for name, field in record.fields.items()}
        found: list[Any] = []
        todo = list(element)[::-1]
        while todo:
            child = todo.pop()
            found.append(child)
            if isinstance(wanted.get(folded(child.tag)), Plain):
                astray = [one for one in child if folded(one.tag) in wanted]
                for one in astray:
                    one.tail = None
                    child.remove(one)
                    self._notes.add(f"an element was moved out of the one before it: {one.tag}")
                todo += astray[::-1]
        return found

    def _once(self, name: str, form: Form, children: list[Any]) -> list[Any]:
        if len(children) < 2:
            return children
        if isinstance(form, Listing):
            self._notes.add(f"repeated elements were made one list: {name}")
            whole = self._etree.Element(name)
            for child in children:
                if len(child) and not isinstance(form.item, Choice):
                    whole.extend(list(child))
                else:
                    whole.append(child)
            return [whole]
        self._notes.add(f"a repeated element was left out: {name}", len(children) - 1)
        return children[:1]

    def _element(self, parent: Any, name: str, form: Form, element: Any) -> None:
        made = self._etree.SubElement(parent, name)
        nil = element.get(NIL) or element.get("nil") or ""
        if form.nillable and (nil.lower() in ("true", "1") or self._means_nothing(form, element)):
            made.set(NIL, "true")
            return
        if isinstance(form, Plain):
            made.text = self._text(form, "".join(element.itertext()))
            return
        if isinstance(form, Choice):
            self._chosen(made, form, element)
            return
        if isinstance(form, Listing) and isinstance(form.item, Plain) and not len(element):
            self._lone_item(made, form.item, element)
            return
        if _has_stray_text(element):
            self._notes.add(f"text between elements was left out: {name}")
        if isinstance(form, Row):
            for number, (item, child) in enumerate(zip(form.items, element, strict=False), 1):
                self._renamed(child, f"Item{number}")
                self._element(made, f"Item{number}", item, child)
            if len(element) > len(form.items):
                self._notes.add(f"elements too many were left out: {name}")
        elif isinstance(form, Listing):
            for child in element:
                self._renamed(child, "Item")
                self._element(made, "Item", form.item, child)
        elif isinstance(form, Mapping):
            for entry in element:
                self._entry(made, form, entry)

    def _lone_item(self, made: Any, form: Plain, element: Any) -> None:
        if (element.text or "").strip():
            self._notes.add(f"a text was made the only item of its list: {element.tag}")
            self._element(made, "Item", form, element)

    def _entry(self, made: Any, form: Mapping, entry: Any) -> None:
        self._renamed(entry, "Entry")
        parts = {folded(child.tag): child for child in entry}
        if "key" not in parts or "value" not in parts:
            self._notes.add(f"an entry without key or value was left out: {entry.tag}")
            return
        pair = self._etree.SubElement(made, "Entry")
        self._element(pair, "Key", form.key, parts["key"])
        self._element(pair, "Value", form.value, parts["value"])

    def _chosen(self, made: Any, form: Choice, element: Any) -> None:
        if not form.several:
            self._fields(made, form.records[0], element)
            return
        for child in element:
            for record in form.records:
                if folded(child.tag) == folded(record.element):
                    self._renamed(child, record.element)
                    inside = self._etree.SubElement(made, record.element)
                    self._fields(inside, record, child)
                    return

    def _text(self, form: Plain, text: str) -> str:
        if form.scalar.exact and form.choices is None:
            return text
        plain = text.strip()
        if form.cls is bool:
            meant = _TRUTHS.get(plain.lower(), plain.lower())
        elif form.choices is not None and plain not in form.choices:
            folds = {one.lower(): one for one in form.choices}
            meant = folds.get(plain.lower(), plain)
        else:
            meant = plain
        if meant != plain:
            self._notes.add(f"a value was spelled as declared: {plain[:40]} is {meant}")
        return meant

    def _means_nothing(self, form: Form, element: Any) -> bool:
        """Whether an empty element, or the word for nothing, stands where None may be."""
        if len(element) or element.attrib or (isinstance(form, Plain) and form.scalar.exact):
            return False
        empty = (element.text or "").strip().lower() in ("", "none", "null")
        if empty and isinstance(form, Plain):
            self._notes.add(f"an empty element was read as nothing: {element.tag}")
        return empty and isinstance(form, Plain)

    def _renamed(self, element: Any, name: str) -> None:
        if element.tag != name:
            self._notes.add(f"an element was renamed: {element.tag} to {name}")


def _has_stray_text(element: Any) -> bool:
    texts = [element.text, *(child.tail for child in element)]
    return any(text is not None and text.strip() for text in texts)


def _collect(form: Form, found: set[str], seen: set[str]) -> None:
    if isinstance(form, Listing):
        found.add("item")
        _collect(form.item, found, seen)
    elif isinstance(form, Row):
        for number, item in enumerate(form.items, 1):
            found.add(f"item{number}")
            _collect(item, found, seen)
    elif isinstance(form, Mapping):
        found |= {"entry", "key", "value"}
        _collect(form.value, found, seen)
    elif isinstance(form, Choice):
        for record in form.records:
            found.add(folded(record.element))
            if record.type_name in seen:
                continue
            seen.add(record.type_name)
            for field in record.fields.values():
                found.add(folded(field.element))
                if isinstance(field.form, Listing):
                    # <Tags><Tag>: the word for one of many is used for an item.
                    found.add(folded(field.element).removesuffix("s"))
                _collect(field.form, found, seen)
