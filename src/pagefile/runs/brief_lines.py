"""The lines of a context brief: what is shown to a model, hence what is counted.

Each piece ends its line and starts with a character that no tokenizer joins to
the line before, so the counts of the pieces add up to that of the brief, or to
a little more. Text of the working set is contained: whatever it holds, it
cannot start a heading, open or close a fence, or look like another item.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

TITLE: Final = "# CONTEXT BRIEF\n"
HEADINGS: Final = (
    "\n## 1. OBJECTIVE\n",
    "\n## 2. ACCEPTANCE CRITERIA\n",
    "\n## 3. CONSTRAINTS & BUDGETS\n",
    "\n## 4. PINNED CONTEXT\n",
    "\n## 5. RECENT / SLIDING CONTEXT\n",
    "\n## 6. RETRIEVED LONG-TERM MEMORY\n",
    "\n## 7. STATUS\n",
)
NONE: Final = "- (none)\n"
UNSET: Final = "(unset)"
LEFT_OUT: Final = "- ({} left out: no room)\n"
#: The places of the sections that `fixed_sections` leaves empty.
SLIDING: Final = 4
MEMORY: Final = 5

# What Markdown takes for structure when a line starts with it.
_STRUCTURE: Final = frozenset("#`~><|=+*-_\\")
_CONTROLS: Final = {
    code: "\N{REPLACEMENT CHARACTER}"
    for code in (*range(0x20), *range(0x7F, 0xA0))
    if chr(code) != "\t"
}


def contained(text: str, indent: str = "  ") -> str:
    """The text so that it stays within its item: further lines start with a bar."""
    if text.isprintable() and text[:1] not in _STRUCTURE and text[:1] != " ":
        return text
    first, *rest = [line.translate(_CONTROLS) for line in text.splitlines() or [""]]
    first = first.lstrip()
    if first[:1] in _STRUCTURE:
        first = f"\\{first}"
    return "".join([first, *(f"\n{indent}| {line}" for line in rest)])


def inline(text: str) -> str:
    """The text on one line, for ids and other marks."""
    return text if text.isprintable() else " ".join(text.split()).translate(_CONTROLS)


def sliding_line(item: Mapping[str, Any]) -> str:
    """An item of the sliding context as the brief shows it."""
    mark = f"(pri={int(item['priority'])} ts={inline(item['timestamp'])})"
    return f"- {contained(item['content'])} {mark}\n"


def memory_line(item: Mapping[str, Any]) -> str:
    """A retrieved memory as the brief shows it."""
    mark = f"(memory_id={inline(item['memory_id'])} conf={item['confidence']:.2f})"
    return f"- {contained(item['content'])} {mark}\n"


def fixed_sections(ws: Mapping[str, Any]) -> list[list[str]]:
    """The pieces of each section but SLIDING and MEMORY, whose items may be left out."""
    return [
        [f"{contained(ws['objective'].strip()) or UNSET}\n"],
        _bullets(ws["acceptance_criteria"]),
        _bullets(ws["constraints"]),
        [_pinned_line(item) for item in ws["pinned_context"]] or [NONE],
        [],
        [],
        _status_lines(ws),
    ]


def _bullets(texts: Sequence[str]) -> list[str]:
    return [f"- {contained(text)}\n" for text in texts] or [NONE]


def _pinned_line(item: Mapping[str, Any]) -> str:
    source = item.get("source_ref")
    mark = f"(id={inline(item['id'])})" + (f" source={inline(source)}" if source else "")
    return f"- {contained(item['content'])} {mark}\n"


def _status_lines(ws: Mapping[str, Any]) -> list[str]:
    pieces = [
        f"- {label}: {contained(ws[field]) or UNSET}\n"
        for label, field in (
            ("status", "status"),
            ("stage", "current_stage"),
            ("next_action", "next_action"),
            ("last_action_summary", "last_action_summary"),
        )
    ]
    blockers = [f"  - {contained(text, '    ')}\n" for text in ws["blockers"]]
    refs = [_artifact_line(ref) for ref in ws["artifact_refs"]]
    for label, lines in (("blockers", blockers), ("artifact_refs", refs)):
        pieces += [f"- {label}:\n", *lines] if lines else [f"- {label}: (none)\n"]
    return pieces


def _artifact_line(ref: Mapping[str, Any]) -> str:
    extras = "".join(f" {name}={inline(ref[name])}" for name in ("path", "sha256") if ref.get(name))
    return f"  - {inline(ref['type'])} (id={inline(ref['id'])}){extras}\n"
