"""
What builds cost: reading the state of a build, deciding, recording, and a run in which nothing is to be done.

    read_vs_lmdb        point reads of the local copy (a generation, the hash of a file), in time, beside the
                        original's own methods on plain LMDB in its layout
    skip_10000_s        seconds to decide that 10,000 unchanged stages are skipped, each with a source file,
                        an output, and nine in ten a dependency on another stage's output
    record_vs_append    completions recorded durably, in events a second (three each: the stage, its run, its
                        output), beside appends of one event with a head, by 1 and by 4 processes
    copy_lag_p99_ms     from the commit of a completion to its key being in the copy of another process
    noop_vs_dvc, _doit  a run of 1,000 unchanged stages as a whole process, in time, beside the same graph in
                        DVC and doit, which --tools has, or pip installs there

Ratios are of times or rates, ours by theirs.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import multiprocessing
import os
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import lmdb
import psycopg

import ledger
from consumers.builds import StateDB
from consumers.builds.hashing import Identity, Looked
from consumers.builds.plan import Plan, plan
from consumers.builds.project import Project, opened
from ledger import Append, Body, Exact, Ledger
from ledger.builds import OpenRun, OpenStage, StageStatus
from ledger.builds.completion import record
from ledger.builds.inputs import consumed
from ledger.builds.run import StageFinished
from ledger.builds.stage import How, Out, StageCompleted
from ledger.embedded import throwaway
from ledger.log.install import init
from projections.builds import BuildCopy
from tests.benchmarks.append import BODY, STATE, TOPIC
from tests.benchmarks.rounds import Turn, median, rates, ratio

PARTS = ("read", "record", "lag", "skip", "noop")
STREAMS: Final = 20
HASH: Final = hashlib.sha256(b"").hexdigest()


# Reading, beside the original's layout


class Original:
    """The original's own point reads, as its document writes them."""

    def __init__(self, folder: Path) -> None:
        self.env = lmdb.open(str(folder), map_size=1 << 30)

    def fill(self, paths: list[Path]) -> None:
        with self.env.begin(write=True) as writer:
            for path in paths:
                stat = path.stat()
                value = struct.pack(">QQQ", stat.st_mtime_ns, stat.st_size, stat.st_ino) + HASH.encode()
                writer.put(b"hash:" + str(path.resolve()).encode(), value)
                writer.put(b"gen:" + os.path.normpath(path.absolute()).encode(), struct.pack(">Q", 1))

    def get(self, path: Path, stat: os.stat_result) -> str | None:
        with self.env.begin() as reader:
            value = reader.get(b"hash:" + str(path.resolve()).encode())
        if value is None:
            return None
        mtime, size, inode = struct.unpack(">QQQ", value[:24])
        if (mtime, size, inode) != (stat.st_mtime_ns, stat.st_size, stat.st_ino):
            return None
        return bytes(value[24:]).decode()

    def get_generation(self, path: Path) -> int | None:
        with self.env.begin() as reader:
            value = reader.get(b"gen:" + os.path.normpath(path.absolute()).encode())
        return None if value is None else int(struct.unpack(">Q", value)[0])


def reads(log: Ledger, root: Path, rounds: int) -> tuple[dict[str, float], dict[str, float]]:
    """Microseconds of a point read, ours by the original's."""
    paths = [root / f"out{nth:04}" for nth in range(1000)]
    for path in paths:
        path.touch()
    stats = [path.stat() for path in paths]
    (root / "plain").mkdir()
    theirs = Original(root / "plain")
    theirs.fill(paths)
    times: dict[str, list[float]] = {}
    with StateDB(root / "state.db", log=log, project="reads", root=root) as ours:
        ours.save_many([(path, stat, HASH) for path, stat in zip(paths, stats, strict=True)])
        ours.apply_deferred_writes("s", [str(path) for path in paths], {"increment_outputs": True})

        def each(what: str, read: Callable[[], list[Any]], wanted: Any) -> None:
            begin = time.perf_counter()
            found = read()
            times.setdefault(what, []).append((time.perf_counter() - begin) / len(paths) * 1e6)
            assert found == [wanted] * len(paths), what

        pairs = [*zip(paths, stats, strict=True)]
        for _ in range(rounds * 5):
            each("generation_theirs", lambda: [theirs.get_generation(path) for path in paths], 1)
            each("generation_ours", lambda: [ours.get_generation(path) for path in paths], 1)
            each("hash_theirs", lambda: [theirs.get(*pair) for pair in pairs], HASH)
            each("hash_ours", lambda: [ours.get(*pair) for pair in pairs], HASH)
    theirs.env.close()
    return {
        "read_vs_lmdb_generation": ratio(times, "generation_ours", "generation_theirs"),
        "read_vs_lmdb_hash": ratio(times, "hash_ours", "hash_theirs"),
    }, {f"{what}_us": round(statistics.median(values), 2) for what, values in times.items()}


