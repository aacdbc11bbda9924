"""What Prefect's own server kept is imported; a server of the ledger then shows it field by field."""

from __future__ import annotations

from pathlib import Path

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

PLAYED = [one for one in SCENARIOS if one.letter in "ae"]
"""Flows and tasks with retries, and records with secrets."""


@pytest.mark.slow
def test_an_imported_server_shows_what_the_original_showed(
    version: str, postgres: Embedded, template: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs, states, results and records: all read models of the scenarios are the same after the import."""
    monkeypatch.setenv("LEDGER_BLOCK_KEYS_FILE", str(tmp_path / "ours" / "block-keys"))
    with servers.postgres_for_prefect() as other, servers.database(other) as theirs:
        with servers.own(version, theirs, tmp_path / "own") as server:
            stage = Stage(version, server.url, tmp_path, settling=True)
            before = {letter: played() for letter, played in stage.begin(PLAYED).items()}
            stage.close()
        assert [played.ended.said for played in before.values() if played.ended.code] == []
        with servers.database(postgres, template) as dsn:
            with ledger.connect(dsn) as log, prefect_database(servers.asyncpg_url(theirs)) as database:
                assert Import(log, database).run().total.left == []
            with servers.ours(dsn, tmp_path / "ours", "--no-services") as server:
                after = {one.letter: shown(server.url, one, before[one.letter], tmp_path) for one in PLAYED}
    wrong = {
        letter: differences(letter, flat(before[letter].models), flat(models))
        for letter, models in after.items()
    }
    assert wrong == {letter: [] for letter in after}


def shown(url: str, scenario: Scenario, played: Played, folder: Path) -> object:
    """What a server shows of a scenario that was played on another one."""
    with httpx.Client(base_url=url, timeout=60) as api:
        models = ReadModels(api, scenario, played.ended.report).all()
    return Normal(folder / scenario.letter).of(models)
