"""All routes at once: who may call them, and that no request makes the server fail."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis.checks import not_a_server_error

from gateway.http.runs.document import PARAMETER, document, routes
from ledger.tokens import Role
from tests.gateway.http.conftest import Running

TABLE = [(method, path, endpoint.role) for method, path, endpoint in routes()]
OPEN = {"/health", "/hello", "/ready", "/version", "/admin/version", "/csrf-token"}
UUID = "0b6f1c1e-6a0e-4d0b-9a55-3f2f7a1c9e10"
SCHEMA = schemathesis.openapi.from_dict(document())
OPERATIONS = [found.ok() for found in SCHEMA.get_all_operations()]


def filled(path: str) -> str:
    return "/api" + PARAMETER.sub(lambda found: UUID if found[2] == "uuid" else "x", path)


def test_only_the_handshake_is_open_and_what_changes_needs_an_operator() -> None:
    assert {path for _, path, role in TABLE if role is None} == OPEN
    asking = (
        "/filter",
        "/count",
        "/paginate",
        "/lateness",
        "/history",
        "/concurrency_status",
        "count-by/{countable}",
    )
    for method, path, role in TABLE:
        if role is Role.READER:
            assert method == "GET" or path.endswith(asking), path


def test_no_route_hides_another() -> None:
    """The first route that fits is called, so that one with a name must stand before one with a parameter."""
    for number, (method, path, _) in enumerate(TABLE):
        example = PARAMETER.sub(lambda found: UUID if found[2] == "uuid" else "x", path)
        for other_method, other, _ in TABLE[:number]:
            pattern = PARAMETER.sub(
                lambda found: {"uuid": "[0-9a-f-]{36}", "path": ".*"}.get(found[2], "[^/]+"), other
            )
            hidden = other_method == method and httpx.URL(example).path and _fits(pattern, example)
            assert not hidden, f"{method} {path} is hidden by {other}"


def _fits(pattern: str, path: str) -> bool:
    import re

    return re.fullmatch(pattern, path) is not None


def test_each_route_refuses_smaller_roles_and_nobody(prefect: Running) -> None:
    with prefect.client(None) as nobody, prefect.client(Role.READER) as reader:
        for method, path, role in TABLE:
            if role is not None:
                assert nobody.request(method, filled(path)).status_code == 401, path
            if role is Role.OPERATOR:
                assert reader.request(method, filled(path)).status_code == 403, path


def run(operation: Any, server: Running, examples: int) -> None:
    headers = {"Authorization": f"Bearer {server.tokens[Role.OPERATOR]}"}

    @settings(max_examples=examples, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(case=operation.as_strategy())
    def answers(case: Any) -> None:
        answer = case.call(base_url=f"{server.url}/api", headers=headers)
        case.validate_response(answer, checks=[not_a_server_error])

    answers()


@pytest.mark.filterwarnings("ignore::hypothesis.errors.HypothesisDeprecationWarning")  # Schemathesis' own
def test_requests_of_every_operation_never_make_the_server_fail(prefect: Running) -> None:
    for operation in OPERATIONS:
        run(operation, prefect, 1)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::hypothesis.errors.HypothesisDeprecationWarning")  # Schemathesis' own
@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda one: f"{one.method.upper()} {one.path}")
def test_many_requests_of_every_operation(operation: Any, prefect: Running, minutes: float) -> None:
    run(operation, prefect, int(100 * minutes))
