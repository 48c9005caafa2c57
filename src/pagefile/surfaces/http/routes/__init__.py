"""The routes, one module for each noun."""

from fastapi import APIRouter

from pagefile.surfaces.http import pages
from pagefile.surfaces.http.routes import (
    batches,
    blocks,
    context,
    episodes,
    facts,
    graph,
    items,
    ledgers,
    legacy_runs,
    operations,
    packs,
    privacy,
    recall,
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
    blocks.router,
    episodes.router,
    facts.router,
    graph.router,
    recall.router,
    context.router,
    privacy.router,
    store.router,
    legacy_runs.router,
)
