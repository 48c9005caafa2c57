"""Text that was meant to be XML, made into something that a parser reads: what models get wrong.

Only tags whose names are known count as tags; everything else is text.
"""

from __future__ import annotations

import html.entities
import re

from pagefile.dispatch.xml.limits import too_deep
from pagefile.dispatch.xml.repair_notes import Notes
from pagefile.errors import Invalid

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
    return "".join(_Mender(known, most_depth, notes).pieces(_cut(text, roots, notes)))


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


class _Mender:
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