# Recording


@dataclass(frozen=True)
class RecordCrew:
    """Appends of one event with a head; and completions of stages, as a runner records them."""

    dsn: str
    mark: str

    def __call__(self, writer: int) -> Mapping[str, Turn]:
        log = ledger.connect(self.dsn, create=False)
        return {"append": self.append(log, writer), "record": self.record(log, writer)}

    def append(self, log: Ledger, writer: int) -> Turn:
        body, state = Body(TOPIC, 1, json.dumps(BODY)), json.dumps(STATE)

        def turn(number: int) -> int:
            stream, version = f"strip/{self.mark}/{writer}/{number % STREAMS}", number // STREAMS
            log.append_all([Append(stream, [body], Exact(version), status="running", state=state,
                                   base=version, state_schema=1)])  # fmt: skip
            return 1

        return turn

    def record(self, log: Ledger, writer: int) -> Turn:
        run = OpenRun(self.mark, f"run{writer}")
        run.start()
        record(log, [], run)
        stages = [OpenStage(self.mark, f"stage{writer}-{nth}") for nth in range(STREAMS)]

        def turn(number: int) -> int:
            stage = stages[number % STREAMS]
            hash = hashlib.sha256(b"%d" % number).hexdigest()
            stage.complete(
                completion(stage.stage, run.run_id, {"in.txt": HASH}, {f"{stage.stage}.out": hash})
            )
            run.finish_stage(StageFinished(stage=stage.stage, status=StageStatus.RAN, input_hash=HASH))
            record(log, [stage], run)
            return 3

        return turn


def completion(stage: str, run: str, deps: Mapping[str, str], outs: Mapping[str, str]) -> StageCompleted:
    """A completion as a runner makes it."""
    return StageCompleted(
        how=How.RAN, run=run, input_hash=HASH, code={"command": f"python {stage}.py"}, params={"k": 3},
        deps=consumed(deps, {}), outs=tuple(Out(path, hash) for path, hash in outs.items()),
        reason="Input dependencies changed", duration_ms=12,
    )  # fmt: skip


def records(dsn: str, rounds: int, seconds: float) -> tuple[dict[str, float], dict[str, float]]:
    """Rates of recording, by 1 and by 4 processes."""
    ratios, figures = {}, {}
    for writers in (1, 4):
        found = rates(RecordCrew(dsn, f"p{uuid4().hex[:6]}"), ("append", "record"), writers, rounds, seconds)
        ratios[f"record_vs_append_{writers}"] = ratio(found, "record", "append")
        figures[f"appends_{writers}_per_s"] = median(found["append"])
        figures[f"completions_{writers}_per_s"] = round(median(found["record"]) / 3, 1)
    return ratios, figures


# The lag of the copy


def _completions(dsn: str, project: str, rate: float, seconds: float, pipe: Any) -> None:
    """Complete stages at a steady rate, and send when each was committed."""
    with ledger.connect(dsn, create=False) as log:
        run = OpenRun(project, "lag")
        run.start()
        record(log, [], run)
        pipe.send("ready")
        pipe.recv()
        begin = time.monotonic()
        committed = {}
        for number in range(int(rate * seconds)):
            time.sleep(max(0.0, begin + number / rate - time.monotonic()))
            stage = OpenStage(project, f"s{number}")
            stage.complete(completion(stage.stage, "lag", {"in.txt": HASH}, {f"{number}.out": HASH}))
            run.finish_stage(StageFinished(stage=stage.stage, status=StageStatus.RAN, input_hash=HASH))
            record(log, [stage], run)
            committed[f"{number}.out"] = time.monotonic()
        pipe.send(committed)


