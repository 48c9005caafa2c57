"""A tree that was read leniently, made anew as the class wants it."""

from __future__ import annotations

import html.entities
import re
from typing import Any

from pagefile.dispatch.xml.forms import Choice, Form, Listing, Mapping, Plain, RecordForm, Row
from pagefile.dispatch.xml.writer import NIL, XSI, lxml_etree, too_deep
from pagefile.errors import Invalid

# What was repaired, told once for each kind.


_MOST_NOTES = 100


class Notes:
    """Collects what a repair did, in bounded memory."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}

    def add(self, what: str, count: int = 1) -> None:
        """Note that something was done; more of the same is counted."""
        if what in self._counts or len(self._counts) < _MOST_NOTES:
            self._counts[what[:200]] = self._counts.get(what[:200], 0) + count

    def all(self) -> tuple[str, ...]:
        """What was done, in the order of the first time."""
        return tuple(
            what if count == 1 else f"{what} ({count} times)"
            for what, count in self._counts.items()
        )


# Text that was meant to be XML, made into something that a parser reads: what models get wrong.
#
# Only tags whose names are known count as tags; everything else is text.


_TAG = re.compile(r"<(/?)([A-Za-z_][\w.\-]*(?::[A-Za-z_][\w.\-]*)?)((?:\s[^<>]*)?)(/?)>")
_ATTRIBUTE = re.compile(
    r"""(?<![\w.:\-])([A-Za-z_][\w.\-]*(?::[\w.\-]+)?)\s*=\s*("[^"<]*"|'[^'<]*'|[^\s"'<>]+)"""
)
_VERBATIM = re.compile(
    r"<!\[CDATA\[(.*?)(?:\]\]>|\Z)|<!--.*?(?:-->|\Z)|<\?.*?(?:\?>|\Z)", re.DOTALL
)
_REFERENCE = re.compile(r"&(#[0-9]{1,7}|#[xX][0-9A-Fa-f]{1,6}|[A-Za-z][A-Za-z0-9]{1,31})(;?)")
_FIVE = frozenset({"amp", "lt", "gt", "quot", "apos"})
_BARE = re.compile(r"&(?!(?:amp|lt|gt|quot|apos|#[0-9]{1,7}|#x[0-9A-Fa-f]{1,6});)")
_NO_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def folded(name: str) -> str:
    """A name as it is compared: without prefix, case, lines and dashes."""
    return name.rpartition(":")[2].replace("_", "").replace("-", "").lower()


def mended_text(text: str, roots: set[str], known: set[str], most_depth: int, notes: Notes) -> str:
    """A document that a lenient parser can read; `roots` and `known` are folded names.

    Raises:
        Invalid: there is no known root element in it. LimitExceeded: it is too deep.
    """
    return "".join(_MarkupRepair(known, most_depth, notes).pieces(_cut(text, roots, notes)))


def without_controls(text: str, notes: Notes) -> str:
    """The text without the characters that XML does not have."""
    clean = _NO_XML.sub("", text)
    if clean != text:
        notes.add("characters that XML does not have were left out")
    return clean


def _cut(text: str, roots: set[str], notes: Notes) -> str:
    """From the first root element to its end, or to the end of the text."""
    first = next((m for m in _TAG.finditer(text) if not m[1] and folded(m[2]) in roots), None)
    if first is None:
        raise Invalid("document", "holds no known element", "begin with the payload's element")
    end = len(text)
    if not first[4]:
        wanted = folded(first[2])
        for match in _TAG.finditer(text, first.end()):
            if match[1] and folded(match[2]) == wanted:
                end = match.end()
    else:
        end = first.end()
    if text[: first.start()].strip() or text[end:].strip():
        notes.add("text around the document was left out")
    return text[first.start() : end]


