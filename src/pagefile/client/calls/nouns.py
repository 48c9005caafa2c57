"""Made by `python -m pagefile.testing.client_calls` from the server's routes."""

from __future__ import annotations

from pagefile.client.calls.batches import Batches
from pagefile.client.calls.blocks import Blocks
from pagefile.client.calls.context import Context
from pagefile.client.calls.episodes import Episodes
from pagefile.client.calls.facts import Facts
from pagefile.client.calls.graph import Graph
from pagefile.client.calls.items import Items
from pagefile.client.calls.ledger import Ledger
from pagefile.client.calls.memory import Memory
from pagefile.client.calls.packs import Packs
from pagefile.client.calls.privacy import Privacy
from pagefile.client.calls.registry import Registry
from pagefile.client.calls.server import Server
from pagefile.client.calls.store import Store
from pagefile.client.calls.threads import Threads
from pagefile.client.connection import Link
from pagefile.client.run import Runs


class Nouns:
    """What there is to ask about, one attribute for each."""

    def __init__(self, link: Link) -> None:
        self.batches = Batches(link)
        self.blocks = Blocks(link)
        self.context = Context(link)
        self.episodes = Episodes(link)
        self.facts = Facts(link)
        self.graph = Graph(link)
        self.items = Items(link)
        self.ledger = Ledger(link)
        self.memory = Memory(link)
        self.packs = Packs(link)
        self.privacy = Privacy(link)
        self.registry = Registry(link)
        self.runs = Runs(link)
        self.server = Server(link)
        self.store = Store(link)
        self.threads = Threads(link)
