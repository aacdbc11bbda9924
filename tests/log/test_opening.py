"""Pool are opened in one place, so that texts are texts whatever the client's environment says."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import ledger
from consumers.jobs.context import connected
from ledger import Ledger
from ledger.embedded import Embedded, throwaway
from ledger.log.admin import single_connection
from ledger.log.dsn import resolve
from ledger.machines.transitions_table import table_snapshot
from projections import Follower, Projector
from projections.engine.copies import projecting
from projections.feeds import StateChanges
from projections.fold.range import FoldSession
from projections.verify import verify
from tests.house.rules import ROOT, WINGS, python_files
from tests.lamp import LampRead

NAME = "lamp/Straße ☃"
WAYS = {"psycopg", "CallingConnection", "Connection", "AsyncConnection", "kind"}


@pytest.fixture(params=["SQL_ASCII", "LATIN1"])
def elsewhere(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, dsn: str) -> Iterator[Ledger]:
    """A ledger, opened where libpq is told of another encoding, with an event that needs UTF-8."""
    monkeypatch.setenv("PGCLIENTENCODING", request.param)
    with ledger.connect(dsn, actor="Jürgen ☃") as log:
        log.append(NAME, LampRead())
        yield log


def test_a_follower_gives_texts(elsewhere: Ledger) -> None:
    (event,) = Follower(elsewhere).poll()
    assert (event.stream, event.topic, event.meta.actor) == (NAME, "lamp.read", "Jürgen ☃")
    assert Follower(elsewhere, topics={"lamp.read"}).poll() == [event]
    assert Follower(elsewhere, Follower(elsewhere).cursor).position == 0


def test_views_checks_and_feeds_read_texts(elsewhere: Ledger) -> None:
    Projector(elsewhere).catch_up()
    assert StateChanges(elsewhere).poll() == []
    assert verify(elsewhere, processes=1).differences == 0


def test_every_kind_of_connection_is_in_utf8(elsewhere: Ledger, dsn: str) -> None:
    with (
        single_connection(resolve(dsn)) as one,
        table_snapshot(dsn) as two,
        connected(elsewhere, None) as three,
        connected(elsewhere, dsn) as four,
        projecting(elsewhere) as five,
        FoldSession(dsn, "ledger") as six,
    ):
        for connection in (one, two, three, four, five, six.connection):
            assert connection.execute("SHOW client_encoding").fetchone() == ("UTF8",)
            assert connection.info.encoding == "utf-8"


def test_an_embedded_server_is_found_not_durable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGCLIENTENCODING", "SQL_ASCII")
    with throwaway() as server:
        with pytest.raises(ledger.ServerUnavailable, match="without durability"):
            Embedded(server.home, durable=True).acquire()


def test_no_other_file_opens_connections() -> None:
    of_prefect = "consumers/runs/imports/database.py"  # the database of another system
    assert openers(ROOT) == {"ledger/log/connection.py", "ledger/log/pool.py", of_prefect}


def test_an_opener_is_caught(tmp_path: Path) -> None:
    (tmp_path / "ledger").mkdir()
    (tmp_path / "ledger" / "reading.py").write_text("with psycopg.connect(dsn) as connection: ...\n")
    (tmp_path / "ledger" / "pooling.py").write_text("pool = ConnectionPool(dsn)\n")
    (tmp_path / "ledger" / "harmless.py").write_text("log = ledger.connect(dsn)\n")
    assert openers(tmp_path) == {"ledger/reading.py", "ledger/pooling.py"}


def openers(root: Path) -> set[str]:
    """The files that call the driver's own ways to a connection."""
    rooms = [wing for wing in WINGS if (root / wing).exists()]
    return {path.relative_to(root).as_posix() for path in python_files(root, *rooms) if any(opens(path))}


def opens(path: Path) -> Iterator[bool]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        match node:
            case ast.Call(func=ast.Name(id="ConnectionPool")):
                yield True
            case ast.Call(func=ast.Attribute(attr="connect", value=place)):
                yield ast.unparse(place).rpartition(".")[2] in WAYS
