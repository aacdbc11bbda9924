"""The DSN is a secret: no traceback shows it, not even one with the values of all variables."""

from __future__ import annotations

from traceback import TracebackException

import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

import ledger
from ledger import AlreadyOpen
from tests.lamp import OpenLamp


def test_a_nested_scope_is_refused_without_the_password(dsn: str) -> None:
    secret = str(conninfo_to_dict(dsn).get("password") or "s3cr3t-of-nobody")
    with ledger.connect(make_conninfo(dsn, password=secret)) as log:
        path = [OpenLamp.name_of("a")]
        with log.locks.exclusive(path, timeout_seconds=1):
            with pytest.raises(AlreadyOpen) as refused, log.locks.exclusive(path, timeout_seconds=1):
                pass
        own = [  # of the frames that are ours: this one has the secret, of course
            frame
            for frame in TracebackException.from_exception(refused.value, capture_locals=True).stack
            if "ledger" in frame.filename and "tests" not in frame.filename
        ]
        assert own
        assert all(secret not in str(frame.locals) for frame in own)
