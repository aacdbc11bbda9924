"""The table of commands: each is loaded when it is called, and stands in its panel; shells complete them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gateway.cli.commands import PANELS, PIPELINES, OnDemand
from gateway.cli.main import main
from ledger import Ledger
from tests.gateway.conftest import COMMAND, Ended, environment
from tests.lamp import LampRead

Pledger = Callable[..., Ended]


def test_every_command_is_where_its_panel_says() -> None:
    commands = OnDemand()
    for name in commands:
        assert commands[name].name == name
        assert commands[name].get_short_help_str(200) == PIPELINES.get(
            name, commands[name].get_short_help_str(200)
        )
        assert commands[name].get_short_help_str(200)
    assert len(commands) == sum(map(len, PANELS.values()))


def test_the_help_of_a_command_that_is_not_made_is_that_of_the_command() -> None:
    names = list(OnDemand())
    unmade, made = OnDemand(), OnDemand()
    for room in (30, 200):
        shown = {name: unmade.short_help(name, room) for name in names if name not in PIPELINES}
        assert shown == {name: made[name].get_short_help_str(room) for name in shown}


def test_help_shows_the_panels_in_order(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    shown = capsys.readouterr().out
    places = [shown.index(f"\n{title}:") for title in PANELS]
    assert places == sorted(places)
    assert all(f"\n  {name} " in shown for panel in PANELS.values() for name in panel)


@pytest.mark.parametrize(
    ("words", "needed", "others"),
    [
        (["tail"], "log", {"jobs.submit", "machines.show", "verify"}),
        (["jobs", "list"], "jobs.show", {"jobs.change"}),
    ],
)
def test_a_command_loads_no_other(words: list[str], needed: str, others: set[str]) -> None:
    code = (
        "import sys\nfrom gateway.cli.main import main\n"
        f"main({[*words, '--help']}); print([m for m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment(), capture_output=True, text=True, check=True
    )
    loaded = {name for name in done.stdout.splitlines()[-1].split("'") if name.startswith("gateway.")}
    assert f"gateway.cli.{needed}" in loaded
    assert not loaded & {f"gateway.cli.{one}" for one in others}


def test_a_word_that_is_no_command_is_answered_with_what_is_near(pledger: Pledger, log: Ledger) -> None:
    refused = pledger("tial")
    assert refused.code == 2
    assert "Did you mean 'tail'?" in refused.err


@pytest.mark.parametrize(
    ("words", "found"),
    [("pledger ta", "tail"), ("pledger jobs wa", "wait"), ("pledger history --rev", "--reverse")],
)
def test_a_shell_completes_commands_and_options(words: str, found: str) -> None:
    asked = {"_PLEDGER_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    done = subprocess.run(
        COMMAND, env=environment(**asked), capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stdout.split(), done.stderr) == (0, [found], "")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_a_shell(pledger: Pledger, shell: str) -> None:
    shown = pledger("completion", shell)
    assert (shown.code, shown.err) == (0, "")
    assert "_PLEDGER_COMPLETE" in shown.out
    assert pledger("completion", shell, "--json").objects == [{"shell": shell, "script": shown.out[:-1]}]
    assert pledger("completion", "cmd").code == 2


def test_bash_takes_the_script(tmp_path: Path, pledger: Pledger) -> None:
    script = tmp_path / "complete.sh"
    script.write_text(pledger("completion", "bash").out)
    done = subprocess.run(
        ["bash", "-c", f"source {script}; complete -p pledger"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, "_pledger_completion" in done.stdout) == (0, True), done.stderr


def test_a_list_in_a_pipe_is_whole(pledger: Pledger, log: Ledger) -> None:
    for nth in range(130):
        log.append(f"lamp/{nth:03}", LampRead())
    assert len(pledger("streams").rows) == 130
    assert len(pledger("streams", "--json").objects) == 130
    cut = pledger("streams", "--limit", "100")
    assert (len(cut.rows), "there are more" in cut.err) == (100, True)
    whole = pledger("streams", "--limit", "130")
    assert (len(whole.rows), whole.err) == (130, "")
