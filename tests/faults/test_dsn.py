"""Which database is meant, and what of its DSN may be shown."""

from __future__ import annotations

import psycopg
import pytest

from ledger.embedded import Embedded
from ledger.errors import ServerUnavailable
from ledger.log import dsn


def test_order(monkeypatch: pytest.MonkeyPatch, server: Embedded) -> None:
    monkeypatch.setattr(dsn, "_kept", {server.home: server})
    monkeypatch.setenv("LEDGER_HOME", str(server.home))
    assert dsn.resolve().source == "embedded"
    for name in dsn.LIBPQ_VARIABLES:
        with monkeypatch.context() as patch:
            patch.setenv(name, "somewhere")
            assert dsn.resolve() == dsn.Address("postgresql://", "postgresql://", name)
    monkeypatch.setenv("PGHOST", "one")
    monkeypatch.setenv("LEDGER_DSN", "host=two")
    assert dsn.resolve() == dsn.Address("host=two", "host=two", "LEDGER_DSN")
    assert dsn.resolve("host=three") == dsn.Address("host=three", "host=three", "--dsn")


def test_embedded_and_back(monkeypatch: pytest.MonkeyPatch, server: Embedded) -> None:
    monkeypatch.setattr(dsn, "_kept", {server.home: server})
    target = dsn.resolve(f"embedded:{server.home}")
    assert target.printable == f"embedded:{server.home}"
    pid = server.postmaster_pid()
    monkeypatch.setenv("LEDGER_DSN", target.printable)
    monkeypatch.setenv("PGHOSTADDR", "127.0.0.1")  # must not lead the embedded DSN astray
    with psycopg.connect(dsn.resolve().conninfo) as connection:
        assert connection.execute("SELECT current_database()").fetchone() == ("ledger",)
    assert server.postmaster_pid() == pid
    server.stop()
    monkeypatch.setenv("LEDGER_HOME", str(server.home))
    assert dsn.resolve("embedded:").printable == target.printable
    assert server.postmaster_pid() not in (None, pid)


def test_no_password_is_shown(monkeypatch: pytest.MonkeyPatch, server: Embedded) -> None:
    monkeypatch.setattr(dsn, "_kept", {server.home: server})
    target = dsn.resolve(server.printable)
    password = str(psycopg.conninfo.conninfo_to_dict(target.conninfo)["password"])
    assert password not in f"{target!r} {target} {target.printable} {dsn.printable(target.conninfo)}"


@pytest.mark.parametrize(
    ("secret", "shown"),
    [
        ("postgresql://", "postgresql://"),
        (
            "postgresql://me:pass%20word@host:5433/base?sslpassword=s3cr3t",
            "user=me dbname=base host=host port=5433",
        ),
        ("host=/tmp password='a b' dbname=base", "dbname=base host=/tmp"),
        ("password=only", "postgresql://"),
        ("host=one,two port=1,2 password=x", "host=one,two port=1,2"),
    ],
)
def test_printable(secret: str, shown: str) -> None:
    assert dsn.printable(secret) == shown
    assert dsn.printable(shown) == shown


@pytest.mark.parametrize(
    "wrong", ["postgresql://me:sec ret@host", "secret", "host=x secret", "mysql://me:secret@h"]
)
def test_a_dsn_that_cannot_be_read_is_not_quoted(wrong: str) -> None:
    with pytest.raises(ServerUnavailable, match="the DSN cannot be read") as caught:
        dsn.resolve(wrong)
    assert "sec" not in str(caught.value)
    assert caught.value.__suppress_context__


def test_a_nul_byte_is_refused() -> None:
    with pytest.raises(ServerUnavailable, match="NUL"):
        dsn.resolve("embedded:/tmp/a\0b")
