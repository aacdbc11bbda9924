"""How commands end: exit codes, what goes where, and never a traceback or a password."""

from __future__ import annotations

import json
import os
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

from gateway.cli import streams
from gateway.cli.error_report import code_of
from gateway.cli.errors import MEANING, Code
from gateway.cli.main import session_first
from ledger import Ledger, errors
from ledger.embedded import Embedded
from tests.gateway.conftest import Ended, environment, forked
from tests.lamp import LampRead

Pledger = Callable[..., Ended]
SECRET = "hunter2"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def every_error() -> list[type[Exception]]:
    return [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, Exception)]


def test_codes_are_what_they_always_were() -> None:
    first = {code.value: code.name for code in Code if code < 10}
    assert first == {
        0: "FINE", 1: "REFUSED", 2: "MISUSE", 3: "NOT_FOUND", 4: "UNREACHABLE", 5: "CONFLICT",
        6: "UNSUCCESSFUL", 7: "TIMED_OUT",
    }  # fmt: skip
    assert (Code.INTERRUPTED, Code.READER_GONE, Code.TERMINATED) == (130, 141, 143)
    assert set(MEANING) == set(Code)


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        ("BadName", 2), ("BadBody", 2), ("MoveNotAllowed", 1), ("EffectFailed", 1),
        ("StreamConflict", 5), ("GuardFailed", 5), ("CommandReused", 5), ("StreamNotFound", 3),
        ("SchemaMismatch", 4), ("ServerUnavailable", 4), ("LedgerBusy", 4), ("ReadOnly", 4),
        ("KafkaUnavailable", 4),
        ("NoPermission", 4), ("DamagedLedger", 1), ("CursorMismatch", 1),
    ],
)  # fmt: skip
def test_each_error_has_its_code(kind: str, code: int) -> None:
    error = getattr(errors, kind)
    assert code_of(error.__new__(error)) == code


def test_no_error_is_without_a_code() -> None:
    codes = {code_of(kind.__new__(kind)) for kind in every_error()}
    known = {Code.REFUSED, Code.MISUSE, Code.NOT_FOUND, Code.UNREACHABLE, Code.CONFLICT, Code.UNSUCCESSFUL}
    assert codes == known


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["streams", "--nope"], "No such option: --nope; see `pledger streams --help`"),
        (["nope"], "No such command 'nope'"),
        (["history"], "Missing argument 'STREAM'"),
        (["streams", "--limit", "0"], "--limit"),
        (["streams", "--limit", "x"], "--limit"),
        (["log", "--after", "-1"], "is not a position"),
        (["log", "--after", "ten"], "is not a position"),
        (["log", "--after", "a:b:c"], "is not a cursor"),
        (["tail", "--dsn"], "option '--dsn' requires an argument"),
        (["--schema", "No!", "streams"], "schema 'No!' must be lower-case"),
        (["show", "lamp/x", "--domain", "no.such.module"], "'no.such.module' cannot be imported"),
    ],
)
def test_wrong_use_is_one_sentence_and_2(pledger: Pledger, arguments: list[str], says: str) -> None:
    ended = pledger(*arguments)
    assert (ended.code, ended.out, ended.err.count("\n")) == (2, "", 1)
    assert says in ended.err
    told = pledger("--json", *arguments)
    assert (told.code, told.out, told.error["exit"]) == (2, "", 2)
    assert says in told.error["message"]


def test_options_of_the_session_stand_anywhere_but_behind_two_dashes() -> None:
    given = ["show", "x", "--dsn", "D", "-q", "--schema=s", "--", "--actor", "a"]
    assert session_first(given) == ["--dsn", "D", "-q", "--schema=s", "show", "x", "--", "--actor", "a"]


def test_without_arguments_there_is_help(pledger: Pledger) -> None:
    ended = pledger()
    assert (ended.code, ended.err) == (0, "")
    for code, meaning in MEANING.items():
        assert f"{code.value}  {meaning}" in ended.out


def test_the_version(process: Pledger) -> None:
    ended = process("--version")
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.startswith("pledger")


def test_no_server_is_said_at_once_and_without_the_password(process: Pledger) -> None:
    dsn = f"postgresql://ann:{SECRET}@127.0.0.1:{free_port()}/db"
    ended = process("streams", "--dsn", dsn)
    assert (ended.code, ended.out, ended.err.count("\n")) == (4, "", 1)
    assert "refused" in ended.err
    told = process("streams", "--dsn", dsn, "--json").error
    assert (told["error"], told["exit"]) == ("ServerUnavailable", 4)
    assert SECRET not in ended.err + json.dumps(told)


@pytest.mark.parametrize("command", [["streams"], ["init"], ["doctor"], ["tail"]])
@pytest.mark.parametrize(
    "dsn",
    [
        f"host=x passwort={SECRET}",
        f"postgresql://a:{SECRET}%zz@h/d",
        f"h p={SECRET}",
        f"postgresql://a:b@{SECRET}@h/d",
    ],
)
def test_a_dsn_that_cannot_be_read_is_not_repeated(pledger: Pledger, command: list[str], dsn: str) -> None:
    ended = pledger(*command, "--dsn", dsn)
    assert (ended.code, ended.out) == (4, "")
    assert "the DSN cannot be read" in ended.err
    assert SECRET not in ended.err