class _MarkupRepair:
    def __init__(self, known: set[str], most_depth: int, notes: Notes) -> None:
        self._known = known
        self._most_depth = most_depth
        self._notes = notes
        self._open: list[str] = []

    def pieces(self, text: str) -> list[str]:
        made: list[str] = []
        at = 0
        for match in _VERBATIM.finditer(text):
            made += self._marked(text[at : match.start()])
            # A comment goes, and a CDATA section becomes the text that it is.
            made.append(_escaped(match[1] or ""))
            at = match.end()
        made += self._marked(text[at:])
        if self._open:
            self._notes.add(f"missing end tags were added: {', '.join(self._open[::-1])}")
            made += [f"</{name}>" for name in reversed(self._open)]
        return made

    def _marked(self, text: str) -> list[str]:
        made: list[str] = []
        at = 0
        for match in _TAG.finditer(text):
            if folded(match[2]) not in self._known:
                continue
            made.append(self._text(text[at : match.start()]))
            made.append(self._tag(match))
            at = match.end()
        made.append(self._text(text[at:]))
        return made

    def _tag(self, match: re.Match[str]) -> str:
        closes, name, inside, empty = match.groups()
        # The prefix says nothing that is not known; undeclared, it would be an error.
        name = name.rpartition(":")[2]
        if not closes:
            if inside.rstrip().endswith("/"):
                inside, empty = inside.rstrip()[:-1], "/"
            if not empty:
                self._open.append(name)
                if len(self._open) > self._most_depth:
                    raise too_deep(len(self._open), self._most_depth)
            return f"<{name}{self._attributes(inside)}{empty}>"
        wanted = folded(name)
        if all(folded(one) != wanted for one in self._open):
            self._notes.add(f"an end tag without beginning was left out: {name}")
            return ""
        ends: list[str] = []
        while True:
            last = self._open.pop()
            ends.append(f"</{last}>")
            if folded(last) == wanted:
                break
            self._notes.add(f"a missing end tag was added: {last}")
        return "".join(ends)

    def _attributes(self, inside: str) -> str:
        made: list[str] = []
        seen: set[str] = set()
        for match in _ATTRIBUTE.finditer(inside):
            name, value = match[1], match[2]
            if name == "xmlns" or name.startswith("xmlns:"):
                continue
            name = name.rpartition(":")[2]
            if name in seen:
                continue
            seen.add(name)
            if value[:1] in "\"'":
                value = value[1:-1]
            else:
                self._notes.add(f"an attribute without quotes was quoted: {name}")
            made.append(f' {name}="{self._text(value).replace(chr(34), "&quot;")}"')
        return "".join(made)

    def _text(self, text: str) -> str:
        text = _REFERENCE.sub(self._reference, text)
        text, count = _BARE.subn("&amp;", text)
        if count:
            self._notes.add("an ampersand was escaped", count)
        if "<" in text:
            self._notes.add("a less-than sign was escaped", text.count("<"))
            text = text.replace("<", "&lt;")
        return text.replace("]]>", "]]&gt;")

    def _reference(self, match: re.Match[str]) -> str:
        name, end = match.groups()
        if name.startswith("#"):
            try:
                number = int(name[2:], 16) if name[1] in "xX" else int(name[1:])
                character = chr(number)
            except (ValueError, OverflowError):
                character = ""
            if end and character and not _NO_XML.match(character):
                return f"&#{number};"
            return _escaped(match[0])
        if end and name in _FIVE:
            return match[0]
        meant = html.entities.html5.get(f"{name};") if end else None
        if meant is None:
            return match[0]
        self._notes.add(f"an entity of HTML was replaced: {name}")
        return _escaped(meant)


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


_TRUTHS = {"yes": "true", "no": "false", "on": "true", "off": "false"}


def names_in(record: RecordForm) -> set[str]:
    """The folded names of all elements that a payload may have."""
    found: set[str] = set()
    _collect(Choice([record]), found, set())
    return found | {folded(record.element)}


def mended_tree(record: RecordForm, element: Any, notes: Notes) -> Any:
    """The element of a payload, as like the class as it can be made without inventing anything."""
    return _TreeRepair(notes).payload(record, element)


class _TreeRepair:
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