def lag(dsn: str, root: Path, seconds: float) -> tuple[dict[str, float], dict[str, float]]:
    """Milliseconds from a commit to its key, at 100 completions a second."""
    here, there = multiprocessing.get_context("spawn").Pipe()
    project, rate = f"lag{uuid4().hex[:6]}", 100.0
    writer = multiprocessing.get_context("spawn").Process(
        target=_completions, args=(dsn, project, rate, seconds, there)
    )
    writer.start()
    here.recv()
    seen: dict[str, float] = {}
    with ledger.connect(dsn, create=False) as log, BuildCopy(log, root / "lag", project) as copy:
        copy.catch_up()
        with copy.follow():
            here.send("go")
            number, total = 0, int(rate * seconds)
            while number < total:
                if copy.generation(f"{number}.out") is None:
                    time.sleep(0.0005)
                    continue
                seen[f"{number}.out"] = time.monotonic()
                number += 1
        committed = here.recv()
    writer.join()
    lags = sorted(1000 * (seen[path] - at) for path, at in committed.items())
    return {
        "copy_lag_p50_ms": round(lags[len(lags) // 2], 2),
        "copy_lag_p99_ms": round(lags[len(lags) * 99 // 100], 2),
    }, {}


# Deciding, and a run in which nothing is to be done


def project_file(name: str, stages: int) -> str:
    """A build file of chains of ten stages, each with a source file of its own."""
    lines = [f'[project]\nname = "{name}"']
    for nth in range(stages):
        deps = [f"in/{nth}"] + ([f"out/{nth - 1}"] if nth % 10 else [])
        lines += [f"[stages.s{nth}]", f'command = "cat {" ".join(deps)} > out/{nth}"']
        lines += [f"deps = {json.dumps(deps)}", f'outs = ["out/{nth}"]']
    return "\n".join(lines) + "\n"


def prepare(log: Ledger, root: Path, stages: int) -> None:
    """A folder in which all these stages are done: files, and completions as a runner records them."""
    for folder in ("in", "out"):
        (root / folder).mkdir(parents=True)
    texts: dict[int, str] = {}
    for nth in range(stages):
        source = f"source {nth}\n"
        (root / f"in/{nth}").write_text(source)
        texts[nth] = source + (texts[nth - 1] if nth % 10 else "")
        (root / f"out/{nth}").write_text(texts[nth])
    time.sleep(2.1)  # no file is as new as the clock's resolution: those are hashed again each time
    (root / "pledger-build.toml").write_text(project_file(root.name, stages))
    with opened(log, root) as project:
        complete_all(project)


def complete_all(project: Project) -> None:
    """Record that all stages ran, level by level, since a generation must be there to be recorded."""
    run = OpenRun(project.name, "first")
    run.start([], project.graph.order)
    record(project.log, [], run)
    stages = project.graph.stages
    todo = [*project.graph.order]
    done: set[str] = set()
    while todo:
        level = [name for name in todo if project.graph.needs[name] <= done]
        plans = plan(project, [stages[name] for name in level])
        looked = project.workspace.look([out.path for name in level for out in stages[name].outs])
        streams = []
        with project.copy.reading() as now:
            for name in level:
                one = plans[name]
                assert isinstance(one, Plan), one
                declared = one.declared
                known = now.generations(declared.deps)
                stream = OpenStage(project.name, name)
                outs = tuple(Out(out.path, hash_of(looked[out.path])) for out in stages[name].outs)
                stream.complete(
                    StageCompleted(
                        how=How.RAN, run="first", input_hash=declared.input_hash, code=dict(declared.code),
                        params=dict(declared.params), deps=consumed(declared.deps, known), outs=outs,
                    )
                )  # fmt: skip
                run.finish_stage(StageFinished(stage=name, status=StageStatus.RAN))
                streams.append(stream)
        record(project.log, streams, run)
        project.copy.catch_up()
        done |= {*level}
        todo = [name for name in todo if name not in done]
    run.end()
    record(project.log, [], run)


def hash_of(looked: Looked) -> str:
    """The hash of a file that is there."""
    assert isinstance(looked, Identity), looked
    return looked.hash


def skips(log: Ledger, root: Path, rounds: int) -> tuple[dict[str, float], dict[str, float]]:
    """Seconds to decide that 10,000 stages are skipped, with all that a run does before: catch up, look."""
    prepare(log, root / "many", 10_000)
    took, opening = [], []
    for _ in range(rounds):
        begin = time.perf_counter()
        with opened(log, root / "many") as project:
            middle = time.perf_counter()
            project.copy.catch_up()
            plans = plan(project, project.graph.stages.values())
            took.append(time.perf_counter() - middle)
            opening.append(middle - begin)
        assert all(isinstance(one, Plan) and one.is_skip for one in plans.values())
        assert {one.decision.tier for one in plans.values() if isinstance(one, Plan)} <= {
            "generation",
            "lock",
        }
    return {"skip_10000_s": round(statistics.median(took), 3)}, {
        "read_build_file_10000_s": round(statistics.median(opening), 3)
    }


def noop(dsn: str, root: Path, tools: Path, rounds: int) -> tuple[dict[str, float], dict[str, float]]:
    """Seconds of a whole process that finds nothing to do among 1,000 stages."""
    with ledger.connect(dsn, create=False) as log:
        prepare(log, root / "noop", 1000)
    folders = {"pledger": root / "noop"}
    for name in ("dvc", "doit"):
        folders[name] = root / name
        subprocess.run(["cp", "-r", str(root / "noop"), str(folders[name])], check=True)
    (folders["dvc"] / "dvc.yaml").write_text(dvc_file(1000))
    (folders["doit"] / "dodo.py").write_text(DODO)
    environment = os.environ | {"LEDGER_DSN": dsn, "DVC_NO_ANALYTICS": "1", "NO_COLOR": "1"}
    commands = {
        "pledger": [sys.executable, "-m", "gateway.cli.main", "builds", "run", str(root / "noop")],
        "dvc": [str(tools / "bin/dvc"), "repro", "-q"],
        "doit": [str(tools / "bin/doit"), "-v0"],
    }
    subprocess.run(
        [*commands["dvc"][:1], "init", "-q", "--no-scm"], cwd=folders["dvc"], env=environment, check=True
    )
    times: dict[str, list[float]] = {name: [] for name in commands}
    for number in range(rounds + 1):  # the first one does the work of the others
        for name, command in commands.items():
            begin = time.perf_counter()
            where = Path.cwd() if name == "pledger" else folders[name]
            done = subprocess.run(command, cwd=where, env=environment, capture_output=True, text=True)
            assert done.returncode == 0, done.stderr[-2000:]
            if number:
                times[name].append(time.perf_counter() - begin)
    return {
        "noop_vs_dvc": ratio(times, "pledger", "dvc"), "noop_vs_doit": ratio(times, "pledger", "doit"),
    }, {f"noop_1000_{name}_s": round(statistics.median(took), 2) for name, took in times.items()}  # fmt: skip


def dvc_file(stages: int) -> str:
    """The same graph for DVC."""
    made = {}
    for nth in range(stages):
        deps = [f"in/{nth}"] + ([f"out/{nth - 1}"] if nth % 10 else [])
        made[f"s{nth}"] = {"cmd": f"cat {' '.join(deps)} > out/{nth}", "deps": deps, "outs": [f"out/{nth}"]}
    return json.dumps({"stages": made})


DODO = """
def task_s():
    for nth in range(1000):
        deps = [f"in/{nth}"] + ([f"out/{nth - 1}"] if nth % 10 else [])
        yield {"name": str(nth), "actions": [f"cat {' '.join(deps)} > out/{nth}"], "file_dep": deps,
               "targets": [f"out/{nth}"]}
"""


def tools_in(folder: Path) -> Path:
    """An environment with DVC and doit, made by pip where it is not there yet."""
    if not (folder / "bin/doit").exists():
        print(f"installing dvc and doit in {folder}", file=sys.stderr)
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        pip = [str(folder / "bin/python"), "-m", "pip", "install", "-q"]
        subprocess.run([*pip, "dvc", "doit"], check=True, stdout=sys.stderr)
    return folder


def main() -> None:
    """Run it all and print the ratios."""
    parser = argparse.ArgumentParser(
        prog="dev.py bench builds", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="print one object as the last line")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0, help="length of one turn")
    parser.add_argument("--only", nargs="*", default=PARTS, choices=PARTS)
    parser.add_argument(
        "--tools", type=Path, default=Path(".venv/tools-of-builds"), help="where DVC and doit are"
    )
    options = parser.parse_args()
    ratios: dict[str, float] = {}
    figures: dict[str, float] = {"cpus": os.cpu_count() or 0}
    with throwaway(durable=True) as server, tempfile.TemporaryDirectory() as folder:
        root, dsn = Path(folder), server.dsn()
        with psycopg.connect(dsn, autocommit=True) as connection:
            init(connection)
        with ledger.connect(dsn, create=False) as log:
            parts = {
                "read": lambda: reads(log, root, options.rounds),
                "record": lambda: records(dsn, options.rounds, options.seconds),
                "lag": lambda: lag(dsn, root, 5 * options.seconds),
                "skip": lambda: skips(log, root, options.rounds),
                "noop": lambda: noop(dsn, root, tools_in(options.tools.absolute()), options.rounds),
            }
            for name in options.only:
                found, absolute = parts[name]()
                ratios |= found
                figures |= absolute
                for key, value in (found | absolute).items():
                    print(
                        f"{key:28} {value:>12}", file=sys.stderr if options.json else sys.stdout, flush=True
                    )
    if options.json:
        print(json.dumps(ratios | {"figures": figures}))


if __name__ == "__main__":
    main()
