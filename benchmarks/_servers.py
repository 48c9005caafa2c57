"""The servers that the tests start too; `tests` is not on the path of a script in this folder."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.servers.http import HttpServer
from tests.servers.manager import ManagerProcess
from tests.servers.ports import free_port
from tests.servers.postgres import OWNER, PostgresServer
from tests.servers.qdrant import QdrantServer
from tests.servers.qdrant import find_binary as find_qdrant
from tests.servers.redis import RedisServer, find_redis
from tests.servers.redis import find_binary as find_valkey

__all__ = [
    "OWNER",
    "HttpServer",
    "ManagerProcess",
    "PostgresServer",
    "QdrantServer",
    "RedisServer",
    "find_qdrant",
    "find_redis",
    "find_valkey",
    "free_port",
]
