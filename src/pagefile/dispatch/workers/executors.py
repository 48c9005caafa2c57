"""Executors beyond this machine's own processes, by their address."""

from __future__ import annotations

from concurrent.futures import Executor
from importlib import import_module
from typing import Any
from urllib.parse import urlsplit

from pagefile.errors import Invalid, Unsupported, shown

#: Which module makes the executor of an address; it has `executor_at(address) -> Executor`.
_SCHEMES = {"dask": "pagefile.dispatch.workers.dask_executor"}


def executor_at(address: str) -> Executor:
    """The executor behind an address such as `dask://host:port`.

    Raises:
        Invalid: nobody knows such addresses. Unsupported: its library is missing.
    """
    scheme = urlsplit(address).scheme
    module = _SCHEMES.get(scheme)
    if module is None:
        raise Invalid("executor", f"{shown(address)} is no address", "use dask://host:port")
    try:
        found: Any = import_module(module)
    except ModuleNotFoundError as error:
        raise Unsupported(
            f"executors at {scheme}:// need a library that is not installed",
            f"pip install 'pagefile[{scheme}]'",
        ) from error
    made: Executor = found.executor_at(address)
    return made
