"""Bytes to a tree, with a parser that expands nothing, fetches nothing and stops at bounds."""

from __future__ import annotations

import re
from typing import Annotated, Any

import msgspec

from pagefile.dispatch.xml.forms import Choice, Form, Listing, Mapping, Plain, RecordForm, Row
from pagefile.dispatch.xml.writer import NIL, XSI, XmlLimits, lxml_etree, too_deep, too_many
from pagefile.errors import Invalid, LimitExceeded, shown

#: What may stand before the first element; a document type is among it or nowhere.
_PROLOG = re.compile(r"\ufeff?(?:\s+|<\?.*?\?>|<!--.*?-->)*", re.DOTALL)
_DTD = re.compile(r"<!(?:DOCTYPE|ENTITY|ELEMENT|ATTLIST|NOTATION)", re.IGNORECASE)
_MOST_ATTRIBUTES = 100
#: A document does not say where its schema is.
_XSI = f"{{{XSI}}}"
_CDATA = re.compile(r"<!\[CDATA\[.*?(?:\]\]>|\Z)|<!--.*?(?:-->|\Z)", re.DOTALL)


def text_within(document: str | bytes, limits: XmlLimits) -> bytes:
    """A document's bytes, if there are not too many."""
    if isinstance(document, str):
        if len(document) > limits.most_bytes:
            raise _too_long(len(document), limits)
        document = document.encode("utf-8", "surrogatepass")
    if len(document) > limits.most_bytes:
        raise _too_long(len(document), limits)
    return bytes(document)


def decoded(raw: bytes) -> str:
    """A document's text; only one encoding is read, so that nothing hides in another."""
    try:
        return raw.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        raise Invalid("document", f"is not UTF-8 ({error})", "write it in UTF-8") from error


def parsed(text: str, limits: XmlLimits) -> Any:
    """The root element of a well-formed document.

    Raises:
        Invalid: it is not well-formed, or has a document type. LimitExceeded: it passes a bound.
    """
    prolog = _PROLOG.match(text)
    if prolog is not None and text[prolog.end() :].startswith("<!"):
        raise _has_dtd()
    etree = lxml_etree()
    parser = _parser(etree, recover=False)
    try:
        root = etree.fromstring(text.encode(), parser)
    except etree.XMLSyntaxError as error:
        told = str(error)
        if "depth" in told and "256" in told:
            raise too_deep(257, limits.most_depth) from error
        raise Invalid("document", f"is no XML ({told})", "mend it, or read it by repair") from error
    _require_plain(root, limits)
    return root


def recovered(text: str, limits: XmlLimits) -> tuple[Any, list[str]]:
    """The root element of whatever can be read, and what the parser complained of."""
    etree = lxml_etree()
    parser = _parser(etree, recover=True)
    root = etree.fromstring(text.encode(), parser)
    if root is None:
        raise Invalid("document", "holds nothing that can be read", "send the document")
    complaints = [entry.message for entry in parser.error_log]
    if any("depth" in one and "256" in one for one in complaints):
        raise too_deep(257, limits.most_depth)
    _require_plain(root, limits)
    return root, complaints


def refuse_dtd(text: str) -> None:
    """Refuse a document type anywhere: what is broken may have it in an odd place."""
    if _DTD.search(_CDATA.sub("", text)):
        raise _has_dtd()


def _has_dtd() -> Invalid:
    """What a document with a document type is refused with."""
    return Invalid(
        "document", "has a document type or entities of its own", "leave out <!DOCTYPE and <!ENTITY"
    )


def _parser(etree: Any, *, recover: bool) -> Any:
    return etree.XMLParser(
        encoding="utf-8",
        recover=recover,
        resolve_entities=False,
        load_dtd=False,
        dtd_validation=False,
        attribute_defaults=False,
        no_network=True,
        huge_tree=False,
        remove_comments=True,
        remove_pis=True,
    )


def _require_plain(root: Any, limits: XmlLimits) -> None:
    if root.getroottree().docinfo.internalDTD is not None:
        raise _has_dtd()
    count = 0
    etree = lxml_etree()
    depth = 0
    for event, element in etree.iterwalk(root, events=("start", "end")):
        if event == "end":
            depth -= 1
            continue
        depth += 1
        count += 1
        if depth > limits.most_depth:
            raise too_deep(depth, limits.most_depth)
        if count > limits.most_elements:
            raise too_many(count, limits.most_elements)
        # Counted first: lxml takes quadratic time to list them.
        if len(element.attrib) > _MOST_ATTRIBUTES:
            raise LimitExceeded(
                "the number of an element's attributes",
                limit=_MOST_ATTRIBUTES,
                wanted=len(element.attrib),
                next_step="use elements",
            )
        for name, value in element.attrib.items():
            if name.startswith(_XSI) and name != NIL:
                raise Invalid("document", f"{shown(name)} is not read", "leave it out")
            if len(value) > limits.most_attribute:
                raise LimitExceeded(
                    "the length of an attribute",
                    limit=limits.most_attribute,
                    wanted=len(value),
                    next_step="put the text into an element",
                )


def _too_long(size: int, limits: XmlLimits) -> LimitExceeded:
    return LimitExceeded(
        "a document's number of bytes", limit=limits.most_bytes, wanted=size, next_step="send less"
    )


# From elements to values, when the schema has let them pass.


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
