"""One append for what stages did: all of it or nothing, fenced by the claim, with true generations."""

from __future__ import annotations

from itertools import count

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from ledger import ClaimLost, GuardFailed, Ledger, StreamConflict
from ledger.builds import How, OpenOutput, OpenRun, OpenStage, Out, StageStatus
from ledger.builds.completion import record
from ledger.builds.inputs import consumed
from ledger.builds.output import OutputChanged
from ledger.builds.retention import beyond, drop_cache, drop_runs, orphans
from ledger.builds.run import Decided, StageFinished
from ledger.builds.stage import StageCompleted

A, B, C = "a" * 64, "b" * 64, "c" * 64


def completion(token: int | None = None, run: str | None = "r", **outs: str | None) -> StageCompleted:
    """A completion with these outputs, by path and hash."""
    made = tuple(Out(path, hash) for path, hash in outs.items())
    return StageCompleted(how=How.RAN, run=run, token=token, input_hash=C, outs=made)


def started(log: Ledger, run_id: str = "r", *order: str) -> OpenRun:
    run = OpenRun("p", run_id)
    run.start([], order)
    record(log, [], run)
    return run


def claimed(log: Ledger, name: str = "s", run: OpenRun | None = None) -> OpenStage:
    """A stage as its runner has it after the append of its claim."""
    stage = log.load(OpenStage, "p", name)
    stage.claim("host:7", run and run.run_id)
    record(log, [stage], run)
    return stage


def generations(log: Ledger, *paths: str) -> dict[str, tuple[int, str | None] | None]:
    outputs = {path: log.load(OpenOutput, "p", path) for path in paths}
    return {path: (o.version, o.state.hash) if o.version else None for path, o in outputs.items()}


def events(log: Ledger, run_id: str = "r") -> list[str]:
    return [one.topic for one in log.read(OpenRun.name_of("p", run_id))]


def test_a_completion_is_one_append(log: Ledger) -> None:
    run = started(log, "r", "s")
    stage = claimed(log, run=run)
    token = stage.state.token
    stage.complete(completion(token, **{"out/": A, "log": B}))
    run.finish_stage(StageFinished(stage="s", status=StageStatus.RAN, input_hash=C))
    appended = record(log, [stage], run)
    assert appended is not None
    topics = [one.topic for one in log.recorded_with(log.read(stage.name, after=stage.version - 1)[0])]
    assert sorted(topics) == [
        "build.output_changed",
        "build.output_changed",
        "build.stage_completed",
        "build.stage_finished",
    ]
    assert generations(log, "out", "log") == {"out": (1, A), "log": (1, B)}
    head = log.head(stage.name)
    assert head is not None
    assert (head.status, head.token) == ("completed", None)
    assert (stage.version, run.version) == (2, 2)
    assert record(log, [stage], run) is None


def test_w4_02_a_restore_and_a_commit_raise_the_generation_as_a_run_does(log: Ledger) -> None:
    for hash, how in ((A, How.RAN), (B, How.RAN), (A, How.RESTORED), (A, How.RAN), (B, How.COMMITTED)):
        stage = log.load(OpenStage, "p", "s")
        stage.complete(StageCompleted(how=how, input_hash=C, outs=(Out("out", hash),)))
        record(log, [stage])
    hashes = [
        one.event.hash
        for one in log.read(OpenOutput.name_of("p", "out"))
        if isinstance(one.event, OutputChanged)
    ]
    assert hashes == [A, B, A, B]


def test_w4_14_a_runner_whose_claim_was_taken_over_stores_nothing(log: Ledger) -> None:
    run = started(log)
    late = claimed(log, run=run)
    other = log.load(OpenStage, "p", "s")
    other.claim("host:8", take_over=True)
    record(log, [other])
    late.complete(completion(1, out=A))
    run.finish_stage(StageFinished(stage="s", status=StageStatus.RAN))
    before = log.bound()
    with pytest.raises(ClaimLost, match="the claim with token 1 was taken over"):
        record(log, [late], run)
    assert log.bound() == before
    other.complete(completion(2, out=B))
    record(log, [other])
    assert generations(log, "out") == {"out": (1, B)}


