"""The published JSON Schema files, made from the definitions.

    python -m pagefile.runs.schema.json_schema

writes them anew, next to this module; a test holds them to the definitions.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from pagefile.runs.schema.definitions import ARTIFACTS, SCHEMA_VERSION
from pagefile.runs.schema.shapes import (
    ENTRIES,
    Either,
    Fields,
    Flag,
    Free,
    Items,
    Maybe,
    Moment,
    Never,
    Number,
    Shape,
    Table,
    Text,
    When,
    Whole,
    Word,
)
from pagefile.runs.schema.timestamps import MOST_CHARACTERS, PATTERN

FOLDER: Final = "published"
_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
_BOUNDS: Final = {"object": "maxProperties", "array": "maxItems"}


def file_name(name: str) -> str:
    """Of the published file of an artifact."""
    return f"{name}.v{SCHEMA_VERSION}.schema.json"


def make_schema(name: str) -> dict[str, Any]:
    """The schema of one artifact."""
    definitions: dict[str, Any] = {}
    body = _object(ARTIFACTS[name], definitions)
    head = {
        "$schema": _DIALECT,
        "$id": f"urn:pagefile:schema:{name}:{SCHEMA_VERSION}",
        "title": f"{name} {SCHEMA_VERSION}",
    }
    return head | body | ({"$defs": definitions} if definitions else {})


def to_text(schema: dict[str, Any]) -> str:
    """A schema as it stands in its file."""
    return json.dumps(schema, indent=2) + "\n"


def _schema(shape: Shape, named: dict[str, Any]) -> Any:
    match shape:
        case Text():
            bounds = {"minLength": shape.least} if shape.least else {}
            pattern = {"pattern": shape.pattern} if shape.pattern else {}
            return {"type": "string", **bounds, "maxLength": shape.most, **pattern}
        case Moment():
            named["date_time"] = {
                "type": "string",
                "format": "date-time",
                "maxLength": MOST_CHARACTERS,
                "pattern": PATTERN,
            }
            return {"$ref": "#/$defs/date_time"}
        case Word(choices=(only,)):
            return {"type": "string", "const": only}
        case Word():
            return {"type": "string", "enum": list(shape.choices)}
        case Whole():
            return {"type": "integer", "minimum": shape.least, "maximum": shape.most}
        case Number():
            return {"type": "number", "minimum": shape.least, "maximum": shape.most}
        case Flag():
            return {"type": "boolean"}
        case Maybe():
            inner = _schema(shape.shape, named)
            return inner | {"type": [inner["type"], "null"]}
        case Either():
            return {"anyOf": [_schema(shape.text, named), _schema(shape.free, named)]}
        case Free():
            return {"type": shape.kind, _BOUNDS[shape.kind]: ENTRIES} if shape.kind else True
        case Never():
            return {"not": {}}  # Plain `false` makes some validators name the object instead.
        case Items():
            bounds = {"minItems": shape.least} if shape.least else {}
            each = _schema(shape.each, named)
            return {"type": "array", **bounds, "maxItems": shape.most, "items": each}
        case Table():
            return {
                "type": "object",
                "maxProperties": shape.most,
                "propertyNames": _schema(shape.names, named),
                "additionalProperties": _schema(shape.values, named),
            }
        case Fields(name=""):
            return _object(shape, named)
        case Fields():
            if shape.name not in named:
                named[shape.name] = _object(shape, named)
            return {"$ref": f"#/$defs/{shape.name}"}


def _object(shape: Fields, named: dict[str, Any]) -> dict[str, Any]:
    made: dict[str, Any] = {"type": "object", "additionalProperties": False}
    if shape.required:
        made["required"] = list(shape.required)
    made["properties"] = {name: _schema(each, named) for name, each in shape.shapes.items()}
    for name, default in shape.defaults.items():
        made["properties"][name]["default"] = default
    if shape.any_of:
        made["anyOf"] = [{"required": [name]} for name in shape.any_of]
    if shape.whens:
        made["allOf"] = [_condition(when, named) for when in shape.whens]
    return made


def _condition(when: When, named: dict[str, Any]) -> dict[str, Any]:
    then: dict[str, Any] = {}
    if when.required:
        then["required"] = list(when.required)
    if when.shapes:
        then["properties"] = {name: _schema(each, named) for name, each in when.shapes.items()}
    words = {"const": when.values[0]} if len(when.values) == 1 else {"enum": list(when.values)}
    return {"if": {"required": [when.field], "properties": {when.field: words}}, "then": then}


def main() -> None:
    """Write the files."""
    folder = Path(__file__).parent / FOLDER
    for name in ARTIFACTS:
        (folder / file_name(name)).write_text(to_text(make_schema(name)), encoding="utf-8")


if __name__ == "__main__":
    main()
