"""What the environment says of a server, as fields of its configuration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_origin

import msgspec

from pagefile.errors import Invalid, shown
from pagefile.settings import Settings
from pagefile.store.codec.decoder import convert, json_decoder
from pagefile.surfaces.access.tokens import TokenSettings
from pagefile.surfaces.http.config import ServerConfig

_FLAGS = {"true": True, "on": True, "1": True, "false": False, "off": False, "0": False}


def set_by(settings: Settings) -> dict[str, Any]:
    """Fields of `ServerConfig` that variables set, and `tokens` where one of theirs does.

    Raises:
        Invalid: names the variable, and what it may be.
    """
    given = _fields(ServerConfig, settings.server, settings.origins, "server")
    tokens = _fields(TokenSettings, settings.jwt, settings.origins, "jwt")
    if tokens:
        given["tokens"] = _tokens(tokens)
    return given


def _tokens(given: dict[str, Any]) -> TokenSettings:
    for name in ("jwks", "issuer", "audience"):
        if name not in given:
            variable = f"PAGEFILE_JWT_{name.upper()}"
            raise Invalid(variable, "is not set, and others of tokens are", "set it too")
    try:
        return convert(given, TokenSettings)
    except msgspec.ValidationError as error:
        raise Invalid("PAGEFILE_JWT_…", str(error), "see docs/reference/http.md") from error


def _fields(
    shape: type, texts: Mapping[str, str], origins: Mapping[str, str], part: str
) -> dict[str, Any]:
    kinds = {field.name: field.type for field in msgspec.structs.fields(shape)}
    return {
        name: _value(origins[f"{part}.{name}"], text, kinds[name])
        for name, text in texts.items()
        if text
    }


def _value(variable: str, text: str, kind: Any) -> Any:
    if kind is bool:
        if text.lower() not in _FLAGS:
            raise Invalid(variable, f"{shown(text)} is no switch", "set it to on or off")
        return _FLAGS[text.lower()]
    if kind in (int, float):
        try:
            return json_decoder(kind).decode(text)
        except (msgspec.MsgspecError, UnicodeEncodeError):
            raise Invalid(variable, f"{shown(text)} is no number", "set it to one") from None
    return text.replace(",", " ").split() if get_origin(kind) is tuple else text
