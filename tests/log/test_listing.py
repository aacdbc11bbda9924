"""The list of streams: by name, in pages, whatever way the planner joins."""

from __future__ import annotations

import psycopg
import pytest

from ledger import Append, Body, Ledger

NAMES = [f"{kind}/{n:04}" for kind in ("a.b", "a.b.ready", "lamp") for n in range(700)]


@pytest.mark.parametrize("analyzed", [False, True])
@pytest.mark.parametrize("limit", [40, 150, 1000, 5000])
def test_pages_of_streams_neither_skip_nor_repeat(
    log: Ledger, admin_dsn: str, limit: int, analyzed: bool
) -> None:
    log.append_all([Append(name, [Body("lamp.lit", 1, "{}")]) for name in NAMES])
    if analyzed:
        with psycopg.connect(admin_dsn, autocommit=True) as connection:
            connection.execute("ANALYZE ledger.heads, ledger.events")
    found: list[str] = []
    while page := log.streams(after=found[-1] if found else "", limit=limit):
        assert len(page) <= limit
        found += [info.stream for info in page]
    assert found == sorted(NAMES)
    wanted = [name for name in sorted(NAMES) if name.startswith("a.b/")]
    assert [info.stream for info in log.streams("a.b/", limit=5000)] == wanted
