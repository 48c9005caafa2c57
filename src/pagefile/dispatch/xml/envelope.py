"""The envelope of a message: who says it, to whom, in which thread."""

from __future__ import annotations

from typing import Any

import msgspec

from pagefile.dispatch.xml.limits import lxml_etree
from pagefile.dispatch.xml.reader import text_of

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
