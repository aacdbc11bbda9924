"""The contract of operations: payloads, results, registries, failures (spec S1-10 to S1-16)."""

from __future__ import annotations

import sqlite3
from dataclasses import FrozenInstanceError
from datetime import date
from typing import Any

import psycopg
import pytest
from pydantic import Field, ValidationError

from consumers.jobs import OperationResult, Payload, Registry, RetryLaterError
from consumers.jobs.messages import Failed
from consumers.jobs.operation import Operation, registry_at
from consumers.jobs.record import decide
from consumers.jobs.sandbox.errors import failure_of, is_transient
from ledger import AppendUncertain, BadInput, LedgerBusy, NoPermission, ServerUnavailable, StorageFull
from ledger.errors import BadPayload, UnknownOperation
from ledger.jobs import OpenJob

JOB = "00000000-0000-4000-8000-000000000001"


class Page(Payload):
    """A payload."""

    file: str
    fast: bool = False
    share: float = 1.0
    numbers: list[int] = []
    day: date | None = None


class Named(Payload):
    """One that asks for its job."""

    file: str
    job: str = Field(alias="_job_id")


@pytest.fixture
def registry() -> Registry:
    known = Registry()

    @known.operation("page", Page, summarize=lambda payload: f"page {payload['file']}")
    def page(session: Any, payload: Page, *, emit: Any) -> None:
        """Read a page."""

    @known.operation("named", Named)
    def named(session: Any, payload: Named, *, emit: Any) -> None: ...

    @known.operation("plain")
    def plain(session: Any, payload: Any, *, emit: Any) -> None: ...

    return known


# Payloads


@pytest.mark.parametrize(
    ("given", "wrong"),
    [
        ({"file": "a", "fast": "yes"}, "fast: Input should be a valid boolean"),
        ({"file": "a", "fast": 1}, "fast: "),
        ({"file": 1}, "file: Input should be a valid string"),
        ({"file": "a", "numbers": ["1"]}, "numbers.0: "),
        ({"file": "a", "share": "0.5"}, "share: "),
        ({"file": "a", "more": 1}, "more: Extra inputs are not permitted"),
        ({"file": "a", "_job_id": JOB}, "_job_id: Extra inputs are not permitted"),
        ({}, "file: Field required"),
    ],
)
def test_payloads_are_strict(registry: Registry, given: dict[str, Any], wrong: str) -> None:
    with pytest.raises(BadPayload) as refused:
        registry.payload("page", given)
    assert wrong in str(refused.value)


def test_what_json_cannot_say_otherwise_is_taken(registry: Registry) -> None:
    payload = registry.payload("page", {"file": "a", "numbers": [1, 2**70], "share": 1, "day": "2026-01-02"})
    assert payload == Page(file="a", numbers=[1, 2**70], share=1.0, day=date(2026, 1, 2))


def test_a_payload_is_frozen(registry: Registry) -> None:
    payload = registry.payload("page", {"file": "a"})
    with pytest.raises(ValidationError, match="frozen"):
        payload.file = "b"


def test_a_mapping_is_a_copy_with_the_id_of_the_job(registry: Registry) -> None:
    stored = {"deep": {"n": [1]}}
    given = registry.payload("plain", stored, JOB)
    assert given == {"deep": {"n": [1]}, "_job_id": JOB}
    given["deep"]["n"].append(2)
    assert stored == {"deep": {"n": [1]}}


def test_a_model_gets_the_id_where_it_asks_for_it(registry: Registry) -> None:
    assert registry.payload("named", {"file": "a"}, JOB).job == JOB
    assert registry.payload("page", {"file": "a"}, JOB) == Page(file="a")


# Results


def test_a_result_is_immutable_and_says_nothing_by_default() -> None:
    result = OperationResult()
    assert (result.result, result.progress_current, result.progress_total, result.deferred) == (
        {},
        None,
        None,
        False,
    )
    assert (list(result.publish_after_commit), list(result.publish_operations)) == ([], [])
    with pytest.raises(FrozenInstanceError):
        result.deferred = True  # type: ignore[misc]


def test_to_be_tried_again_later_has_a_reason_and_a_delay() -> None:
    error = RetryLaterError("GPU busy")
    assert (str(error), error.reason, error.delay_seconds) == ("GPU busy", "GPU busy", 60)
    assert RetryLaterError("GPU busy", 5).delay_seconds == 5


# Registries


def test_a_name_is_registered_once(registry: Registry) -> None:
    with pytest.raises(ValueError, match="'page' is registered already"):
        registry.operation("page")(lambda session, payload, emit: None)


def test_an_unknown_name_is_a_key_error(registry: Registry) -> None:
    with pytest.raises(
        KeyError, match="Unknown operation: 'pgae'; known operations: named, page, plain"
    ) as raised:
        registry.get("pgae")
    assert isinstance(raised.value, UnknownOperation)


class Count:
    """An operation of the user's own class, as the contract wants it."""

    @property
    def name(self) -> str:
        return "count"

    def execute(self, session: Any, payload: Any, *, emit: Any) -> OperationResult:
        return OperationResult({"payload": payload})


