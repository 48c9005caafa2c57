"""The server against its own OpenAPI document: no 5xx, nothing that the document does not say."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from pagefile.testing.http_server import HttpServer

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
    from schemathesis.checks import not_a_server_error

    asked = 0
    for operation in operations[share::4]:
        if "follow" in operation.path:
            continue  # It has no end; other tests follow.

        @settings(
            max_examples=EXAMPLES,
            deadline=None,
            database=None,
            derandomize=True,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @_given(operation)  # type: ignore[untyped-decorator]
        def ask(case: Any) -> None:
            nonlocal asked
            asked += 1
            response = case.call(base_url=server.base, timeout=30)
            case.validate_response(
                response,
                checks=(
                    not_a_server_error,
                    status_code_conformance,
                    content_type_conformance,
                    response_headers_conformance,
                    response_schema_conformance,
                ),
            )

        ask()

    assert asked > 60


def _given(operation: Any) -> Any:
    from hypothesis import given

    return given(case=operation.as_strategy())
