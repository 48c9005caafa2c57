"""The only reader of the environment."""

from __future__ import annotations

import os
from typing import Self

import msgspec

from pagefile.errors import Invalid

_OPENAI = "https://api.openai.com/v1"
#: How long the vectors of well-known models are.
_DIMENSIONS = {"text-embedding-3-large": 3_072}
_USUAL_DIMENSIONS = 1_536


class Settings(msgspec.Struct, frozen=True):
    """What the environment says, or the defaults."""

    url: str = "pagefile.db"
    tenant: str = "default"
    embedder: str = ""
    embedding_model: str = "text-embedding-3-small"
    embedding_dimensions: int = _USUAL_DIMENSIONS
    llm_model: str = ""
    llm_base_url: str = _OPENAI
    llm_api_key: str = ""
    openai_base_url: str = _OPENAI
    openai_api_key: str = ""

    def __repr__(self) -> str:
        """Without the key, which must not end up in a log."""
        return f"Settings(url={self.url!r}, tenant={self.tenant!r}, …)"

    @staticmethod
    def is_vendors(base_url: str) -> bool:
        """Whether it is the vendor's own address, which takes nobody without a key."""
        return base_url == _OPENAI

    @classmethod
    def from_environment(cls) -> Self:
        """Read the PAGEFILE_ variables, OPENAI_BASE_URL and OPENAI_API_KEY, now."""
        base_url = os.environ.get("OPENAI_BASE_URL", _OPENAI)
        api_key = os.environ.get("OPENAI_API_KEY", "")
        model = os.environ.get("PAGEFILE_EMBEDDING_MODEL", "text-embedding-3-small")
        return cls(
            url=os.environ.get("PAGEFILE_URL", "pagefile.db"),
            tenant=os.environ.get("PAGEFILE_TENANT", "default"),
            embedder=os.environ.get("PAGEFILE_EMBEDDER", ""),
            embedding_model=model,
            embedding_dimensions=_whole_number(
                "PAGEFILE_EMBEDDING_DIMENSIONS", _DIMENSIONS.get(model, _USUAL_DIMENSIONS)
            ),
            llm_model=os.environ.get("PAGEFILE_LLM_MODEL", ""),
            llm_base_url=os.environ.get("PAGEFILE_LLM_BASE_URL", base_url),
            llm_api_key=os.environ.get("PAGEFILE_LLM_API_KEY", api_key),
            openai_base_url=base_url,
            openai_api_key=api_key,
        )


def _whole_number(name: str, default: int) -> int:
    text = os.environ.get(name, "")
    if not text:
        return default
    if not text.isascii() or not text.isdecimal():
        raise Invalid(name, f"{text[:40]!r} is no whole number", "set it to one, or unset it")
    return int(text)