def test_a_wrong_password_is_not_repeated(pledger: Pledger, postgres: Embedded, database: str) -> None:
    parts = psycopg.conninfo.conninfo_to_dict(postgres.dsn(database)) | {"password": SECRET}
    ended = pledger("streams", "--dsn", psycopg.conninfo.make_conninfo("", **parts))
    assert (ended.code, ended.out) == (4, "")
    assert "password authentication failed" in ended.err
    assert SECRET not in ended.err


def test_no_ledger_in_the_database(pledger: Pledger) -> None:
    ended = pledger("--schema", "elsewhere", "streams")
    assert (ended.code, ended.out) == (4, "")
    assert "has no ledger in schema 'elsewhere': run `pledger init`" in ended.err
    assert SECRET not in ended.err


def test_looking_makes_no_embedded_server(pledger: Pledger, tmp_path: Path) -> None:
    home = tmp_path / "home"
    for command in ("streams", "tail", "doctor"):
        ended = pledger(command, "--dsn", f"embedded:{home}")
        assert (ended.code, ended.out) == (4, "")
        assert "run `pledger init`" in ended.err
    assert not home.exists()


def test_a_newer_ledger_is_refused(pledger: Pledger, admin_dsn: str) -> None:
    with psycopg.connect(admin_dsn, autocommit=True) as connection:
        connection.execute("INSERT INTO ledger.migrations VALUES (999, 'later', now())")
    for command in (["streams"], ["tail"], ["init"]):
        ended = pledger(*command)
        assert (ended.code, ended.out) == (4, "")
        assert "install a newer pipeline-ledger" in ended.err


def test_a_role_that_may_not_read(
    pledger: Pledger, admin_dsn: str, postgres: Embedded, database: str
) -> None:
    parts = psycopg.conninfo.conninfo_to_dict(postgres.dsn(database)) | {"user": "guest", "password": "g"}
    with psycopg.connect(admin_dsn, autocommit=True) as connection:
        connection.execute("CREATE ROLE guest LOGIN PASSWORD 'g'")
        try:
            ended = pledger("streams", "--dsn", psycopg.conninfo.make_conninfo("", **parts), "--json")
        finally:
            connection.execute(sql.SQL("DROP ROLE guest"))
    assert (ended.code, ended.error["error"]) == (4, "NoPermission")


def break_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise KeyError("lost\x1b[31m")

    monkeypatch.setattr(streams, "_listed", broken)


def test_a_defect_is_one_sentence_too(pledger: Pledger, monkeypatch: pytest.MonkeyPatch) -> None:
    break_streams(monkeypatch)
    ended = pledger("streams")
    assert (ended.code, ended.out, ended.err.count("\n")) == (Code.DEFECT, "", 1)
    assert "KeyError" in ended.err
    assert "LEDGER_DEBUG=1" in ended.err
    assert "\x1b" not in ended.err
    assert pledger("streams", "--json").error["exit"] == 70


def test_the_traceback_of_a_defect_is_shown_on_request(
    pledger: Pledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    break_streams(monkeypatch)
    monkeypatch.setenv("LEDGER_DEBUG", "1")
    assert "Traceback (most recent call last)" in pledger("streams").err


def test_a_reader_that_goes_away_ends_it_silently(process: Pledger, log: Ledger, dsn: str) -> None:
    log.append("counts/one", *(LampRead(value="x" * 1000) for _ in range(300)))  # more than a pipe holds
    read, write = os.pipe()
    command = subprocess.Popen(
        [*forked(), "log"], stdout=write, stderr=subprocess.PIPE, text=True, env=environment(LEDGER_DSN=dsn)
    )
    os.close(write)
    os.read(read, 10)
    os.close(read)
    _, said = command.communicate(timeout=60)
    assert (command.returncode, said) == (Code.READER_GONE, "")


def test_a_full_disk_behind_stdout_is_said(log: Ledger, dsn: str) -> None:
    full = Path("/dev/full")
    if not full.exists():
        pytest.skip("this system has no /dev/full")
    log.append("counts/one", LampRead())
    with full.open("w") as out:
        done = subprocess.run(
            [*forked(), "streams"], stdout=out, stderr=subprocess.PIPE, text=True, check=False,
            env=environment(LEDGER_DSN=dsn), timeout=60,
        )  # fmt: skip
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "cannot be written" in done.stderr


def test_json_is_utf8_wherever_it_is_printed(process: Pledger, log: Ledger) -> None:
    log.append("counts/é", LampRead(value="ü"))
    ascii_only = {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    assert process("streams", "--json", **ascii_only).objects[0]["stream"] == "counts/é"
    assert process("streams", **ascii_only).rows[0][0] == "counts/\\xe9"
