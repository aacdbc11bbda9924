"""What an append reads does not grow with the ledger, also where its session began with an empty one."""

from __future__ import annotations

from typing import Any

import psycopg

import ledger
from ledger import NEW, Append
from ledger.log.append import body_of
from tests.faults.conftest import eventually
from tests.lamp import LampMade

SCANNED = "SELECT seq_tup_read FROM pg_stat_user_tables WHERE schemaname = 'ledger' AND relname = 'heads'"
SESSIONS = """
SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'pledger'
"""


def test_many_streams_at_once_are_found_by_their_names(dsn: str, connection: psycopg.Connection[Any]) -> None:
    made = body_of(LampMade())
    with ledger.connect(dsn) as log:
        for piece in range(12):
            log.append_all([Append(f"lamp/{piece}-{nth}", [made], NEW, status="made") for nth in range(200)])
    # LockSessions tell what they did when they end, which may be a moment from now.
    eventually(lambda: connection.execute(SESSIONS).fetchone() == (0,))
    assert connection.execute(SCANNED).fetchone() == (0,)
