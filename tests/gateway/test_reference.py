"""The reference, the help, and how soon they are there."""

from __future__ import annotations

import subprocess
import sys
from functools import cache
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from gateway.cli.errors import MEANING
from gateway.cli.main import app
from gateway.cli.reference import reference, walk
from tests.gateway.conftest import ROOT, environment

ROOT_COMMAND: Any = typer.main.get_command(app)
COMMANDS = dict(walk(ROOT_COMMAND))
QUEUES = ("list", "pause", "resume")
OF_A_PIPELINE = ("show", "reset", "mark", "plan", "report")
HEAVY = ("ledger", "projections", "consumers", "psycopg", "pydantic", "rich", "eventsourcing")


@cache
def page() -> str:
    """The page of the reference, made once."""
    return reference()


def test_the_reference_is_fresh() -> None:
    written = (ROOT / "docs/reference/cli.md").read_text(encoding="utf-8")
    assert written == page(), "write it anew: python -m gateway.cli.reference > docs/reference/cli.md"


def test_these_are_the_commands() -> None:
    names = ["init", "doctor", "streams", "history", "show", "tail", "react"]
    names += [f"reactors {name}" for name in ("list", "parked", "retry")]
    names += ["log", "append", "status", "completion"]
    names += ["changes", "import", "export", "diff", "blame", "why", "states", "dwell", "rebuild", "verify"]
    names += [
        f"views {name}" for name in ("follow", "metrics", "parked", "retry", "attach", "detach", "feed")
    ]
    names += ["kafka broker", "kafka check", "kafka schema"]
    names += [f"relay {name}" for name in ("run", "status", "verify", "replay")]
    names += [f"consume {name}" for name in ("run", "list", "rewind")]
    names += [f"dlq {name}" for name in ("list", "show", "redrive", "discard")]
    names += [f"as-of {name}" for name in ("make", "list", "drop")]
    names += [f"builds {name}" for name in ("run", "why", "status", "history", "show", "import", "gc")]
    names += [f"builds {name}" for name in ("verify", "rebuild", "reset-fingerprints")]
    names += [f"machines {name}" for name in ("list", "show", "diagram", "check", "adopt", "timeouts")]
    names += [f"jobs {name}" for name in ("submit", "list", "show", "result", "events", "wait")]
    names += [f"jobs {name}" for name in ("cancel", "retry", "comment", "describe")]
    names += ["worker run", "worker list", "reaper run", *(f"queues {name}" for name in QUEUES)]
    names += ["operations limit", "operations list"]
    names += [f"runs {name}" for name in ("list", "show", "history", "cancel", "import", "services")]
    names += ["runs rotate-keys"]
    names += ["serve", *(f"token {name}" for name in ("add", "list", "revoke"))]
    names += [f"dead {name}" for name in ("list", "show", "redrive", "discard")]
    names += [f"schedules {n}" for n in ("set", "list", "show", "pause", "resume", "remove", "next")]
    names += [f"{pipeline} {name}" for pipeline in ("lsm", "psoct") for name in OF_A_PIPELINE]
    assert sorted(COMMANDS) == sorted(f"pledger {name}" for name in names)


def test_the_examples_of_the_help_are_code_in_the_reference() -> None:
    text = page()
    assert "\b" not in text
    assert (
        "Examples:\n\n    pledger lsm plan brain_7 --strips-per-slice 4\n    pledger lsm plan brain_7\n\n"
        in text
    )


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_command_is_helped_and_listed(name: str) -> None:
    command = COMMANDS[name]
    text = page()
    assert command.help
    assert f"## {name}\n" in text
    assert "--json" in [option for parameter in command.params for option in parameter.opts]
    for parameter in command.params:
        assert parameter.help, f"{name} {parameter.name} has no help"
        assert parameter.help in text
    shown = CliRunner().invoke(app, [*name.split()[1:], "--help"])
    assert shown.exit_code == 0
    assert command.help.splitlines()[0] in " ".join(shown.stdout.split()), "it may be broken over two lines"


def test_help_and_reference_have_every_exit_code() -> None:
    shown = CliRunner().invoke(app, ["--help"]).stdout
    for code, meaning in MEANING.items():
        assert f"{code.value}  {meaning}" in shown
        assert f"| {code.value} | `{code.name}` | {meaning} |" in page()


@pytest.mark.parametrize("argument", ["--version", "--help"])
def test_what_is_asked_of_the_parser_loads_nothing_heavy(argument: str) -> None:
    code = (
        "import sys\nfrom gateway.cli.main import main\n"
        f"assert main([{argument!r}]) == 0\n"
        f"print([name for name in {HEAVY} if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=environment(),
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stderr == "[]\n"


@pytest.mark.parametrize("words", ["streams", "react", "lsm mark"])
def test_the_usage_brackets_what_may_be_left_out_once(words: str) -> None:
    usage = CliRunner().invoke(app, [*words.split(), "--help"]).stdout.split("\n\n")[0]
    assert "[[" not in usage
    (argument,) = [
        a for a in COMMANDS[f"pledger {words}"].params if "Argument" in type(a).__name__ and not a.required
    ]
    assert f"[{argument.metavar}]" in usage
