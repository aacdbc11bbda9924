"""`pledger lsm|psoct reset` (spec S0-81)."""

from __future__ import annotations

import json
import os
import pty
import subprocess
from collections.abc import Callable
from typing import Any

import pytest

from ledger import Ledger
from ledger.pipelines import LSM, OCT, LSMStateService, Pipeline
from tests.gateway.conftest import Ended, environment, forked
from tests.gateway.projects import at, elsewhere, fill, leaves, options, pipelines

Pledger = Callable[..., Ended]


@pipelines
@pytest.mark.parametrize(("ids", "counts"), [((1,), (1, 2, 6)), ((1, 2), (0, 1, 3)), ((1, 2, 3), (0, 0, 1))])
def test_a_part_is_deleted_with_all_below_it(
    pledger: Pledger, log: Ledger, pipeline: Pipeline, ids: tuple[int, ...], counts: tuple[int, ...]
) -> None:
    store = fill(log, pipeline)
    ended = pledger(pipeline.name, "reset", "brain_7", *options(pipeline, *ids), "--yes")
    assert (ended.code, ended.err) == (0, "")
    told = [("deleted", sum(counts)), *zip(pipeline.names, counts, strict=True)]
    assert ended.rows == [[name, str(count)] for name, count in told]
    assert len(leaves(store, pipeline)) == 12 - counts[-1]
    again = pledger(pipeline.name, "reset", "brain_7", *options(pipeline, *ids))
    where = ", ".join(f"{name}={number}" for name, number in zip(pipeline.names, ids, strict=False))
    assert (again.code, again.out) == (3, "")
    assert again.err == f"pledger: Target does not exist in project state: {where}\n"


@pipelines
def test_all_slices_are_deleted_and_the_project_stays(
    pledger: Pledger, log: Ledger, pipeline: Pipeline
) -> None:
    store = fill(log, pipeline)
    before = log.bound()
    ended = pledger(pipeline.name, "reset", "Brain_7", "--all", "--json", "--yes")
    counts = dict(zip(pipeline.names, (2, 4, 12), strict=True))
    assert json.loads(ended.out) == {"project": "Brain_7", "deleted": 18, **counts}
    assert len(leaves(store, pipeline)) == 0
    assert at(store, pipeline).exists
    assert log.bound() == before + 18 + 2  # a fact each, and the project is touched for each slice
    empty = pledger(pipeline.name, "reset", "Brain_7", "-a")
    assert (empty.code, empty.out) == (3, "")
    assert "Target does not exist in project state: project='Brain_7' has no slices" in empty.err


def test_what_was_deleted_is_in_the_history(pledger: Pledger, log: Ledger) -> None:
    fill(log, LSM)
    pledger("lsm", "reset", "brain_7", "--slice", "1", "--actor", "ann", "-y")
    last = pledger("history", "lsm.strip/brain-7/1/2/3", "--json").objects[-1]
    assert (last["topic"], last["actor"]) == ("lsm.strip.deleted", "ann")
    with LSMStateService(log).open_strip("brain-7", slice_id=1, channel_id=2, strip_id=3) as strip:
        assert strip.state.incarnation == 2


@pipelines
def test_a_dry_run_lists_what_would_go(pledger: Pledger, log: Ledger, pipeline: Pipeline) -> None:
    store = fill(log, pipeline)
    before = log.bound()
    ended = pledger(pipeline.name, "reset", "brain_7", *options(pipeline, 2, 1), "--dry-run")
    _, middle, leaf = pipeline.names
    below = [[leaf, "2", "1", number, "pending"] for number in "123"]
    assert ended.rows == [[middle, "2", "1", "", "pending"], *below]
    assert ended.err == "4 would be deleted; nothing was deleted\n"
    shown = json.loads(pledger(pipeline.name, "reset", "brain_7", "--all", "--dry-run", "--json").out)
    assert (shown["deleted"], shown[leaf], len(shown["items"])) == (0, 12, 18)
    assert (len(leaves(store, pipeline)), log.bound()) == (12, before)


BAD_USE: list[tuple[list[str], int, str]] = [
    ([], 2, "`--slice` is required.\n"),
    (["--channel", "1"], 2, "`--slice` is required.\n"),
    (["--slice", "1", "--strip", "1"], 2, "`--channel` is required when `--strip` is provided."),
    (["--all", "--slice", "1"], 2, "`--all` and `--slice` exclude each other"),
    (["-a", "--strip", "1"], 2, "`--all` and `--strip` exclude each other"),
    (["--slice", "-1"], 2, "--slice"),
    (["--slice", str(2**63)], 2, "below 2**63"),
    (["--slice", "1", "--timeout", "nan"], 2, "--timeout"),
    (["--slice", "9"], 3, "Target does not exist in project state: slice=9"),
    (["--slice", "1", "--channel", "9"], 3, "Target does not exist in project state: slice=1, channel=9"),
]


