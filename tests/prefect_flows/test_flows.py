"""Flows and tasks on a real Prefect server: the block, the history, and two processes that share the lock."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from psycopg.conninfo import conninfo_to_dict

from consumers.prefect_flows import PrefectLocks, ledger_from_block
from consumers.prefect_flows.blocks import dsn_from_block
from consumers.prefect_flows.limits import own_client
from ledger import BadInput, Ledger, ServerUnavailable
from ledger.pipelines import LSMStateService, ProcessingState
from tests.docs.pages import ROOT, runnable
from tests.docs.play import Player

PG = {"PGHOST": "host", "PGPORT": "port", "PGUSER": "user", "PGPASSWORD": "password", "PGDATABASE": "dbname"}
pytestmark = [
    pytest.mark.usefixtures("flows", "tidy"),
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),  # an empty flow of Prefect's leaves some
]


# Flows and tasks


@pytest.mark.usefixtures("block")
def test_a_flow_and_its_tasks_mark_strips(flows: ModuleType, locks: PrefectLocks, log: Ledger) -> None:
    state = flows.mark("p", [1, 2], return_state=True)
    view = LSMStateService(log).read_channel("p", slice_id=1, channel_id=1)
    assert view is not None
    assert view.all_succeeded(2)
    run = state.state_details.flow_run_id
    (_, completed) = log.read("lsm.strip/p/1/1/1")
    (*_, touched) = log.read("lsm.project/p")
    assert completed.meta.correlation == touched.meta.correlation == str(run)
    with own_client() as client:
        name = client.read_flow_run(run).name
    assert touched.meta.actor == f"flow mark run {name}"
    assert completed.meta.actor is not None
    assert completed.meta.actor.startswith(f"flow mark run {name} task mark_strip-")


@pytest.mark.usefixtures("block")
def test_the_run_that_connects_is_the_actor(flows: ModuleType, log: Ledger) -> None:
    flows.start_project("p")
    for recorded in log.read("lsm.project/p"):
        assert recorded.meta.actor is not None
        assert recorded.meta.actor.startswith("flow start-project run ")


@pytest.mark.usefixtures("block", "locks")
def test_an_async_flow_works_in_a_thread(flows: ModuleType, log: Ledger) -> None:
    assert asyncio.run(flows.mark_async("p")) is ProcessingState.COMPLETED
    (*_, last) = log.read("lsm.project/p")
    assert last.meta.actor is not None
    assert last.meta.actor.startswith("flow mark-async run ")
    assert last.meta.correlation is not None


@pytest.mark.usefixtures("block", "locks")
def test_two_processes_mark_strips_through_the_lock(
    environment: dict[str, str], log: Ledger, tmp_path: Path
) -> None:
    command = [sys.executable, "-m", "tests.prefect_flows.flows", "P", str(tmp_path)]
    running = [
        subprocess.Popen([*command, *strips], env=environment, stderr=subprocess.PIPE, text=True, cwd=ROOT)
        for strips in (["1", "3", "5"], ["2", "4", "6"])
    ]
    for process in running:
        _, said = process.communicate(timeout=120)
        assert process.returncode == 0, said
    channel = LSMStateService(log).read_channel("p", slice_id=1, channel_id=1)
    assert channel is not None
    assert channel.all_succeeded(6)
    assert (
        len({event.meta.correlation for n in range(1, 7) for event in log.read(f"lsm.strip/p/1/1/{n}")}) == 2
    )


# The block


def test_a_block_that_is_missing_is_named() -> None:
    with pytest.raises(BadInput, match=r"no block 'elsewhere'.*\.save\('elsewhere'\) makes it"):
        ledger_from_block("elsewhere")


def test_no_error_shows_the_password(block: str, database: str) -> None:
    from prefect_sqlalchemy import SqlAlchemyConnector

    assert block in dsn_from_block()
    for wrong in (f"host=127.0.0.1 port=1&password={block}", f"nonsense={block}"):
        url = f"postgresql://ledger:{block}@/{database}?{wrong.replace(' ', '&')}"
        SqlAlchemyConnector(connection_info=url).save("wrong", overwrite=True)
        with pytest.raises((BadInput, ServerUnavailable)) as caught:
            ledger_from_block("wrong")
        assert block not in repr(caught.value)
        assert block not in str(caught.value.__cause__)


def test_an_async_connector_will_do(block: str, dsn: str) -> None:
    from prefect_sqlalchemy import AsyncSqlAlchemyConnector

    url = "postgresql+asyncpg://u:s@h:1/d?ssl=require&prepared_statement_cache_size=0"
    AsyncSqlAlchemyConnector(connection_info=url).save("async-db", overwrite=True)
    assert dsn_from_block("async-db") == "host=h dbname=d user=u password=s port=1 sslmode=require"


# The page


def test_the_page_does_what_it_says(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    way = conninfo_to_dict(dsn)
    for variable, name in PG.items():
        monkeypatch.setenv(variable, str(way[name]))
    player = Player(ROOT / "docs" / "how-to" / "use-with-prefect.md")
    for block in runnable(player.page):
        getattr(player, f"_{block.kind}")(block)
