"""Which extractor reads episodes: rules, a model behind an API, or one's own."""

from __future__ import annotations

from pagefile.errors import Invalid, shown
from pagefile.memory.extraction.candidate import Extractor
from pagefile.settings import Settings

_WORDS = "use 'rules', 'openai', or an object with name, version and extract(episode, cancel=…)"


def require_extractor(wanted: Extractor | str) -> Extractor | str:
    """Refuse what cannot read anything, before it is asked to."""
    known = wanted in ("rules", "openai") if isinstance(wanted, str) else True
    if not known or (not isinstance(wanted, str) and not isinstance(wanted, Extractor)):
        raise Invalid("extractor", f"{shown(wanted)} reads nothing", _WORDS)
    if wanted == "openai":
        _require_settings(Settings.from_environment())
    return wanted


def chosen_extractor(word: str) -> Extractor:
    """The extractor behind a word; what it needs is loaded now, and not before."""
    if word == "rules":
        from pagefile.memory.extraction.rules import RuleExtractor

        return RuleExtractor()
    from pagefile.memory.extraction.chat import ChatClient
    from pagefile.memory.extraction.model import ChatExtractor

    settings = Settings.from_environment()
    _require_settings(settings)
    client = ChatClient(settings.llm_base_url, settings.llm_model, api_key=settings.llm_api_key)
    return ChatExtractor(client)


def _require_settings(settings: Settings) -> None:
    if not settings.llm_model:
        raise Invalid("extractor", "'openai' needs a model", "set PAGEFILE_LLM_MODEL")
    if not settings.llm_api_key and settings.is_vendors(settings.llm_base_url):
        raise Invalid("extractor", "'openai' needs a key", "set OPENAI_API_KEY, or a base URL")
