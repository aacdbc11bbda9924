"""`pledger verify`, and what `pledger doctor` says of heads."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from gateway.cli.main import main
from ledger import Body, Ledger
from tests.verify.damage import as_owner, use

Connection = psycopg.Connection[Any]
Run = Callable[..., tuple[int, list[str], str]]


@pytest.fixture
def pledger(
    log: Ledger, dsn: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Run:
    use(log)
    monkeypatch.setenv("LEDGER_DSN", dsn)

    def run(*arguments: str) -> tuple[int, list[str], str]:
        capsys.readouterr()
        code = main(arguments)
        said = capsys.readouterr()
        return int(code), said.out.splitlines(), said.err

    return run


def test_a_whole_ledger_ends_with_0(pledger: Run) -> None:
    code, out, said = pledger("verify", "--all")
    assert (code, out) == (0, [])
    assert said == "12 streams of 24 events, 11 heads, 4 command ids: no difference\n"


def test_differences_are_listed_and_end_with_1_until_they_are_mended(
    pledger: Run, connection: Connection
) -> None:
    as_owner(
        connection, "UPDATE ledger.heads SET status = 'odd', state = state - 'read' WHERE stream = 'lamp/a'"
    )
    code, out, said = pledger("verify", "--stream", "lamp/")
    assert code == 1
    assert [line.split("\t") for line in out] == [
        ["head differs", "lamp/a", "3", "the head differs from its 3 events",
         'status: "odd" -> "on"; state.read: (not there) -> 1', "evidence"]
    ]  # fmt: skip
    assert "1 × head differs" in said
    assert "1 of these are evidence of lost or changed events, and were not repaired" in said
    assert '`pledger verify --repair --also "head differs"` repairs them' in said
    code, out, _ = pledger("verify", "--json", "--repair")
    first, last = map(json.loads, out)
    assert (code, first["repaired"], first["evidence"]) == (1, None, True)
    assert last["summary"]["evidence"] == {"head differs": 1}
    code, out, _ = pledger("verify", "--json", "--repair", "--also", "head-differs")
    first, last = map(json.loads, out)
    assert (code, first["difference"], first["repaired"]) == (0, "head differs", "repaired")
    assert first["fields"][0] == {"name": "status", "kept": '"odd"', "events": '"on"'}
    assert last["summary"]["kinds"] == {"head differs": 1}
    assert last["summary"]["equal"] is True
    assert pledger("verify", "--quiet") == (0, [], "")


def test_a_long_list_is_cut_and_counted(pledger: Run, connection: Connection) -> None:
    as_owner(connection, "TRUNCATE ledger.heads")
    code, out, said = pledger("verify", "--limit", "2")
    assert (code, len(out)) == (1, 2)
    assert "9 more differences: --limit 0 lists all" in said
    assert len(pledger("verify", "--limit", "0")[1]) == 11


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (["--all", "--sample", "3"], "--all excludes --sample"),
        (["--stream", "a", "--category", "b"], "or a category, not both"),
        (["--check", "no_such"], "no view is named 'no_such'"),
        (["--also", "head ahead"], "--also needs --repair"),
        (["--repair", "--also", "gap"], "'gap' cannot be repaired; give one of head missing"),
    ],
)
def test_wrong_use_is_refused(pledger: Run, given: list[str], says: str) -> None:
    code, out, said = pledger("verify", *given)
    assert (code, out) == (2, [])
    assert says in said


def test_doctor_sees_heads_that_are_missing(pledger: Run, connection: Connection) -> None:
    as_owner(connection, "DELETE FROM ledger.heads WHERE stream IN ('lamp/a', 'lamp/b')")
    _, out, _ = pledger("doctor", "--json")
    (check,) = [check for check in json.loads(out[0])["checks"] if check["name"] == "heads"]
    assert check["verdict"] == "warn"
    assert check["says"].startswith("of 12 heads 2 missing, such as lamp/a")
    assert pledger("verify", "--repair")[0] == 0
    _, out, _ = pledger("doctor", "--json")
    assert '"heads", "verdict": "ok"' in out[0]


def test_a_name_that_nothing_has_is_not_verified_in_silence(pledger: Run) -> None:
    code, out, said = pledger("verify", "--stream", "nope/")
    assert (code, out) == (3, [])
    assert "no stream has a name that begins with 'nope/': nothing was verified" in said


def test_a_topic_that_nobody_here_reads_ends_with_1(pledger: Run, log: Ledger) -> None:
    log.append("lamp/a", Body("lamp.was_called_so", 1, "{}"))
    for more in ((), ("--repair",)):
        code, out, said = pledger("verify", "--domain", "tests.lamp", *more)
        assert code == 1
        ((kind, topic, _, says, *_),) = [line.split("\t") for line in out]
        assert (kind, topic) == ("unknown topic", "lamp.was_called_so")
        assert "1 event has it, in 1 stream such as lamp/a" in says
        assert "was='lamp.was_called_so'" in says
    code, out, said = pledger("rebuild", "heads", "--domain", "tests.lamp")
    assert code == 0
    assert "lamp.was_called_so: 1 event has it" in said
