"""`pledger import` and `export`: what they say, how they end, and that a kill costs nothing."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path

from ledger import Body, Ledger
from tests.exchange.conftest import events
from tests.exchange.xes_files import SMALL, content
from tests.gateway.conftest import COMMAND, Ended, environment, eventually

Pledger = Callable[..., Ended]
Written = Callable[..., Path]


def test_xes_in_and_out(pledger: Pledger, written: Written, tmp_path: Path) -> None:
    path = str(written("volvo.xes", SMALL))
    dry = pledger("import", path, "--category", "incident", "--dry-run", "--json")
    assert dry.code == 0
    assert dry.objects[0]["recorded"] == 10
    assert "10 events would be recorded, 5 new streams" in dry.err
    done = pledger("import", path, "--category", "incident")
    assert done.code == 0
    assert ["streams", "5"] in done.rows
    assert [row[:3] for row in pledger("streams", "incident.log/").rows] == [["incident.log/volvo", "2", ""]]
    again = pledger("import", path, "--category", "incident")
    assert "0 events recorded, 0 new streams; 10 were recorded already" in again.err
    out = tmp_path / "out.xes.gz"
    assert pledger("export", str(out), "--category", "incident").code == 0
    assert content(out) == content(Path(path))


def test_the_log_goes_to_stdout(pledger: Pledger, log: Ledger) -> None:
    log.append("lamp/1", Body("lamp.made", 1, '{"a": "é"}'), actor="mina")
    out = pledger("export", "-", "--format", "jsonl")
    assert [line["data"] for line in out.objects] == [{"a": "é"}]
    assert out.err == "1 events written, up to position 1\n"
    assert pledger("export", "-", "--format", "csv", "--topic", "x", "-q").out.count("\n") == 1


def test_a_refusal_is_one_sentence(pledger: Pledger, written: Written) -> None:
    bad = str(written("bad.jsonl", "{\n"))
    said = pledger("import", bad)
    assert (said.code, said.out) == (2, "")
    assert said.err == (
        "pledger: bad.jsonl, line 1: it is not JSON (Expecting property name enclosed in double quotes, "
        "column 2); "
        "nothing of the file was recorded\n"
    )  # fmt: skip
    told = pledger("import", bad, "--json")
    assert told.error["error"] == "BadFile"
    assert told.error["parts"]["place"] == "line 1"
    path = str(written("a.xes", SMALL))
    for arguments, says in (
        ((path,), "give the category"),
        ((bad, "--category", "x"), "--category needs --stream-column, or --key-column"),
        ((str(written("a.csv", "")), "--time-column", "x"), "--time-column needs --stream-column"),
        ((str(written("a.txt", "")),), "give the format of a.txt"),
        ((path, "--format", "yaml"), "unknown format 'yaml'"),
        (("missing.jsonl",), "missing.jsonl: it cannot be read"),
    ):
        refused = pledger("import", *arguments)
        assert refused.code == 2
        assert says in refused.err
    assert "give --category" in pledger("export", "-", "--format", "xes").err
    assert pledger("import", path, "--category", "a").code == 0
    changed = pledger("import", str(written("a.xes", SMALL.replace("Queued", "Closed"))), "--category", "a")
    assert changed.code == 5


def _is_at(running: subprocess.Popen[bytes], log: Ledger, position: int) -> bool:
    return running.poll() is not None or log.bound() >= position


def test_a_killed_import_goes_on(dsn: str, log: Ledger, written: Written) -> None:
    many = 12_000
    lines = (
        json.dumps({"stream": f"a/{n % 50}", "version": n // 50 + 1, "topic": "a.b", "data": {"n": n}})
        for n in range(many)
    )
    path = written("many.jsonl", "\n".join(lines))
    command = [*COMMAND, "import", str(path), "-q"]
    for wanted in (1000, 5000):
        running = subprocess.Popen(command, env=environment(LEDGER_DSN=dsn), stdout=subprocess.PIPE)
        eventually(partial(_is_at, running, log, wanted), 60)
        running.kill()
        assert running.wait() in (-signal.SIGKILL, 0)
        running.communicate()
    done = subprocess.run(
        [*command, "--json"], env=environment(LEDGER_DSN=dsn), capture_output=True, timeout=120, check=True
    )
    told = json.loads(done.stdout)
    assert told["events"] == many
    assert told["there"] >= 5000
    assert told["there"] + told["recorded"] == many
    assert [json.loads(event.data or "")["n"] for event in events(log)] == list(range(many))
