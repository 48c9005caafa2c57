"""Payload classes as XML: written, read strictly, and read with repairs."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Any

import msgspec

from pagefile.dispatch.xml.forms import Forms, RecordForm
from pagefile.dispatch.xml.parser import (
    decoded,
    parsed,
    payload_of,
    recovered,
    refuse_dtd,
    text_of,
    text_within,
)
from pagefile.dispatch.xml.repair import (
    Notes,
    folded,
    mended_text,
    mended_tree,
    names_in,
    without_controls,
)
from pagefile.dispatch.xml.writer import (
    Writer,
    XmlLimits,
    lxml_etree,
    require_xml_limits,
    schema_of,
)
from pagefile.errors import Invalid, NotFound, shown

# The envelope of a message: who says it, to whom, in which thread.


NAMESPACE = "urn:pagefile:envelope:1"
#: The elements of the envelope's `meta`, and the attribute of each.
PARTS = {"from": "from_id", "to": "to_id", "thread": "thread_id"}
_XSD = f"""\
<xs:schema xmlns:xs="http://www.w3.org/2001/XMLSchema" targetNamespace="{NAMESPACE}"
           elementFormDefault="qualified">
  <xs:simpleType name="name">
    <xs:restriction base="xs:string">
      <xs:minLength value="1"/>
      <xs:maxLength value="1000"/>
    </xs:restriction>
  </xs:simpleType>
  <xs:element name="message">
    <xs:complexType>
      <xs:sequence>
        <xs:element name="meta">
          <xs:complexType>
            <xs:all xmlns:m="{NAMESPACE}">
              <xs:element name="from" type="m:name"/>
              <xs:element name="to" type="m:name" minOccurs="0"/>
              <xs:element name="thread" type="m:name" minOccurs="0"/>
            </xs:all>
          </xs:complexType>
        </xs:element>
        <xs:any namespace="##local" processContents="skip"/>
      </xs:sequence>
    </xs:complexType>
  </xs:element>
