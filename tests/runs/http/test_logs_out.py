"""`/api/logs/out`: the lines of a run as they arrive; and what workers are told about their channel."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime
from itertools import count
from typing import Any
from uuid import uuid4

import pytest

from ledger.runs.run_logs import RunLogs
from ledger.tokens import Role
from tests.gateway.http.conftest import Running
from tests.runs.raw_socket import RawSocket


def log(prefect: Running, run: str, *messages: str) -> None:
    given = {"name": "prefect", "level": 20, "timestamp": datetime.now(UTC).isoformat(), "flow_run_id": run}
    RunLogs(prefect.log).write([{**given, "message": message} for message in messages])


def test_the_lines_of_a_run_that_arrive_are_told_once_each(prefect: Running) -> None:
    run, other = str(uuid4()), str(uuid4())
    log(prefect, run, "before")
    one = RawSocket(prefect.url, "/api/logs/out")
    one.log_in(prefect.tokens[Role.READER])
    one.send({"type": "filter", "filter": {"flow_run_id": {"any_": [run]}}})
    one.ping()
    one.socket.settimeout(1)
    told: list[str] = []
    for nth in count():  # what arrives before the filter is read is not told
        log(prefect, run, str(nth))
        with suppress(TimeoutError):
            told.append(one.message()["log"]["message"])
            break
    log(prefect, other, "of another")
    log(prefect, run, "next", "last")
    one.socket.settimeout(30)
    while told[-1] != "last":
        told.append(one.message()["log"]["message"])
    assert told[-2:] == ["next", "last"]
    assert len(set(told)) == len(told)
    assert not {"before", "of another"} & {*told}


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ({"type": "x"}, "Expected 'filter' message"),
        ({"type": "filter", "filter": {"level": "high"}}, "Invalid filter: "),
        ({"type": "filter", "filter": []}, "Expected 'filter' message"),
    ],
)
def test_what_is_no_filter_ends_the_socket(message: Any, reason: str, prefect: Running) -> None:
    one = RawSocket(prefect.url, "/api/logs/out")
    one.log_in(prefect.tokens[Role.READER])
    one.send(message)
    end: Any = one.event()
    assert (end.code, end.reason[: len(reason)]) == (1002, reason)


def test_there_is_no_channel_of_workers_and_no_other_socket(prefect: Running) -> None:
    assert RawSocket(prefect.url, "/api/work_pools/p/workers/connect").status == 404
    assert RawSocket(prefect.url, "/api/nothing").status == 403
