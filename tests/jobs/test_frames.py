"""What a child sends comes to its worker as it was, or is seen to be garbled."""

from __future__ import annotations

import socket
from datetime import UTC, datetime
from typing import Any

import pytest

from consumers.jobs.messages import (
    AlreadyRecorded,
    Deferred,
    Failed,
    Prepared,
    RetryLater,
    Stopped,
    Succeeded,
    Task,
)
from consumers.jobs.sandbox.frames import (
    KEY,
    BadFrame,
    FrameSocket,
    answer,
    decode,
    encode,
    frame,
    pack,
    unpack,
)

JOB = "00000000-0000-4000-8000-000000000001"
AT = datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC)
CHILD = Prepared(JOB, "page", {"file": "a"}, {"priority": 3, "run_at": AT, "tags": ["x"]})


@pytest.mark.parametrize(
    "outcome",
    [
        Succeeded("job/1", 2, (CHILD,), {"n": 2**70, "x": 0.1}, 1, 2),
        Succeeded("batch/1/1", 2, then=("store", "writes", {"n": 1})),
        Deferred("job/1", 2, (CHILD, CHILD), {}, 100, 0.5),
        RetryLater("job/1", 2, (), "busy", 0.5),
        Failed("job/1", 2, (), "E", "text", {"signal": 9}, True),
        AlreadyRecorded("job/1", 2),
        Stopped("job/1", 2, reason="cancelled"),
    ],
    ids=lambda outcome: type(outcome).__name__,
)
@pytest.mark.parametrize("last", [True, False])
def test_what_is_sent_comes(outcome: Any, last: bool) -> None:
    assert decode(answer(encode(outcome), last=last)) == (outcome, last)


@pytest.mark.parametrize(
    "body", [b"", b".", b".[]", b".{}", b'.{"kind":"Begin","jobs":[]}', b"." + b"[" * 10**5]
)
def test_anything_else_is_garbled(body: bytes) -> None:
    with pytest.raises(BadFrame):
        decode(body)


def test_a_task_comes_as_it_was() -> None:
    task = Task("job/1", 2, 3, "page", '{"n":1}', JOB, 4, "2.1", 0.5)
    assert unpack(pack(task)) == task


def test_frames_come_one_by_one_however_they_are_cut() -> None:
    key = b"k" * KEY
    ours, theirs = socket.socketpair()
    with theirs, FrameSocket(ours, key) as line:
        sent = frame(key, b"one") + frame(key, b"") + frame(key, b"three")
        taken = []
        for n in range(len(sent)):
            theirs.send(sent[n : n + 1])
            taken += [body] if (body := line.read_frame()) is not None else []
        assert taken == [b"one", b"", b"three"]
        theirs.send(sent)
        assert [line.read_frame(), line.poll(), line.read_frame(), line.read_frame()] == [
            b"one",
            True,
            b"",
            b"three",
        ]
        assert line.read_frame() is None
        assert not line.poll()
        theirs.send(b"kkhello")
        with pytest.raises(BadFrame):
            line.read_frame()
