"""What a skip needs of a recorded stage is read apart, and is what the whole state says."""

from __future__ import annotations

from pathlib import Path

from ledger import Ledger
from ledger.builds import Dep, How, OpenStage, Out
from ledger.builds.completion import record
from ledger.builds.stage import StageCompleted
from projections.builds.copy import BuildCopy


def test_a_lock_is_a_part_of_the_state(log: Ledger, tmp_path: Path) -> None:
    stage = OpenStage("p", "a")
    outs = (Out("a.txt", "1" * 64), Out("b/", None, cached=False))
    deps = {"x": Dep("2" * 64, 7), "y": Dep("3" * 64)}
    stage.complete(
        StageCompleted(how=How.COMMITTED, input_hash="4" * 64, code={"command": "x"}, deps=deps, outs=outs)
    )
    record(log, [stage])
    with BuildCopy(log, tmp_path, "p") as copy:
        copy.catch_up()
        with copy.reading() as now:
            lock, whole = now.locks(["a", "none"])["a"], now.stages(["a"])["a"]
            assert now.locks(["none"]) == {}
    assert (lock.input_hash, lock.outs, lock.duration_ms) == (whole.input_hash, outs, 0)
    assert lock.generations == dict(whole.generations) == {"x": 7}
