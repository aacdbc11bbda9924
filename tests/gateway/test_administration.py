"""`pledger init` and `pledger doctor`: what they do and what they find."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from ledger import Body, Ledger
from ledger.embedded import Embedded
from ledger.log.health import Verdict
from ledger.log.health import location as places
from ledger.log.health import server as servers
from ledger.log.health.checks import Examined
from ledger.log.install import newest
from projections import Projector, views_named
from tests.gateway.conftest import Ended
from tests.lamp import LampRead, OpenLamp
from tests.temporary import short_folder

Pledger = Callable[..., Ended]
Connect = Callable[..., psycopg.Connection[Any]]
NAMES = [
    *("server", "encoding", "primary", "durability", "synchronous_commit", "prepared_transactions"),
    *("time_zone", "clock", "connections", "schema", "positions", "position_lock"),
    *("open_appends", "lock_class", "roles", "rights", "append_only", "heads", "views", "reactors"),
    *("sessions", "place"),
]  # fmt: skip


@pytest.fixture
def admin(admin_dsn: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(admin_dsn, autocommit=True) as opened:
        yield opened


def checks(ended: Ended) -> dict[str, dict[str, str]]:
    (report,) = ended.objects
    return {check["name"]: check for check in report["checks"]}


def verdicts(ended: Ended) -> dict[str, str]:
    return {name: check["verdict"] for name, check in checks(ended).items()}


# init


def test_init_makes_a_ledger_and_does_it_again(pledger: Pledger) -> None:
    first = pledger("--schema", "second", "init", "--json")
    again = pledger("--schema", "second", "init", "--json")
    (made,), (found,) = first.objects, again.objects
    assert (first.code, made["schema_number_before"], made["schema_number"]) == (0, None, newest())
    assert "a new ledger was made in schema 'second'" in first.err
    assert (again.code, found["schema_number_before"], found["ledger"]) == (0, newest(), made["ledger"])
    assert "exists already" in again.err
    assert pledger("--schema", "second", "streams").code == 0


def test_init_shows_no_password(pledger: Pledger, dsn: str) -> None:
    secret = psycopg.conninfo.conninfo_to_dict(dsn)["password"]
    ended = pledger("init")
    assert dict(ended.rows)["schema"] == "ledger"
    assert str(secret) not in ended.out + ended.err


def test_init_in_a_schema_of_somebody_else(pledger: Pledger, connection: psycopg.Connection[Any]) -> None:
    connection.execute("CREATE SCHEMA taken CREATE TABLE theirs (id bigint)")
    ended = pledger("--schema", "taken", "init")
    assert (ended.code, ended.out) == (4, "")
    assert "is not a ledger: choose another" in ended.err


# doctor


def test_doctor_names_what_is_wrong_with_the_server_of_the_tests(pledger: Pledger, log: Ledger) -> None:
    with log.open(OpenLamp, "hall") as lamp:
        lamp.make()
    ended = pledger("doctor", "--json")
    found = verdicts(ended)
    assert list(found) == NAMES
    assert found.pop("durability") == "fail"  # the tests' server is thrown away, and so not durable
    assert set(found.values()) == {"ok"}
    (report,) = ended.objects
    assert (ended.code, report["fail"], report["ok"]) == (1, 1, len(NAMES) - 1)
    assert "fsync = on" in checks(ended)["durability"]["cure"]


def test_doctor_in_text_has_a_cure_for_every_failure(pledger: Pledger) -> None:
    ended = pledger("doctor")
    assert [row[1] for row in ended.rows] == NAMES
    assert all(bool(row[3]) == (row[0] != "ok") for row in ended.rows)
    assert "1 failed" in ended.err


def test_doctor_is_content_with_a_durable_server(pledger: Pledger, tmp_path: Path) -> None:
    home = short_folder("doctor")
    home.chmod(0o711)
    try:
        dsn = f"embedded:{home}"
        assert pledger("init", "--dsn", dsn).code == 0
        ended = pledger("doctor", "--dsn", dsn, "--json")
        assert (ended.code, ended.objects[0]["dsn"]) == (0, dsn)
        found = checks(ended)
        assert {"place", "disk"} <= set(found)
        assert str(home) in found["place"]["says"]
        if places.clients_of(home) is not None:
            assert str(os.getpid()) in found["place"]["says"]
    finally:
        Embedded(home).stop(immediate=True)
        shutil.rmtree(home, ignore_errors=True)


def test_doctor_names_an_append_that_is_open_too_long(
    pledger: Pledger, log: Ledger, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ledger.log.health.log.OLD_APPEND", 0.0)
    writer = connect(autocommit=False)
    with log.join(writer) as joined:
        joined.append("lamp/x", LampRead())
    found = checks(pledger("doctor", "--json"))["open_appends"]
    assert (found["verdict"], f"process {writer.info.backend_pid} " in found["says"]) == ("warn", True)
    assert f"pg_terminate_backend({writer.info.backend_pid})" in found["cure"]
    writer.rollback()
    assert verdicts(pledger("doctor", "--json"))["open_appends"] == "ok"


def test_doctor_finds_disabled_triggers(pledger: Pledger, admin: psycopg.Connection[Any]) -> None:
    admin.execute("ALTER TABLE ledger.events DISABLE TRIGGER append_only")
    found = checks(pledger("doctor", "--json"))["append_only"]
    assert found["verdict"] == "fail"
    assert "append_only is disabled" in found["says"]
    admin.execute("ALTER TABLE ledger.events ENABLE TRIGGER append_only")
    assert pledger("init").code == 0
    assert verdicts(pledger("doctor", "--json"))["append_only"] == "ok"


def test_doctor_finds_a_sequence_behind_the_events(
    pledger: Pledger, log: Ledger, admin: psycopg.Connection[Any]
) -> None:
    for name in ("hall", "desk"):
        with log.open(OpenLamp, name) as lamp:
            lamp.make()
    admin.execute("SELECT setval('ledger.positions', 1)")
    ended = pledger("doctor", "--json")
    found = checks(ended)["positions"]
    assert (ended.code, found["verdict"]) == (1, "fail")
    assert found["cure"].endswith("as the owner: SELECT setval('ledger.positions', 2)")
    assert pledger("streams").code == 1
    admin.execute("SELECT setval('ledger.positions', 2)")
    assert verdicts(pledger("doctor", "--json"))["positions"] == "ok"


@pytest.mark.parametrize(("version", "verdict"), [(1, "warn"), (9, "fail")])
def test_doctor_compares_heads_with_events(
    pledger: Pledger, log: Ledger, admin: psycopg.Connection[Any], version: int, verdict: str
) -> None:
    with log.open(OpenLamp, "hall") as lamp:
        lamp.make()
        lamp.switch_on()
    log.append("other/app", Body("other.thing", 1, None, b"\x00"), head=False)
    assert verdicts(pledger("doctor", "--json"))["heads"] == "ok"
    admin.execute("UPDATE ledger.heads SET version = %s", [version])
    found = checks(pledger("doctor", "--json"))["heads"]
    assert (found["verdict"], "lamp/hall" in found["says"]) == (verdict, True)


def test_doctor_finds_a_shared_lock_class(pledger: Pledger, admin: psycopg.Connection[Any]) -> None:
    assert pledger("--schema", "second", "init").code == 0
    assert verdicts(pledger("doctor", "--json"))["lock_class"] == "ok"
    admin.execute("UPDATE second.identity SET lock_class = (SELECT lock_class FROM ledger.identity)")
    assert pledger("--schema", "second", "init").code == 0
    found = checks(pledger("doctor", "--json"))["lock_class"]
    assert (found["verdict"], "schema second" in found["says"]) == ("warn", True)
    admin.execute("UPDATE second.identity SET lock_class = lock_class + 7")  # the cure that it names
    assert pledger("--schema", "second", "init").code == 0
    assert verdicts(pledger("doctor", "--json"))["lock_class"] == "ok"


def test_doctor_knows_a_newer_schema_and_none(pledger: Pledger, admin: psycopg.Connection[Any]) -> None:
    found = checks(pledger("--schema", "elsewhere", "doctor", "--json"))
    assert (found["schema"]["verdict"], found["schema"]["cure"]) == ("fail", "run `pledger init`")
    assert "positions" not in found
    admin.execute("INSERT INTO ledger.migrations VALUES (999, 'later', now())")
    newer = checks(pledger("doctor", "--json"))["schema"]
    assert (newer["verdict"], newer["cure"]) == ("fail", "install a newer pipeline-ledger")


def test_doctor_warns_a_superuser(pledger: Pledger, admin_dsn: str) -> None:
    found = checks(pledger("doctor", "--json", "--dsn", admin_dsn))["rights"]
    assert (found["verdict"], "superuser" in found["says"]) == ("warn", True)


def test_doctor_of_a_role_without_rights(
    pledger: Pledger, admin: psycopg.Connection[Any], postgres: Embedded, database: str
) -> None:
    parts = psycopg.conninfo.conninfo_to_dict(postgres.dsn(database)) | {"user": "passer", "password": "p"}
    admin.execute("CREATE ROLE passer LOGIN PASSWORD 'p'")
    try:
        ended = pledger("doctor", "--json", "--dsn", psycopg.conninfo.make_conninfo("", **parts))
    finally:
        admin.execute("DROP ROLE passer")
    found = verdicts(ended)
    assert (ended.code, found["server"], found["schema"], found["rights"]) == (1, "ok", "warn", "fail")
    assert "could not be checked" in checks(ended)["schema"]["says"]


def test_doctor_without_a_server(pledger: Pledger) -> None:
    ended = pledger("doctor", "--json", "--dsn", "host=/nowhere dbname=x")
    assert (ended.code, verdicts(ended)) == (4, {"server": "fail"})


# Checks of which a test cannot make the occasion


@pytest.mark.parametrize(
    ("ahead", "asking", "verdict"),
    [(0.01, 0.02, "ok"), (5.0, 6.0, "ok"), (5.0, 0.1, "warn"), (-3.0, 0.1, "warn"), (-0.5, 0.0, "ok")],
)
def test_the_clock(ahead: float, asking: float, verdict: str) -> None:
    assert servers._clock(ahead, asking).verdict == verdict


@pytest.mark.parametrize(
    ("standby", "read_only", "verdict"), [(True, "on", "fail"), (False, "on", "fail"), (False, "off", "ok")]
)
def test_the_primary(standby: bool, read_only: str, verdict: str) -> None:
    assert servers._writable(standby, read_only).verdict == verdict


@pytest.mark.parametrize(
    ("free", "verdict"), [(1 << 40, Verdict.OK), (1 << 29, Verdict.WARN), (1 << 20, Verdict.FAIL)]
)
def test_the_disk(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, free: int, verdict: Verdict) -> None:
    usage = shutil._ntuple_diskusage(free, 0, free)  # type: ignore[attr-defined]
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    assert places._disk(tmp_path).verdict is verdict


class Prepared(Examined):
    """A server with a prepared transaction, which the one of the tests does not allow."""

    def rows(self, name: str, *_: Any, **__: Any) -> list[tuple[Any, ...]]:
        assert name == "prepared_transactions"
        return [("half-done", 3600.0)]


def test_prepared_transactions(connection: psycopg.Connection[Any]) -> None:
    (found,) = servers._prepared(Prepared(connection, "ledger", None), 5)  # type: ignore[arg-type]
    assert (found.verdict, "'half-done'" in found.says) == (Verdict.WARN, True)


def test_a_view_that_leaves_streams_out_or_is_late_is_named(
    pledger: Pledger, log: Ledger, admin: psycopg.Connection[Any]
) -> None:
    log.append("lamp/a", LampRead(value=1))
    Projector(log, views_named(["activity", "in_state"])).catch_up()
    assert checks(pledger("doctor", "--json"))["views"]["says"] == "2 views are up to date"
    admin.execute(
        "INSERT INTO ledger.view_parked (position, parked_at, copy, view, stream, error, event) "
        "VALUES (1, now(), 1, 'activity', 'lamp/a', 'bad', '{}')"
    )
    admin.execute("UPDATE ledger.view_copies SET position = 0 WHERE view = 'in_state'")
    admin.execute("ALTER TABLE ledger.events DISABLE TRIGGER USER")
    admin.execute("UPDATE ledger.events SET recorded_at = recorded_at - interval '2 minutes'")
    admin.execute("ALTER TABLE ledger.events ENABLE TRIGGER USER")
    found = [one for one in pledger("doctor", "--json").objects[0]["checks"] if one["name"] == "views"]
    assert [one["verdict"] for one in found] == ["warn", "warn"]
    assert "view activity leaves out 1 streams" in found[0]["says"]
    assert "view in_state lacks events that are 12" in found[1]["says"]
