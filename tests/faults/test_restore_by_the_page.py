"""Backup and restore as `docs/how-to/operate-a-ledger.md` says, word for word, into a fresh server."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

import ledger
from ledger import Ledger
from ledger.embedded import Embedded, throwaway
from ledger.jobs import Jobs
from ledger.pipelines import LSMStateService
from projections import Projector, View, attach, views_named
from tests.docs.pages import ROOT, blocks
from tests.fork_server import python

PAGE = ROOT / "docs/how-to/operate-a-ledger.md"
EMBEDDED = ROOT / "docs/how-to/embedded-server.md"
Shell = Callable[..., str]


def section(page: Path, title: str) -> str:
    """The text of a page below one of its headings."""
    return page.read_text(encoding="utf-8").split(f"\n## {title}\n")[1].split("\n## ")[0]


def commands(title: str) -> list[str]:
    """The commands of a section of the page, in order."""
    found = [block.text for block in blocks(section(PAGE, title)) if block.kind == "console"]
    return [line.removeprefix("$ ") for line in "".join(found).splitlines() if line.startswith("$ ")]


@pytest.fixture
def untouched() -> Iterator[Embedded]:
    """Another server, on which no ledger ever was; the doctor finds nothing wrong with it."""
    with throwaway(durable=True) as server:
        with psycopg.connect(server.admin_dsn(), autocommit=True) as connection:
            connection.execute("CREATE DATABASE lab")
        yield server


@pytest.fixture
def backup_dsn(postgres: Embedded, dsn: str) -> Iterator[str]:
    """The way in for a login that has the reader role and nothing else."""
    with psycopg.connect(postgres.admin_dsn(), autocommit=True) as connection:
        connection.execute("CREATE ROLE keeper LOGIN PASSWORD 'x'; GRANT ledger_reader TO keeper")
        yield make_conninfo(dsn, user="keeper", password="x")
        connection.execute("DROP ROLE keeper")


@pytest.fixture
def shell(postgres: Embedded, tmp_path: Path) -> Shell:
    """Runs a command in a folder of this test, with `pledger` and PostgreSQL's tools on the PATH."""
    pid = postgres.postmaster_pid()
    assert pid is not None
    pledger = tmp_path / "pledger"
    pledger.write_text(
        f'#!/bin/sh\nPYTHONPATH="{ROOT}" exec {shlex.join(python())} -P -m gateway.cli.main "$@"\n'
    )
    pledger.chmod(0o755)
    path = os.pathsep.join([str(tmp_path), str(Path(psutil.Process(pid).exe()).parent), os.environ["PATH"]])

    def run(command: str, **variables: str) -> str:
        env = os.environ | variables | {"PATH": path, "PYTHONPATH": str(ROOT)}
        done = subprocess.run(
            ["/bin/sh", "-c", command], cwd=tmp_path, env=env, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        return done.stdout + done.stderr

    return run


def shipped() -> list[View]:
    """The views that `pledger` knows: those of pipelines that other tests declared are not among them."""
    return views_named(
        [
            "activity",
            "build_runs",
            "build_stages",
            "flow_runs",
            "in_state",
            "jobs",
            "lsm_items",
            "progress",
            "psoct_items",
            "run_records",
            "task_runs",
            "work",
        ]
    )


@pytest.fixture
def filled(log: Ledger, connection: psycopg.Connection[Any]) -> Ledger:
    """A ledger with items, jobs and views, one of which the appends keep."""
    service = LSMStateService(log)
    for number in (1, 2, 3):
        with service.open_strip("mouse", slice_id=1, strip_id=number) as strip:
            strip.mark_completed()
    Jobs(log).submit("double", {"n": 2})
    Projector(log, shipped()).catch_up()
    attach(log, *views_named(["in_state"]))
    with service.open_strip("mouse", slice_id=1, strip_id=4) as strip:
        strip.mark_started()
    Projector(log, shipped()).catch_up()
    return log


def views_of(dsn: str) -> dict[str, list[Any]]:
    """What readers see of all views."""
    with psycopg.connect(dsn) as connection:
        connection.execute("SET ROLE ledger_reader")
        shown = connection.execute(
            "SELECT relname FROM pg_class WHERE relnamespace = 'ledger_views'::regnamespace AND relkind = 'v'"
        ).fetchall()
        select = sql.SQL("SELECT * FROM ledger_views.{} t ORDER BY t::text")
        return {name: connection.execute(select.format(sql.Identifier(name))).fetchall() for (name,) in shown}


@pytest.mark.long
def test_a_ledger_is_restored_as_the_page_says_and_goes_on(
    filled: Ledger, dsn: str, backup_dsn: str, shell: Shell, untouched: Embedded
) -> None:
    for command in commands("Back up"):
        shell(command, LEDGER_DSN=backup_dsn)
    there = untouched.admin_dsn("lab")
    said = {command: shell(command, NEW=there) for command in commands("Restore")}
    assert [text for command, text in said.items() if command.endswith(" init")] != []
    assert any("no difference" in text for command, text in said.items() if command.endswith(" verify"))
    assert views_of(there) == views_of(dsn)
    assert set(views_of(there)) >= {"in_state", "jobs", "lsm_items", "work"}

    way = make_conninfo(there, user="pipeline", password="choose one")
    with ledger.connect(way) as restored:
        assert restored.identity.ledger == filled.identity.ledger
        assert restored.bound() == filled.bound()
        with LSMStateService(restored).open_strip("mouse", slice_id=1, strip_id=4) as strip:
            strip.mark_completed()
        seen = "SELECT status FROM ledger_views.in_state WHERE stream = 'lsm.strip/mouse/1/1/4'"
        with psycopg.connect(way) as reader:
            assert reader.execute(seen).fetchall() == [("completed",)], "appends keep it as before"
        assert Projector(restored, shipped()).catch_up()["lsm_items"] == restored.bound()
    assert "no difference" in shell('pledger --dsn "$NEW" verify', NEW=way)


def test_a_dump_by_the_page_of_the_embedded_server_holds_the_same(
    filled: Ledger, dsn: str, backup_dsn: str, shell: Shell, untouched: Embedded
) -> None:
    (code,) = (b.text for b in blocks(section(EMBEDDED, "Back it up")) if b.kind == "python")
    shell(f'"{sys.executable}" - <<"END"\n{code}\nEND', LEDGER_DSN=backup_dsn)
    there = untouched.admin_dsn("lab")
    roles, restore, *_ = commands("Restore")
    for command in (roles, restore):
        shell(command, NEW=there)
    assert views_of(there) == views_of(dsn)
    assert set(views_of(there)) >= {"in_state", "jobs", "lsm_items", "work"}
    with ledger.connect(there) as restored:
        assert restored.identity.ledger == filled.identity.ledger
        assert restored.bound() == filled.bound()
        assert restored.log(0, restored.bound()) == filled.log(0, filled.bound())


@pytest.mark.slow
def test_a_dump_without_its_views_is_completed_from_the_events(
    filled: Ledger, dsn: str, shell: Shell, untouched: Embedded
) -> None:
    (dump, _) = commands("Back up")
    shell(dump.replace("'ledger|ledger_views|ledger_effects'", "ledger"), LEDGER_DSN=dsn)
    there, seen = untouched.admin_dsn("lab"), views_of(dsn)
    for command in commands("Restore")[:3]:
        shell(command, NEW=there)
    shell('pledger --dsn "$NEW" rebuild --all', NEW=there)
    assert views_of(there) == seen
    assert "no difference" in shell('pledger --dsn "$NEW" verify', NEW=there)
    assert "no difference" not in shell('pledger --dsn "$NEW" views follow --once', NEW=there)
    with ledger.connect(there) as restored:
        Projector(restored, shipped()).catch_up()
