"""The routes, one module for each noun."""

from fastapi import APIRouter

from pagefile.surfaces.http import pages
from pagefile.surfaces.http.routes import (
    batches,
    context,
    items,
    ledgers,
    legacy_runs,
    operations,
    packs,
    privacy,
    registry,
    runs,
    store,
    threads,
)

ROUTERS: tuple[APIRouter, ...] = (
    pages.router,
    operations.router,
    threads.router,
    registry.router,
    runs.router,
    ledgers.router,
    batches.router,
    items.router,
    packs.router,
    context.router,
    privacy.router,
    store.router,
    legacy_runs.router,
)
