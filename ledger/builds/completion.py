"""
The append of what stages did: each stage's end, the facts of its run, and the changes of its outputs, in one.

A crash leaves all of it or nothing (W4-01). A stage that was claimed is guarded by the token of its claim, so
that a runner whose lease ran out stores nothing (W4-14). Each output is expected at the version at which its
content was compared: its generation changes exactly when its content does (W4-02).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from ..errors import ClaimLost, GuardFailed, StreamConflict
from ..log.append import Append, Appended, Exact, Guard, append_of
from ..log.ledger import Ledger
from .output import OpenOutput, Output
from .run import OF_STAGES, OpenRun, RunStatus
from .stage import OpenStage, StageCompleted

ATTEMPTS: Final = 10
"""How often an append is decided while other writers change the same outputs."""
Known = Mapping[str, tuple[int, str | None] | None]
"""Generation and hash of outputs, by the path of their streams; None: the output has none yet."""
_GOES_ON: Final = Guard(frozenset({RunStatus.IN_PROGRESS}))


def record(
    ledger: Ledger,
    stages: Sequence[OpenStage],
    run: OpenRun | None = None,
    *,
    outputs: Known = MappingProxyType({}),
    command: str | None = None,
) -> Appended | None:
    """Append the news of stages of one project and of their run, with the changes of the outputs, in one.

    None where there are no news. outputs: what the local copy has of outputs; one that is missing in it, or
    out of date there, is read from the log. command: makes a repeat of the call safe. A run that goes on is
    expected to go on still, at any version, so that several machines write to one run. The head takes the
    run's state only if nobody else wrote to it; else readers fold the events.
    Raises ClaimLost for a stage whose claim is over, GuardFailed for a run that is over, StreamConflict where
    another writer came first; nothing is stored then.
    """
    ours = [_end(stage) for stage in stages if stage.news]
    if run is not None and run.news:
        ours.append(_of_run(run))
    if not ours:
        return None
    appended = _append(ledger, ours, stages, outputs, command)
    for stage in stages:
        stage.settle(appended.recorded_at)
    if run is not None:
        run.settle(appended.recorded_at)
    return appended


def _append(
    ledger: Ledger, ours: Sequence[Append], stages: Sequence[OpenStage], known: Known, command: str | None
) -> Appended:
    """Append with the changes of the outputs; once more where another writer changed one of them."""
    for nth in range(1, ATTEMPTS + 1):
        outputs = _changed(ledger, stages, known if nth == 1 else {})
        try:
            return ledger.append_all([*ours, *map(_of_output, outputs)], command=command)
        except StreamConflict as conflict:
            if nth == ATTEMPTS or conflict.stream not in {output.name for output in outputs}:
                raise
        except GuardFailed as failed:
            claims = {stage.name: stage.ended_claim for stage in stages}
            if failed.stream not in claims:
                raise
            raise ClaimLost(failed.stream, f"the claim with token {claims[failed.stream]}") from failed
    raise AssertionError("the last attempt raises")


def _changed(ledger: Ledger, stages: Sequence[OpenStage], known: Known) -> list[OpenOutput]:
    """The outputs of the completions in the news, with their changes."""
    made = [
        (OpenOutput(stage.project, output_key(out.path)), out.hash, stage.stage, fact.run)
        for stage in stages
        for fact in stage.news
        if isinstance(fact, StageCompleted)
        for out in fact.outs
    ]
    opened = {output.name: output for output, *_ in made}
    unknown = [output for output in opened.values() if output.path not in known]
    if unknown:
        ledger.load_each(unknown)
    for output in opened.values():
        if (found := known.get(output.path)) is not None:
            output.restore(Output(hash=found[1]), found[0])
    for output, hash, stage, run in made:
        opened[output.name].change(hash, stage=stage, run=run)
    return [*opened.values()]


def output_key(path: str) -> str:
    """The key of an output's stream: its path without the slash that marks a directory."""
    return path.rstrip("/") or "/"


def _end(stage: OpenStage) -> Append:
    token = stage.ended_claim
    return append_of(stage) if token is None else stage.under_lease(token)


def _of_run(run: OpenRun) -> Append:
    append = append_of(run)
    at_any_version = run.version > 0 and isinstance(run.news[0], OF_STAGES)
    return append._replace(expected=_GOES_ON) if at_any_version else append


def _of_output(output: OpenOutput) -> Append:
    """The append of its change, or the check that its content is still this one."""
    return append_of(output) if output.news else Append(output.name, [], Exact(output.version))
