"""What Prefect's own server kept is imported; a server of the ledger then shows it field by field."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

import ledger
from consumers.runs.imports import Import, prefect_database
from ledger.embedded import Embedded
from tests.prefect import servers
from tests.prefect.differences import differences
from tests.prefect.normal import Normal, flat
from tests.prefect.playing import Played, Stage
from tests.prefect.readback import ReadModels
from tests.prefect.scenarios import SCENARIOS, Scenario

PLAYED = [one for one in SCENARIOS if one.letter in "abdef"]
"""Flows and tasks with retries, subflows, a pool with deployments, records with secrets, limits."""

NO_STATES = ("prefect.flow-run.pull-step.executed",)
"""Events of the scenarios that tell of no state."""


@contextmanager
def empty_database(kind: str, folder: Path) -> Iterator[str]:
    """An empty database for Prefect's own server: a DSN of PostgreSQL, or a URL of SQLite."""
    if kind == "sqlite":
        yield f"sqlite+aiosqlite:///{folder}/prefect.db"
        return
    with servers.postgres_for_prefect() as other, servers.database(other) as dsn:
        yield servers.asyncpg_url(dsn)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["postgresql", "sqlite"])
def test_an_imported_server_shows_what_the_original_showed(
    kind: str,
    version: str,
    postgres: Embedded,
    template: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Runs, states, results and records: all read models of the scenarios are the same after the import."""
    monkeypatch.setenv("LEDGER_BLOCK_KEYS_FILE", str(tmp_path / "ours" / "block-keys"))
    with empty_database(kind, tmp_path) as theirs:
        with servers.own(version, theirs, tmp_path / "own") as server:
            stage = Stage(version, server.url, tmp_path, settling=True)
            before = {letter: played() for letter, played in stage.begin(PLAYED).items()}
            stage.close()
            hold_a_slot(server.url)
        assert [played.ended.said for played in before.values() if played.ended.code] == []
        with servers.database(postgres, template) as dsn:
            with ledger.connect(dsn) as log, prefect_database(theirs) as database:
                assert Import(log, database).run().total.left == []
            with servers.ours(dsn, tmp_path / "ours", "--no-services") as server:
                after = {one.letter: shown(server.url, one, before[one.letter], tmp_path) for one in PLAYED}
    wrong = [
        line
        for letter, models in after.items()
        for line in differences(letter, flat(kept(before[letter].models)), flat(models))
    ]
    assert not wrong, "\n".join(wrong)


def kept(tree: Any, field: str = "") -> Any:
    """What Prefect's own server showed, as it is after an import: no slot is taken, no worker was seen, and
    of the events only those of states are there."""
    if isinstance(tree, dict):
        if tree.get("workers"):
            tree = tree | {"workers": [], "status": "NOT_READY"}
        return {name: kept(value, name) for name, value in tree.items()}
    if isinstance(tree, list):
        return [kept(one, field) for one in tree if one not in NO_STATES]
    return 0 if field == "active_slots" and tree else tree


def hold_a_slot(url: str) -> None:
    """Take a slot that nobody gives back: it is not taken any more after the import."""
    taken = {"names": ["f-camera"], "slots": 1, "mode": "concurrency"}
    httpx.post(f"{url}/v2/concurrency_limits/increment", json=taken, timeout=60).raise_for_status()
    limit = httpx.get(f"{url}/v2/concurrency_limits/f-camera", timeout=60).raise_for_status().json()
    assert limit["active_slots"] == 1


def shown(url: str, scenario: Scenario, played: Played, folder: Path) -> object:
    """What a server shows of a scenario that was played on another one."""
    with httpx.Client(base_url=url, timeout=60) as api:
        models = ReadModels(api, scenario, played.ended.report).all()
    return Normal(folder / scenario.letter).of(models)
