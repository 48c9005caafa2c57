"""Pagefile over HTTP, for programs that block and for programs that await.

from pagefile.client import Client

with Client("http://127.0.0.1:8000", api_key="pf_…", user_id="ann") as client:
    client.episodes.remember("s1", input="I live in Lisbon.")
    client.memory.search("Where do I live?")
"""

from pagefile.client.client import AsyncClient, Client
from pagefile.client.page import Page

__all__ = ["AsyncClient", "Client", "Page"]