def test_w4_14_of_two_runners_one_gets_the_stage(log: Ledger) -> None:
    both = [log.load(OpenStage, "p", "s") for _ in range(2)]
    for nth, stage in enumerate(both):
        assert stage.claim(f"host:{nth}") == 1
    record(log, [both[0]])
    with pytest.raises(StreamConflict):
        record(log, [both[1]])


def test_an_output_that_another_writer_changes_meanwhile_is_compared_again(log: Ledger) -> None:
    stage = claimed(log)
    stage.complete(completion(1, out=A))
    first = log.append_all
    races = count()

    def raced(*args: object, **kwargs: object) -> object:
        if next(races) < 2:  # another writer comes between the comparison and the append
            log.append(OpenOutput.name_of("p", "out"), OutputChanged(hash=A))
        return first(*args, **kwargs)  # type: ignore[arg-type]

    log.append_all = raced  # type: ignore[method-assign, assignment]
    try:
        record(log, [stage])
    finally:
        log.append_all = first  # type: ignore[method-assign]
    assert generations(log, "out") == {"out": (2, A)}, "both are of the other writer: the content is the same"


@pytest.mark.parametrize(
    "known", [None, (1, A), (3, B), (9, B)], ids=["none", "old", "true", "of another ledger"]
)
def test_what_the_local_copy_has_of_an_output_is_only_a_hint(
    shared: Ledger, project: str, known: tuple[int, str] | None
) -> None:
    for hash in (A, C, B):
        shared.append(OpenOutput.name_of(project, "out"), OutputChanged(hash=hash))
    stage = shared.load(OpenStage, project, "s")
    stage.complete(completion(**{"out/": B}))
    record(shared, [stage], outputs={"out": known})
    output = shared.load(OpenOutput, project, "out")
    assert (output.version, output.state.hash) == (3, B)


def test_several_machines_write_to_one_run(log: Ledger) -> None:
    run, other = started(log), log.load(OpenRun, "p", "r")
    run.skip([Decided("a", "lock", "unchanged")])
    other.start_stage("b")
    record(log, [], run)
    record(log, [], other)
    other.finish_stage(StageFinished(stage="b", status=StageStatus.RAN))
    record(log, [], other)
    now = log.load(OpenRun, "p", "r")
    assert (now.version, now.state.skipped, now.state.ran, now.state.running) == (4, 1, 1, 0)
    now.end()
    record(log, [], now)
    run.end()
    with pytest.raises(GuardFailed):
        record(log, [], run)


def test_many_completions_of_one_imported_run_are_one_append(log: Ledger) -> None:
    run = OpenRun("p", "imported")
    run.start([], ["s0", "s1", "s2"])
    stages = [OpenStage("p", f"s{nth}") for nth in range(3)]
    for stage in stages:
        stage.complete(
            StageCompleted(how=How.IMPORTED, run="imported", input_hash=C, outs=(Out(stage.stage, A),))
        )
        run.finish_stage(StageFinished(stage=stage.stage, status=StageStatus.RAN, reason="imported"))
    run.end()
    appended = record(log, stages, run)
    assert appended is not None
    assert appended.last_position - appended.first_position == 10
    assert log.load(OpenRun, "p", "imported").state.ran == 3


def test_w4_04_an_output_that_changed_after_it_was_consumed_has_no_generation(log: Ledger) -> None:
    made = log.load(OpenStage, "p", "up")
    made.complete(completion(out=A))
    record(log, [made])
    eaten = {"out": A}  # the downstream stage hashes it, and runs
    made.complete(completion(out=B))
    record(log, [made])
    assert consumed(eaten, generations(log, "out"))["out"] == (A, None)
    assert consumed({"out": B}, generations(log, "out"))["out"] == (B, 2)


def test_w4_07_stages_with_colons_and_slashes_are_apart(log: Ledger) -> None:
    for stage, dep in (("a", "b:c"), ("a:b", "c"), ("a/b", "c")):
        opened = log.load(OpenStage, "p", stage)
        opened.record_generations({dep: 1})
        record(log, [opened])
    found = {stage: dict(log.load(OpenStage, "p", stage).state.generations) for stage in ("a", "a:b", "a/b")}
    assert found == {"a": {"b:c": 1}, "a:b": {"c": 1}, "a/b": {"c": 1}}