</xs:schema>
"""


class Envelope(msgspec.Struct, frozen=True):
    """A message in its envelope. `from_id` is what the document claims, and proves nothing."""

    payload: Any
    from_id: str
    to_id: str | None = None
    thread_id: str | None = None


def envelope_schema() -> str:
    """The XSD of the envelope; its payload has a schema of its own."""
    return _XSD


def envelope_validator() -> Any:
    """What tells whether an envelope is one."""
    etree = lxml_etree()
    return etree.XMLSchema(etree.fromstring(_XSD.encode()))


def tag(name: str) -> str:
    """The qualified name of an element of the envelope."""
    return f"{{{NAMESPACE}}}{name}"


def wrapped(payload: Any, parts: dict[str, str | None]) -> Any:
    """An envelope around the element of a payload; `parts` are those of `meta` by name."""
    etree = lxml_etree()
    root = etree.Element(tag("message"), nsmap={"m": NAMESPACE})
    meta = etree.SubElement(root, tag("meta"))
    for name, text in parts.items():
        if text is not None:
            etree.SubElement(meta, tag(name)).text = text
    root.append(payload)
    return root


def parts_of(root: Any) -> dict[str, str]:
    """What a checked envelope says, by the names of `Envelope`."""
    return {PARTS[_local(child)]: text_of(child) for child in root[0]}


def _local(element: Any) -> str:
    name: str = element.tag.rpartition("}")[2]
    return name


_MOST_TOLD = 5
_META = ("message", "meta", *PARTS)


class Repaired(msgspec.Struct, frozen=True):
    """What was read out of a broken document. `repairs` says what was done to it."""

    value: Any
    repairs: tuple[str, ...] = ()


class XmlFormat:
    """Reads and writes the payloads of some classes: dataclasses, Structs, pydantic models.

    The element of a payload is named like its class, that of a field like the
    field in PascalCase; fields stand in any order, and those with a default may
    be left out. Documents are UTF-8. Document types and entities are refused,
    and nothing is ever fetched.
    """

    def __init__(self, payloads: Iterable[type[Any]], *, limits: XmlLimits | None = None) -> None:
        self._etree = lxml_etree()
        self.limits = require_xml_limits(limits if limits is not None else XmlLimits())
        forms = Forms()
        self._by_class: dict[type[Any], RecordForm] = {}
        self._by_element: dict[str, RecordForm] = {}
        folds: dict[str, type[Any]] = {}
        for cls in payloads:
            record = forms.record(cls)
            if folds.setdefault(folded(record.element), cls) is not cls:
                raise Invalid(record.element, "is the element of two payloads", "rename one")
            self._by_class[cls] = self._by_element[record.element] = record
        if not self._by_class:
            raise Invalid("payloads", "there is none", "name at least one class")
        self._folds = {folded(name): record for name, record in self._by_element.items()}
        self._known = set[str]().union(*(names_in(each) for each in self._by_class.values()))
        self._schema = schema_of(self._by_class.values())
        self._validator = self._etree.XMLSchema(self._schema)
        self._envelopes = envelope_validator()
        # A validator keeps its complaints in itself.
        self._lock = threading.Lock()

    # Schemas

    def xsd(self, payload: type[Any] | None = None) -> str:
        """The schema of one payload class, or of all of them in one document."""
        tree = self._schema if payload is None else schema_of([self._record(payload)])
        return self._shown(tree)

    def envelope_xsd(self) -> str:
        """The schema of the envelope; the payload in it has its own."""
        return envelope_schema()

    # Writing

    def dump(self, payload: Any) -> str:
        """A payload as a document.

        Raises:
            Invalid: XML cannot hold something in it, such as a control character.
            LimitExceeded: it is too large or too deep.
            NotFound: its class is none of these.
        """
        return self._text(self._element(payload))

    def wrap(
        self,
        payload: Any,
        *,
        from_id: str,
        to_id: str | None = None,
        thread_id: str | None = None,
    ) -> str:
        """A payload in an envelope. Raises what `dump` does."""
        parts = {"from": from_id, "to": to_id, "thread": thread_id}
        try:
            root = wrapped(self._element(payload), parts)
        except (ValueError, TypeError) as error:
            if isinstance(error, Invalid):
                raise
            raise Invalid("envelope", f"{shown(parts)} ({error})", "XML cannot hold it") from error
        self._require(self._envelopes, root)
        return self._text(root)

    # Reading

    def parse(self, document: str | bytes) -> Any:
        """The payload in a document that is exactly as its schema wants it.

        Raises:
            Invalid: it is no XML, breaks the schema, or has a document type.
            LimitExceeded: it passes one of the limits.
            NotFound: its element belongs to none of the classes.
        """
        return self._payload(parsed(decoded(text_within(document, self.limits)), self.limits))

    def unwrap(self, document: str | bytes) -> Envelope:
        """The envelope and the payload in it, strictly. Raises what `parse` does."""
        root = parsed(decoded(text_within(document, self.limits)), self.limits)
        return self._opened(root)

    def repair(self, document: str | bytes) -> Repaired:
        """The payload in what a model wrote, and what was repaired.

        Mended are: text around the document, bare ampersands and less-than
        signs, missing and stray end tags, the case of names, attributes in place
        of elements, lists without their wrapping, spellings of declared values.
        Nothing is invented: what is missing is missing, and is refused.

        Raises:
            Invalid: it cannot be read even so, or has a document type.
            LimitExceeded: it passes one of the limits.
        """
        notes = Notes()
        root = self._lenient(document, set(), notes)
        record = self._meant(root)
        return Repaired(self._payload(mended_tree(record, root, notes)), notes.all())

    def repair_wrapped(self, document: str | bytes) -> Repaired:
        """The `Envelope` in what a model wrote, repaired likewise."""
        notes = Notes()
        root = self._lenient(document, set(_META), notes)
        parts: dict[str, str | None] = {}
        meta = next((child for child in root if folded(child.tag) == "meta"), None)
        for child in () if meta is None else meta.iter():
            # Its own text: whoever forgot an end tag has the next part inside.
            if folded(child.tag) in PARTS and (child.text or "").strip():
                parts.setdefault(folded(child.tag), child.text.strip())
        payload = next((child for child in root.iter() if folded(child.tag) in self._folds), None)
        if payload is None:
            raise Invalid("document", "holds no known payload", "put the payload into the envelope")
        made = mended_tree(self._meant(payload), payload, notes)
        # A meta that is no more than its names: their order and namespace say nothing.
        whole = wrapped(made, {name: parts.get(name) for name in PARTS})
        return Repaired(self._opened(whole), notes.all())

    # Inside

    def _lenient(self, document: str | bytes, meta: set[str], notes: Notes) -> Any:
        raw = text_within(document, self.limits)
        try:
            text = decoded(raw)
        except Invalid:
            notes.add("bytes that are not UTF-8 were replaced")
            text = raw.decode("utf-8", "replace")
        # Before anything is looked for, so that nothing can hide behind them.
        text = without_controls(text, notes)
        refuse_dtd(text)
        roots = {"message"} if meta else set(self._folds)
        clean = mended_text(text, roots, self._known | meta, self.limits.most_depth, notes)
        root, complaints = recovered(clean, self.limits)
        for complaint in complaints:
            notes.add(f"the parser passed over: {complaint}")
        return root

    def _meant(self, root: Any) -> RecordForm:
        return self._folds[folded(root.tag)]

    def _opened(self, root: Any) -> Envelope:
        self._require(self._envelopes, root)
        payload = self._payload(root[1])
        return Envelope(payload, **parts_of(root))

    def _payload(self, element: Any) -> Any:
        record = self._by_element.get(element.tag)
        if record is None:
            raise NotFound(f"no payload is named {shown(element.tag)}", "check the element's name")
        # In a tree of its own: a validator looks at whole documents.
        alone = self._etree.fromstring(self._etree.tostring(element, with_tail=False))
        self._require(self._validator, alone)
        return payload_of(record, alone)

    def _require(self, validator: Any, root: Any) -> None:
        with self._lock:
            if validator.validate(root):
                return
            told = [f"line {entry.line}: {entry.message}" for entry in validator.error_log]
        raise Invalid("document", "; ".join(told[:_MOST_TOLD]), "follow its schema")

    def _element(self, payload: Any) -> Any:
        record = self._record(type(payload))
        root = Writer(self.limits).payload(record, payload)
        self._require(self._validator, root)
        return root

    def _record(self, cls: type[Any]) -> RecordForm:
        record = self._by_class.get(cls)
        if record is None:
            raise NotFound(f"{shown(cls)} is none of the payloads", "give it to XmlFormat")
        return record

    def _text(self, root: Any) -> str:
        text: str = self._etree.tostring(root, encoding="unicode")
        text_within(text, self.limits)
        return text

    def _shown(self, tree: Any) -> str:
        shown_tree: str = self._etree.tostring(tree, encoding="unicode", pretty_print=True)
        return shown_tree
