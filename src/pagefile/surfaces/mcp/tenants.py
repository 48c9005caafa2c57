"""The handles of a server's tenants, opened when they are asked for."""

from __future__ import annotations

import threading
from collections import OrderedDict
from contextlib import suppress
from typing import TYPE_CHECKING

from pagefile.errors import Unavailable

if TYPE_CHECKING:
    from pagefile.handle import Admin, Pagefile

#: More tenants than this at once, and the one used longest ago is opened anew when it returns.
_MOST_OPEN = 256


class Places:
    """One store, and a handle for each tenant that was asked for."""

    def __init__(self, admin: Admin, *, most: int = _MOST_OPEN) -> None:
        self._admin = admin
        self._most = most
        self._lock = threading.Lock()
        self._open: OrderedDict[str, Pagefile] = OrderedDict()

    def of(self, tenant: str) -> Pagefile:
        """The handle of a tenant."""
        with self._lock:
            handle = self._open.get(tenant)
            if handle is None:
                handle = self._open[tenant] = self._admin.open(tenant)
            self._open.move_to_end(tenant)
            leaving = self._open.popitem(last=False)[1] if len(self._open) > self._most else None
        if leaving is not None:
            with suppress(Unavailable):
                leaving.close()
        return handle

    def close(self) -> None:
        """Close what was opened; the store itself belongs to whoever opened it."""
        with self._lock:
            handles = list(self._open.values())
            self._open.clear()
        for handle in handles:
            handle.close()
