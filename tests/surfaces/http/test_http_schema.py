"""The server against its own OpenAPI document: no 5xx, nothing that the document does not say."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.servers.http import HttpServer

EXAMPLES = 3


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpServer]:
    folder = tmp_path_factory.mktemp("http")
    options = {"local": True, "durability": "process", "rate_per_second": 0}
    with HttpServer(f"{folder}/schema.db", options) as server:
        yield server


@pytest.fixture(scope="module")
def operations(server: HttpServer) -> list[Any]:
    schema = schemathesis.openapi.from_url(f"{server.base}/openapi.json")
    return [found.ok() for found in schema.get_all_operations() if isinstance(found, Ok)]


@pytest.mark.xdist_group("http-schema")
@pytest.mark.parametrize("share", range(4))
def test_no_operation_fails_or_answers_what_the_document_does_not_say(
    server: HttpServer, operations: list[Any], share: int
) -> None:
    checks = (
        not_a_server_error,
        status_code_conformance,
        content_type_conformance,
        response_headers_conformance,
        response_schema_conformance,
    )
    asked = sum(
        _asked(server, each, GenerationMode.POSITIVE, checks) for each in operations[share::4]
    )

    assert asked > 60


@pytest.mark.xdist_group("http-schema")
@pytest.mark.parametrize("share", range(2))
def test_no_operation_fails_at_what_the_document_does_not_allow(
    server: HttpServer, operations: list[Any], share: int
) -> None:
    checks = (not_a_server_error, status_code_conformance)
    can_be_wrong = [
        each
        for each in operations
        if each.body or each.query or each.path_parameters or each.headers
    ]
    asked = sum(
        _asked(server, each, GenerationMode.NEGATIVE, checks) for each in can_be_wrong[share::2]
    )

    assert asked > 100


def _asked(
    server: HttpServer, operation: Any, mode: GenerationMode, checks: tuple[Any, ...]
) -> int:
    """Ask some of what an operation takes, or does not take; how often it was asked."""
    asked = 0
    if "follow" in operation.path:
        return asked  # It has no end; other tests follow.

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def ask(case: Any) -> None:
        nonlocal asked
        asked += 1
        response = case.call(base_url=server.base, timeout=30)
        if response.status_code == 431:
            return  # The server program's own word for a line that is too long.
        case.validate_response(response, checks=checks)

    ask()
    return asked