def test_a_class_of_ones_own_is_an_operation(registry: Registry) -> None:
    count: Operation = Count()
    registry.register(count)
    assert registry.get("count") is count
    assert registry.names == ("count", "named", "page", "plain")
    assert registry.payload("count", {"n": 1}) == {"n": 1}
    assert registry.describe("count") is None
    assert registry.summary("count", {}) is None


@pytest.mark.parametrize("wrong", [object(), type("NoName", (), {"execute": print, "name": ""})(), None])
def test_what_is_no_operation_is_refused(registry: Registry, wrong: Any) -> None:
    with pytest.raises(BadInput, match="is not an operation"):
        registry.register(wrong)


def test_an_operation_describes_itself_and_its_payloads(registry: Registry) -> None:
    assert registry.describe("page") == "Read a page."
    assert registry.summary("page", {"file": "a"}) == "page a"
    assert registry.summary("plain", {"file": "a"}) is None


@pytest.mark.parametrize(
    ("summarize", "said"),
    [
        (lambda payload: 1 / 0, None),
        (lambda payload: 17, None),
        (lambda payload, session: f"{payload['n']} {session}", "1 None"),
        (lambda payload: "x" * 1000, "x" * 500),
        (lambda payload: payload.clear() or "cleared", "cleared"),
        ("no function", None),
    ],
)
def test_errors_of_a_summary_give_none(summarize: Any, said: str | None) -> None:
    registry, payload = Registry(), {"n": 1}
    registry.operation("one", summarize=summarize)(lambda session, payload, emit: None)
    assert registry.summary("one", payload) == said
    assert registry.summary("two", payload) is None
    assert payload == {"n": 1}


@pytest.mark.parametrize(
    ("place", "wrong"),
    [
        ("tests.jobs.nowhere:registry", "does not name a registry of operations: No module named"),
        ("tests.jobs.hostile:nothing", "does not name a registry of operations"),
        ("tests.jobs.hostile:ENDURES", "is not a Registry but str"),
        ("", "does not name a registry of operations"),
    ],
)
def test_a_place_without_a_registry_is_refused(place: str, wrong: str) -> None:
    with pytest.raises(BadInput, match=wrong):
        registry_at(place)


# Failures


class DeadlockDetected(psycopg.errors.DeadlockDetected):
    """Of a module that is no driver's."""


def wrapped(error: Exception) -> Exception:
    """As SQLAlchemy wraps errors of drivers."""
    outer = Exception(str(error))
    outer.orig = error  # type: ignore[attr-defined]
    return outer


@pytest.mark.parametrize(
    "error",
    [
        psycopg.errors.SerializationFailure(),
        psycopg.errors.DeadlockDetected(),
        psycopg.errors.AdminShutdown(),
        psycopg.errors.ConnectionFailure(),
        psycopg.OperationalError("server closed the connection unexpectedly"),
        ServerUnavailable("gone"),
        AppendUncertain(["job/1"]),
        LedgerBusy("busy"),
        wrapped(psycopg.errors.DeadlockDetected()),
    ],
)
def test_errors_of_the_infrastructure_are_transient(error: Exception) -> None:
    assert is_transient(error)
    assert failure_of(error, "job/1", 2).transient


@pytest.mark.parametrize(
    "error",
    [
        ValueError(),
        OSError(),
        psycopg.errors.UniqueViolation(),
        psycopg.errors.QueryCanceled(),
        psycopg.errors.InvalidPassword(),
        psycopg.errors.DiskFull(),
        StorageFull("full"),
        NoPermission("no"),
        sqlite3.OperationalError("locked"),
        wrapped(psycopg.errors.UniqueViolation()),
        BadInput("bad"),
    ],
)
def test_other_errors_are_not(error: Exception) -> None:
    assert not is_transient(error)


def test_a_failure_has_class_text_and_the_end_of_the_traceback() -> None:
    def deep(n: int) -> None:
        if n:
            deep(n - 1)
        raise ArithmeticError("first line\nsecond line")

    try:
        deep(100)
    except ArithmeticError as error:
        found = failure_of(error, "job/1", 2)
    assert (found.error_code, found.message) == ("ArithmeticError", "first line\nsecond line")
    assert found.details["traceback"].endswith("ArithmeticError: first line\nsecond line\n")
    assert len(found.details["traceback"]) <= 4000


def failed(attempts: int, max_attempts: int, *, transient: bool) -> OpenJob:
    """A job whose first attempts failed."""
    job = OpenJob(JOB)
    job.create("page", max_attempts=max_attempts)
    for _ in range(attempts):
        job.start("worker")
        decide(job, Failed(job.name, job.state.token or 0, (), "E", "text", transient=transient))
    return job


@pytest.mark.parametrize(
    ("transient", "max_attempts", "made"), [(True, 1, 3), (True, 5, 5), (False, 1, 1), (False, 2, 2)]
)
def test_attempts_that_the_infrastructure_broke_are_made_again(
    transient: bool, max_attempts: int, made: int
) -> None:
    """Three attempts even where one was asked for (spec S1-29), each a claim with its own token (W1-22)."""
    job = failed(made - 1, max_attempts, transient=transient)
    assert (job.state.status, job.state.failures) == ("queued", made - 1)
    assert job.state.delay_seconds <= 13
    assert failed(made, max_attempts, transient=transient).state.status == "failed"
