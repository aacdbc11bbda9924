"""The server against its own OpenAPI document, by Schemathesis: no 500, and every answer is as it says."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from gateway.http.app import make_app
from ledger.embedded import Embedded
from ledger.tokens import Role
from tests.gateway.http.conftest import Running, fill, running

SCHEMA = schemathesis.openapi.from_dict(make_app().openapi())
OPERATIONS = [found.ok() for found in SCHEMA.get_all_operations()]
ENDLESS = "/log/stream"
CHECKS = [
    not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance,
]  # fmt: skip


@pytest.fixture(scope="module")
def server(postgres: Embedded, template: str) -> Iterator[Running]:
    """One server for all operations, with something of everything."""
    with psycopg.connect(postgres.dsn(), autocommit=True) as admin:
        admin.execute(f"CREATE DATABASE of_schema TEMPLATE {template}")  # type: ignore[call-overload]
    with running(postgres.dsn("of_schema")) as one:
        fill(one.log)
        yield one
    with psycopg.connect(postgres.admin_dsn(), autocommit=True) as admin:
        admin.execute("DROP DATABASE of_schema WITH (FORCE)")


def run(operation: Any, server: Running, examples: int) -> None:
    headers = {"Authorization": f"Bearer {server.tokens[Role.ADMIN]}"}

    @settings(
        max_examples=examples, deadline=None, database=None, suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(case=operation.as_strategy())
    def answers(case: Any) -> None:
        answer = case.call(base_url=server.url, headers=headers)
        case.validate_response(answer, checks=CHECKS)

    answers()


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda one: f"{one.method.upper()} {one.path}")
def test_every_operation_answers_as_the_document_says(operation: Any, server: Running) -> None:
    if operation.path == ENDLESS:
        pytest.skip("it does not end; test_events.py reads it")
    run(operation, server, 3)


@pytest.mark.slow
@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda one: f"{one.method.upper()} {one.path}")
def test_many_requests_of_every_operation(operation: Any, server: Running, minutes: float) -> None:
    if operation.path != ENDLESS:
        run(operation, server, int(200 * minutes))
