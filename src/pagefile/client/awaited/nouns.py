"""Made by `python -m pagefile.testing.client_calls` from the server's routes."""

from __future__ import annotations

from pagefile.client.async_connection import AsyncLink
from pagefile.client.async_run import AsyncRuns
from pagefile.client.awaited.batches import AsyncBatches
from pagefile.client.awaited.blocks import AsyncBlocks
from pagefile.client.awaited.context import AsyncContext
from pagefile.client.awaited.episodes import AsyncEpisodes
from pagefile.client.awaited.facts import AsyncFacts
from pagefile.client.awaited.graph import AsyncGraph
from pagefile.client.awaited.items import AsyncItems
from pagefile.client.awaited.ledger import AsyncLedger
from pagefile.client.awaited.memory import AsyncMemory
from pagefile.client.awaited.packs import AsyncPacks
from pagefile.client.awaited.privacy import AsyncPrivacy
from pagefile.client.awaited.registry import AsyncRegistry
from pagefile.client.awaited.server import AsyncServer
from pagefile.client.awaited.store import AsyncStore
from pagefile.client.awaited.threads import AsyncThreads


class AsyncNouns:
    """What there is to ask about, one attribute for each."""

    def __init__(self, link: AsyncLink) -> None:
        self.batches = AsyncBatches(link)
        self.blocks = AsyncBlocks(link)
        self.context = AsyncContext(link)
        self.episodes = AsyncEpisodes(link)
        self.facts = AsyncFacts(link)
        self.graph = AsyncGraph(link)
        self.items = AsyncItems(link)
        self.ledger = AsyncLedger(link)
        self.memory = AsyncMemory(link)
        self.packs = AsyncPacks(link)
        self.privacy = AsyncPrivacy(link)
        self.registry = AsyncRegistry(link)
        self.runs = AsyncRuns(link)
        self.server = AsyncServer(link)
        self.store = AsyncStore(link)
        self.threads = AsyncThreads(link)
