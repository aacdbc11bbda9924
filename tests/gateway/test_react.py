"""`pledger react`: the reactor of readiness, and one's own."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from gateway.cli.errors import Code
from ledger import Ledger
from ledger.pipelines import LSMStateService
from tests.gateway.conftest import ROOT, Ended, eventually
from tests.lamp import LampRead

Pledger = Callable[..., Ended]
Start = Callable[..., subprocess.Popen[str]]
READY = "lsm.channel.ready"


def complete(log: Ledger, channel_id: int, strips: int = 2) -> None:
    """Make a channel whose strips are all compressed."""
    with LSMStateService(log).open_channel("brain_7", slice_id=1, channel_id=channel_id) as channel:
        for number in range(1, strips + 1):
            channel.get_or_create_strip(number).set_compressed()


def recorded(log: Ledger, category: str) -> list[tuple[str, int]]:
    """The streams of a category, and how many facts each has."""
    return [(info.stream, info.version) for info in log.streams(f"{category}/")]


def test_once_records_what_is_ready_and_ends(pledger: Pledger, log: Ledger) -> None:
    with LSMStateService(log).open_project("brain_7") as project:
        project.plan(strips_per_slice=2)
    complete(log, 1)
    told = json.loads(pledger("react", "--once", "--json").out)
    assert (told["reactor"], told["facts"], told["position"]) == ("readiness", 1, log.bound())
    assert recorded(log, READY) == [(f"{READY}/brain-7/1/1", 1)]
    complete(log, 2)
    ended = pledger("react", "--once")
    assert (ended.code, ended.err) == (0, "")
    assert dict(ended.rows)["facts"] == "1"
    assert int(dict(ended.rows)["seen"]) < told["seen"]  # it went on where the first one ended
    assert recorded(log, READY) == [(f"{READY}/brain-7/1/{n}", 1) for n in (1, 2)]
    assert dict(pledger("react", "--once").rows)["seen"] == "0"


def test_what_is_expected_without_a_plan(pledger: Pledger, log: Ledger) -> None:
    complete(log, 1)
    assert pledger("react", "--once", "--expect", "strips_per_slice=2").code == 0
    assert recorded(log, READY) == [(f"{READY}/brain-7/1/1", 1)]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_it_reacts_until_a_signal_and_keeps_its_position(
    started: Start, pledger: Pledger, log: Ledger, number: signal.Signals, code: int
) -> None:
    with LSMStateService(log).open_project("brain_7") as project:
        project.plan(strips_per_slice=2)
    react = started("react", "--json")
    for channel_id in (1, 2):
        complete(log, channel_id)
        eventually(lambda: len(recorded(log, READY)) == channel_id)  # noqa: B023
    assert react.poll() is None
    react.send_signal(number)
    out, said = react.communicate(timeout=60)
    assert (react.returncode, said) == (code, "reactor readiness runs; Ctrl-C ends it\n")
    assert json.loads(out)["facts"] == 2
    assert dict(pledger("react", "--once").rows)["seen"] == "0"


def test_a_reactor_of_ones_own(pledger: Pledger, log: Ledger) -> None:
    log.append("lamp/1", LampRead(value=1), LampRead(value=2))
    told = json.loads(pledger("react", "tests.gateway.reactions:echo", "--once", "--json").out)
    assert (told["reactor"], told["seen"], told["facts"]) == ("echo", 2, 2)
    assert recorded(log, "echo") == [("echo/1", 1), ("echo/2", 1)]


def test_a_module_of_the_present_folder_is_found_if_wanted(
    process: Callable[..., Ended], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = tmp_path / "here_only.py"
    module.write_text("from tests.gateway.reactions import echo", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    ended = process("react", "here_only:echo", "--once", PYTHONPATH=f"{ROOT}:.")
    assert (ended.code, ended.rows[0]) == (0, ["reactor", "echo"])


def test_what_is_no_reactor_is_said_so(pledger: Pledger, log: Ledger) -> None:
    module = "tests.gateway.reactions"
    for arguments, says in [
        (["nonsense"], "'nonsense' must be MODULE:NAME"),
        (
            ["no.such:thing"],
            "the module 'no.such' cannot be imported: No module named 'no'; `path` in pledger.toml, or",
        ),
        ([f"{module}:nowhere"], f"the module '{module}' has no function 'nowhere'"),
        ([f"{module}:NO_FUNCTION"], "has no function 'NO_FUNCTION'"),
        ([f"{module}:nothing"], f"{module}:nothing made a str; it must take the ledger and return a Reactor"),
        ([f"{module}:clumsy"], f"{module}:clumsy failed: RuntimeError: not made"),
        (
            [f"{module}:echo", "--expect", "strips_per_slice=1"],
            "`--expect` is only for the reactor of readiness",
        ),
        (["--expect", "strips_per_slice"], "must be NAME=N"),
        (["--expect", "strips_per_slice=-1"], "must be NAME=N"),
        (["--expect", "strips=1"], "'strips' is no total that readiness looks at"),
    ]:
        ended = pledger("react", "--once", *arguments)
        assert (ended.code, ended.out) == (2, ""), arguments
        assert says in ended.err
        assert ended.err.count("\n") == 1


def test_a_module_that_fails_is_no_defect_of_ours(
    pledger: Pledger, log: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "syntax_error.py").write_text("def (", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    said = "'syntax_error' cannot be imported: SyntaxError"
    assert said in pledger("react", "syntax_error:x").err
    assert said in pledger("show", "lamp/1", "--domain", "syntax_error").err


def test_what_a_reaction_fails_on_is_parked_shown_and_tried_again(pledger: Pledger, log: Ledger) -> None:
    position = log.append("lamp/1", LampRead(value=1)).last_position
    ended = pledger("react", "tests.gateway.reactions:broken", "--once", "--json")
    assert ended.code == Code.REFUSED
    assert f"leaves out lamp/1 from position {position} on: RuntimeError: no idea" in ended.err
    assert (ended.objects[0]["seen"], ended.objects[0]["parked"]) == (0, 1)
    assert pledger("react", "tests.gateway.reactions:broken", "--once").code == 0, "nothing new is wrong"
    (told,) = pledger("reactors", "list", "--json").objects
    assert (told["reactor"], told["position"], told["parked"]) == ("broken", position, 1)
    assert pledger("reactors", "list").rows[0][:3] == ["broken", str(position), str(position)]
    (parked,) = pledger("reactors", "parked", "broken", "--json").objects
    assert (parked["stream"], parked["position"], parked["topic"]) == ("lamp/1", position, "lamp.read")
    assert parked["error"] == f"RuntimeError: no idea what to do at {position}"
    assert pledger("reactors", "parked").rows[0][:3] == ["broken", "lamp/1", str(position)]
    (found,) = [
        check for check in pledger("doctor", "--json").objects[0]["checks"] if check["name"] == "reactors"
    ]
    assert (found["verdict"], "such as lamp/1" in found["says"]) == ("warn", True)
    assert 'pledger_reactor_parked{reactor="broken",schema="ledger"} 1.0' in pledger("views", "metrics").out
    assert pledger("reactors", "retry", "broken").code == Code.MISUSE
    assert pledger("reactors", "retry", "broken", "lamp/2").code == Code.NOT_FOUND
    assert pledger("reactors", "parked", "nobody").code == Code.NOT_FOUND
    assert pledger("reactors", "retry", "broken", "--all").rows == [["lamp/1", str(position)]]
    assert pledger("react", "tests.gateway.reactions:broken", "--once").code == Code.REFUSED
    assert pledger("reactors", "parked", "--json").objects[0]["tries"] == 2
    assert pledger("reactors", "retry", "broken", "lamp/1", "--json").objects == [
        {"reactor": "broken", "stream": "lamp/1", "position": position}
    ]
    assert pledger("reactors", "parked", "--json").objects[0]["again"] is True