# Retention


def test_w4_05_runs_are_dropped_in_one_append_with_an_audit(log: Ledger) -> None:
    ids = [f"r{nth}" for nth in range(5)]
    for run_id in ids:
        run = started(log, run_id)
        if run_id != "r1":
            run.end()
            record(log, [], run)
    newest_first = ids[::-1]
    before = log.bound()
    assert drop_runs(log, "p", beyond(newest_first, 2), 2).number == 2, "r1 goes on, and stays"
    dropped = [one for one in log.log(before, log.bound()) if one.topic == "build.run_dropped"]
    assert [one.stream for one in dropped] == [OpenRun.name_of("p", "r0"), OpenRun.name_of("p", "r2")]
    assert len(log.recorded_with(dropped[0])) == 2
    assert drop_runs(log, "p", beyond(newest_first, 2), 2) == (0, None)
    assert events(log, "r0") == ["build.run_started", "build.run_ended", "build.run_dropped"]


def test_a_retention_keeps_at_least_one(log: Ledger) -> None:
    assert beyond(["b", "a"], 2) == []
    for wrong in (0, -1, True, 1.5):
        with pytest.raises(ValueError, match="retention"):
            beyond([], wrong)  # type: ignore[arg-type]


def test_w4_05_entries_of_commits_are_never_orphans(log: Ledger) -> None:
    entries = {"r1": 2, "gone": 3, "__committed__": 4}
    assert orphans(entries, ["r1"]) == {"gone": 3}
    assert drop_cache(log, "p", orphans(entries, ["r1"])).number == 3
    assert events(log, "gone") == ["build.cache_dropped"]
    assert log.load(OpenRun, "p", "gone").state.status is None


# The law of generations, against a model

paths = st.sampled_from(["x", "y"])
hashes = st.sampled_from([A, B, None])


class Generations(RuleBasedStateMachine):
    """Outputs under completions and increments, beside a model: the list of contents that each has had."""

    log: Ledger
    numbers = count()

    def __init__(self) -> None:
        super().__init__()
        self.project = f"law{next(self.numbers)}"
        self.model: dict[str, list[str | None]] = {"x": [], "y": []}

    def note(self, path: str, hash: str | None) -> None:
        had = self.model[path]
        if hash is None or not had or had[-1] != hash:
            had.append(hash)

    @rule(outs=st.dictionaries(paths, hashes, min_size=1), how=st.sampled_from(How))
    def complete(self, outs: dict[str, str | None], how: How) -> None:
        stage = self.log.load(OpenStage, self.project, "s")
        made = tuple(Out(path, hash) for path, hash in outs.items())
        stage.complete(StageCompleted(how=how, input_hash=C, outs=made))
        record(self.log, [stage])
        for path, hash in outs.items():
            self.note(path, hash)

    @rule(path=paths)
    def increment(self, path: str) -> None:
        with self.log.open(OpenOutput, self.project, path) as output:
            output.change(None)
        self.note(path, None)

    @rule(outs=st.dictionaries(paths, hashes, min_size=1))
    def lose_the_claim(self, outs: dict[str, str | None]) -> None:
        late = self.log.load(OpenStage, self.project, "s")
        token = late.claim("late")
        record(self.log, [late])
        other = self.log.load(OpenStage, self.project, "s")
        released = other.claim("other", take_over=True)
        record(self.log, [other])
        late.complete(completion(token, **outs))
        with pytest.raises(ClaimLost):
            record(self.log, [late])
        other.release(released)
        record(self.log, [other])

    @invariant()
    def a_generation_is_the_number_of_contents_so_far(self) -> None:
        for path, had in self.model.items():
            output = self.log.load(OpenOutput, self.project, path)
            assert (output.version, output.state.hash) == (len(had), had[-1] if had else None)


def test_a_generation_changes_if_and_only_if_the_content_does(log: Ledger) -> None:
    class Here(Generations):
        pass

    Here.log = log
    once = settings(
        max_examples=8, stateful_step_count=8, deadline=None, suppress_health_check=list(HealthCheck)
    )
    Here.TestCase.settings = once
    Here.TestCase("runTest").runTest()