def test_bad_use_deletes_nothing(pledger: Pledger, log: Ledger) -> None:
    fill(log, LSM)
    before = log.bound()
    for arguments, code, says in BAD_USE:
        ended = pledger("lsm", "reset", "Brain_7", *arguments)
        assert (ended.code, ended.out) == (code, ""), arguments
        assert says in ended.err
        assert ended.err.count("\n") == 1
    assert log.bound() == before


@pipelines
def test_a_project_that_nobody_made_is_not_made_by_a_reset(
    pledger: Pledger, log: Ledger, pipeline: Pipeline
) -> None:
    for arguments in (["--all"], ["--slice", "1"], ["--all", "--dry-run"]):
        ended = pledger(pipeline.name, "reset", "brain_8", *arguments)
        assert (ended.code, ended.out) == (3, "")
        assert "Target does not exist in project state: " in ended.err
    assert log.streams() == []


def test_the_pipelines_of_one_project_are_apart(pledger: Pledger, log: Ledger) -> None:
    stores = fill(log, LSM), fill(log, OCT)
    assert pledger("psoct", "reset", "brain_7", "--all", "--yes").code == 0
    assert (len(leaves(stores[0], LSM)), len(leaves(stores[1], OCT))) == (12, 0)


def test_a_reset_may_wait_for_ever(pledger: Pledger, log: Ledger) -> None:
    fill(log, LSM)
    assert pledger("lsm", "reset", "brain_7", "--slice", "1", "--timeout", "inf", "--yes").code == 0


def test_a_reset_waits_for_who_has_a_part_open(pledger: Pledger, log: Ledger) -> None:
    store = fill(log, LSM)
    strip = LSMStateService(log).open_strip("brain_7", slice_id=2, channel_id=1, strip_id=1)
    with elsewhere(strip):
        ended = pledger("lsm", "reset", "brain_7", "--slice", "1", "--timeout", "0.1", "--json", "--yes")
    assert (ended.code, ended.out, ended.error["error"]) == (5, "", "LockTimeout")
    assert len(leaves(store, LSM)) == 12


@pytest.mark.parametrize(("answer", "code", "strips"), [("n\n", 1, 12), ("y\n", 0, 6), ("\x04", 130, 12)])
def test_a_person_is_asked(dsn: str, log: Ledger, answer: str, code: int, strips: int) -> None:
    store = fill(log, LSM)
    shown, ended = asked(dsn, answer, "lsm", "reset", "brain_7", "--slice", "1")
    assert "Delete 1 x slice, 2 x channel, 6 x strip of 'brain_7'? [y/N]" in shown
    assert (ended, len(leaves(store, LSM))) == (code, strips)
    assert "Traceback" not in shown


def test_a_person_who_said_yes_before_is_not_asked(dsn: str, log: Ledger) -> None:
    store = fill(log, LSM)
    shown, code = asked(dsn, "", "lsm", "reset", "brain_7", "--slice", "1", "--yes")
    assert (code, len(leaves(store, LSM))) == (0, 6)
    assert "?" not in shown


@pipelines
@pytest.mark.parametrize("way", [("--slice", "1"), ("--all",)])
def test_without_a_terminal_nothing_is_deleted_unless_it_is_said(
    pledger: Pledger, log: Ledger, pipeline: Pipeline, way: tuple[str, ...]
) -> None:
    fill(log, pipeline)
    before = log.bound()
    ended = pledger(pipeline.name, "reset", "brain_7", *way)
    assert (ended.code, ended.out, log.bound()) == (2, "", before)
    assert "nothing was deleted" in ended.err
    assert "`--yes`" in ended.err
    assert pledger(pipeline.name, "reset", "brain_7", *way, "--json").error["exit"] == 2
    assert pledger(pipeline.name, "reset", "brain_7", *way, "--yes").code == 0
    assert log.bound() > before


def asked(dsn: str, answer: str, *arguments: str) -> tuple[str, int]:
    """Run a command on a terminal, with this typed; what it shows, and how it ends."""
    ours, theirs = pty.openpty()
    ends: dict[str, Any] = {"stdin": theirs, "stdout": theirs, "stderr": theirs}
    settings = environment(LEDGER_DSN=dsn, TERM="xterm", NO_COLOR="1")
    command = subprocess.Popen([*forked(), *arguments], env=settings, start_new_session=True, **ends)
    os.close(theirs)
    shown = b""
    if answer:
        while b"[y/N]" not in shown:
            shown += os.read(ours, 4096)
        os.write(ours, answer.encode())
    while True:
        try:
            more = os.read(ours, 4096)
        except OSError:  # how Linux says that the other end is closed
            break
        if not more:
            break
        shown += more
    os.close(ours)
    return shown.decode(), command.wait(60)
