"""Fixtures of import and export: a second ledger, and files to read."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

import ledger
from gateway.cli.main import main
from ledger import Ledger, Recorded
from ledger.embedded import Embedded
from ledger.exchange import Part, Source, export_events, import_file
from ledger.exchange.importer import Imported
from ledger.exchange.source import Arrival, Format
from tests.gateway.conftest import Ended


@pytest.fixture
def other(postgres: Embedded, database: str, template: str) -> Iterator[Ledger]:
    """Another ledger, which is empty."""
    name = f"other_{database}"
    with psycopg.connect(postgres.dsn(), autocommit=True) as connection:
        connection.execute(
            sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(sql.Identifier(name), sql.Identifier(template))
        )
        connection.execute(
            sql.SQL("ALTER DATABASE {} SET timezone = 'Asia/Kolkata'").format(sql.Identifier(name))
        )
    with psycopg.connect(
        postgres.dsn(name), autocommit=True
    ) as connection:  # a ledger of its own, not a copy
        connection.execute("SET ROLE ledger_owner")
        connection.execute("UPDATE ledger.identity SET ledger = gen_random_uuid()")
    with ledger.connect(postgres.dsn(name), actor="importer") as opened:
        yield opened
    with psycopg.connect(postgres.admin_dsn(), autocommit=True) as connection:
        connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


@pytest.fixture
def written(tmp_path: Path) -> Callable[..., Path]:
    """Writes a file; gives its path."""

    def write(name: str, content: str | bytes) -> Path:
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return write


def imported(
    log: Ledger, path: Path, format: Format, *, dry_run: bool = False, name: str | None = None
) -> Imported:
    """Import one file."""
    with Source.of(path) as source:
        return import_file(log, source, format, dry_run=dry_run, name=name)


def read(path: Path, format: Format) -> list[Arrival]:
    """What a file says."""
    with Source.of(path) as source:
        return list(format.arrivals(source))


def exported(log: Ledger, path: Path, format: str, **part: object) -> Path:
    """Export to one file."""
    export_events(log, path, format, Part(**part))  # type: ignore[arg-type]
    return path


def events(log: Ledger) -> list[Recorded]:
    """All of a ledger."""
    return log.log(0, log.bound(), 100_000)


@pytest.fixture
def pledger(
    dsn: str, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> Callable[..., Ended]:
    """Run a command in this process, on this test's ledger."""
    for name in os.environ:
        if name.startswith(("PG", "LEDGER_")) and name != "LEDGER_PG_BIN":
            monkeypatch.delenv(name)
    monkeypatch.setenv("LEDGER_DSN", dsn)

    def run(*arguments: str) -> Ended:
        capfdbinary.readouterr()
        code = main(arguments)
        said = capfdbinary.readouterr()
        return Ended(int(code), said.out.decode(), said.err.decode())

    return run
