"""A database that takes no writes, a disk that is full: named, nothing half-stored, and it goes on."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql

import ledger
from ledger import (
    Append,
    Body,
    Ledger,
    ReadOnly,
    StorageFull,
)
from ledger.embedded import Embedded, throwaway
from ledger.log.install import init
from tests.lamp import LampRead, OpenLamp
from tests.temporary import short_folder

Connection = psycopg.Connection[Any]
BODY = Body("lamp.read", 1, "{}")


def test_a_read_only_database(dsn: str, admin_dsn: str) -> None:
    with ledger.connect(dsn) as log:
        log.append("lamp/a", LampRead())
        log.close()
        with psycopg.connect(admin_dsn, autocommit=True) as admin:
            name = sql.Identifier(admin.info.dbname)
            admin.execute(sql.SQL("ALTER DATABASE {} SET default_transaction_read_only = on").format(name))
            for news in ([LampRead()], [LampRead(), LampRead()]):
                with pytest.raises(
                    ReadOnly, match=r"the database accepts no writes .*: connect to the primary, or end"
                ):
                    log.append("lamp/a", *news)
                with pytest.raises(ReadOnly):
                    log.append("lamp/a", *news, expected=1, command="c")
            assert (log.bound(), len(log.read("lamp/a"))) == (1, 1)
            admin.execute(sql.SQL("ALTER DATABASE {} RESET default_transaction_read_only").format(name))
        log.close()
        assert not log.append("lamp/a", LampRead(), expected=1, command="c").repeated


# A disk that is full


@pytest.fixture
def small_disk() -> Iterator[Path]:
    """A disk of 12 MB; needs root, and a system that lets it mount."""
    folder = short_folder("disk")
    mounted = shutil.which("mount") and subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=12m,mode=0777", "tmpfs", str(folder)],
        capture_output=True,
        check=False,
    )
    if not mounted or mounted.returncode:
        folder.rmdir()
        pytest.skip("a small disk cannot be mounted here: it needs root")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)
    folder.rmdir()


def test_a_disk_that_is_full(small_disk: Path) -> None:
    with throwaway() as server:
        with psycopg.connect(server.dsn(), autocommit=True) as connection:
            init(connection)
        place = small_disk / "space"
        place.mkdir(mode=0o700)
        shutil.chown(
            place, *(getattr(server.home.joinpath("data").stat(), key) for key in ("st_uid", "st_gid"))
        )
        fill_and_clear(server, place)
        with psycopg.connect(server.admin_dsn(_name(server)), autocommit=True) as admin:
            admin.execute("ALTER TABLE ledger.events SET TABLESPACE pg_default")
            admin.execute("DROP TABLESPACE small")


def _name(server: Embedded) -> str:
    with psycopg.connect(server.dsn()) as connection:
        return connection.info.dbname


def fill(log: Ledger) -> Iterator[int]:
    """Append until something is raised; gives the version after each append."""
    for version in range(0, 100_000, 20):
        log.append("lamp/a", *[LampRead(value="y" * 500)] * 20, expected=version)
        yield version + 20


def fill_and_clear(server: Embedded, place: Path) -> None:
    with (
        psycopg.connect(server.admin_dsn(_name(server)), autocommit=True) as admin,
        ledger.connect(server.dsn()) as log,
    ):
        admin.execute(sql.SQL("CREATE TABLESPACE small LOCATION {}").format(sql.Literal(str(place))))
        admin.execute("ALTER TABLE ledger.events SET TABLESPACE small")
        admin.execute(
            "CREATE TABLE ballast (x text) TABLESPACE small; ALTER TABLE ballast ALTER x SET STORAGE PLAIN"
        )
        admin.execute("INSERT INTO ballast SELECT repeat('x', 7000) FROM generate_series(1, 900)")
        with pytest.raises(StorageFull, match=r"disk is full .*: free some space; nothing was stored"):
            list(fill(log))
        done = log.load(OpenLamp, "a").version
        assert done >= 20
        with pytest.raises(StorageFull):
            log.append_all([Append(f"lamp/{n}", [BODY] * 2000) for n in range(3)], command="c")
        head = log.head("lamp/a")
        assert head is not None
        assert (head.version, len(log.read("lamp/a")), len(log.streams())) == (done, done, 1)
        admin.execute("DROP TABLE ballast")
        admin.execute("CHECKPOINT")  # until then the files are kept
        assert log.append("lamp/a", *[LampRead()] * 20, expected=done).version == done + 20
        assert not log.append_all(
            [Append(f"lamp/{n}", [BODY] * 2000) for n in range(3)], command="c"
        ).repeated
