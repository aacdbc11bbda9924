"""The local copy: fed from the log, each event once; what is wrong with it is noticed and made right."""

from __future__ import annotations

import json
import logging
import multiprocessing
import os
import resource
import shutil
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

import ledger
from gateway.cli.main import main
from ledger import DatabaseFullError, Ledger, LedgerBusy, PathTooLongError, StateDBError
from ledger.builds import Dep, How, OpenOutput, OpenRemote, OpenRun, OpenStage, Out
from ledger.builds.manifests import StageStatus
from ledger.builds.run import Decided, StageFinished
from ledger.builds.stage import FileEntry, StageCompleted
from projections.builds import feeder, keys
from projections.builds.check import CopyCheck
from projections.builds.copy import BuildCopy
from projections.builds.environment import Environment
from projections.builds.feeder import CURSOR, IDENTITY
from projections.builds.fold import FORMAT
from projections.builds.places import STORE
from projections.builds.reading import Generation
from projections.fold import ALL

PROJECT = "proteome"
HASH = "1f" * 32
OTHER = "2e" * 32


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / ".pledger" / "builds"


@pytest.fixture
def copy(log: Ledger, folder: Path) -> Iterator[BuildCopy]:
    with BuildCopy(log, folder, PROJECT) as opened:
        yield opened


def completed(input_hash: str = HASH, run: str | None = "r1", **fields: Any) -> StageCompleted:
    """A completion without a claim."""
    return StageCompleted(how=How.RAN, run=run, input_hash=input_hash, **fields)


def change(log: Ledger, path: str, hash: str | None, project: str = PROJECT) -> int:
    """Record other content of an output; returns the position."""
    with log.open(OpenOutput, project, path) as output:
        output.change(hash)
    return log.bound()


def history(log: Ledger) -> None:
    """A little of everything."""
    with log.open(OpenRun, PROJECT, "r1") as run:
        run.start(["count"], ["fetch", "count"], runner="host:1")
        run.skip([Decided("fetch", "lock", "unchanged", HASH)])
        run.start_stage("count", "Code changed", HASH)
    with log.open(OpenStage, PROJECT, "count") as stage, log.open(OpenOutput, PROJECT, "out.txt") as out:
        out.change(HASH, stage="count", run="r1")
        stage.complete(
            completed(
                deps={"in.txt": Dep(OTHER), "mid/": Dep(HASH, 4)},
                outs=(Out("out.txt", HASH), Out("log", OTHER, False), Out("d/", OTHER)),
                manifests={"d/": (FileEntry("a", HASH, 3, True),)},
            )
        )
    with log.open(OpenRun, PROJECT, "r1") as run:
        run.finish_stage(StageFinished(stage="count", status=StageStatus.RAN, input_hash=HASH, duration_ms=7))
        run.end()
    with log.open(OpenRemote, PROJECT, "s3:a") as remote:
        remote.add([HASH, OTHER])
    with log.open(OpenRemote, PROJECT, "s3") as remote:
        remote.add([f"a:{HASH}"])


def verified(copy: BuildCopy) -> list[str]:
    """What is wrong with a copy."""
    assert copy.log is not None
    return [
        f"{one.about}: {one.says}"
        for one in CopyCheck(copy.folder).differences(copy.log, ALL, lambda _: None)
    ]


def test_the_copy_says_what_the_log_says(log: Ledger, copy: BuildCopy) -> None:
    history(log)
    change(log, "out.txt", OTHER, project="another")
    assert copy.catch_up() == 9
    assert copy.generation("out.txt") == Generation(1, HASH)
    with copy.reading() as now:
        assert now.generations(["out.txt", "none"]) == {"out.txt": Generation(1, HASH)}
        version, stage = now.stage("count") or (0, None)
        assert (version, stage and stage.deps["in.txt"]) == (1, OTHER)
        assert now.stages(["count", "none"]) == {"count": stage}
        assert (now.stage_names(), now.stage("none")) == (["count"], None)
        assert now.dep_generations("count") == {"mid/": 4}
        entry = {
            "run_id": "r1",
            "output_hashes": [
                {"path": "out.txt", "hash": HASH},
                {"path": "d/", "hash": OTHER,
                 "manifest": [{"relpath": "a", "hash": HASH, "size": 3, "isexec": True}]},
            ],
        }  # fmt: skip
        assert now.run_cache("count", HASH) == entry
        assert now.run_caches([("count", HASH), ("count", OTHER)]) == {("count", HASH): entry}
        assert (now.run_cache("fetch", HASH), now.cached_by("r1"), now.caching_runs()) == (None, 1, {"r1"})
        manifest = now.run("r1")
        assert manifest is not None
        assert manifest["ended_at"] is not None
        assert manifest["execution_order"] == ["fetch", "count"]
        assert manifest["stages"] == {
            "fetch": dict(input_hash=HASH, status="skipped", reason="unchanged", duration_ms=0),
            "count": dict(input_hash=HASH, status="ran", reason="", duration_ms=7),
        }
        assert now.remote_holds("s3:a", [HASH, "none"]) == {HASH}
        assert now.remote_holds("s3", [HASH, f"a:{HASH}"]) == {f"a:{HASH}"}
    assert verified(copy) == []


def test_w4_12_a_run_is_there_after_each_of_its_events(log: Ledger, copy: BuildCopy) -> None:
    with log.open(OpenRun, PROJECT, "r1") as run:
        run.start(order=["a"])
        run.start_stage("a", "forced")
    copy.catch_up()
    with copy.reading() as now:
        manifest = now.run("r1")
    assert manifest is not None
    assert (manifest["ended_at"], manifest["stages"]["a"]["status"]) == (None, "in_progress")


def test_w4_11_runs_are_listed_by_their_first_events(log: Ledger, copy: BuildCopy) -> None:
    """The ids say nothing of the order."""
    for name in ("b", "c", "a"):
        with log.open(OpenRun, PROJECT, name) as run:
            run.start()
    copy.catch_up()
    with copy.reading() as now:
        assert (now.runs(), now.runs(2)) == (["a", "c", "b"], ["a", "c"])
    with log.open(OpenRun, PROJECT, "b") as run:
        run.end()
        assert run.drop("retention")
    copy.catch_up()
    with copy.reading() as now:
        assert (now.runs(), now.run("b")) == (["a", "c"], None)
    assert verified(copy) == []


def test_a_dropped_run_takes_its_entries_of_the_run_cache(log: Ledger, copy: BuildCopy) -> None:
    """An entry that was overwritten by another run, or written after the drop, stays."""
    for name in ("r1", "r2"):
        with log.open(OpenRun, PROJECT, name) as run:
            run.start()
    for input_hash, run_id in ((HASH, "r1"), (OTHER, "r1"), (OTHER, "r2")):
        with log.open(OpenStage, PROJECT, "s") as stage:
            stage.complete(completed(input_hash, run_id))
    with log.open(OpenStage, PROJECT, "t") as stage:
        stage.complete(completed(HASH, None))
        stage.complete(completed(OTHER, "r1", incremental=True))
    with log.open(OpenRun, PROJECT, "r1") as run:
        run.end()
        assert run.drop("retention")
    with log.open(OpenStage, PROJECT, "u") as stage:
        stage.complete(completed(HASH, "r1"))
    copy.catch_up()
    with copy.reading() as now:
        wanted = [(stage, input_hash) for stage in "stu" for input_hash in (HASH, OTHER)]
        found = {place: entry["run_id"] for place, entry in now.run_caches(wanted).items()}
        assert found == {("s", OTHER): "r2", ("u", HASH): "r1"}
        assert (now.cached_by("r1"), now.cached_by("r2")) == (1, 1)
    assert verified(copy) == []


def test_a_name_that_is_too_long_for_a_key_stops_nothing(log: Ledger, copy: BuildCopy) -> None:
    """Another program may record it; whoever asks for it is told."""
    change(log, "x" * 600, HASH)
    with log.open(OpenStage, PROJECT, "s") as stage:
        stage.complete(completed(deps={"y" * 510: Dep(HASH, 1), "z": Dep(HASH, 2)}))
    change(log, "out.txt", HASH)
    copy.catch_up()
    assert copy.generation("out.txt") == Generation(1, HASH)
    with copy.reading() as now:
        assert now.dep_generations("s") == {"z": 2}
        with pytest.raises(PathTooLongError):
            now.generation("x" * 600)
    assert verified(copy) == []


# Following


def test_a_writer_reads_its_own_writes(log: Ledger, copy: BuildCopy) -> None:
    for number in range(1, 4):
        copy.catch_up(change(log, "out.txt", f"{number:064}"))
        assert copy.generation("out.txt") == Generation(number, f"{number:064}")


def test_reading_waits_for_an_older_append_that_is_open(log: Ledger, copy: BuildCopy, dsn: str) -> None:
    copy.catch_up()
    log.pool.timeout = 0.3
    with psycopg.connect(dsn) as connection:
        with log.join(connection) as joined, joined.open(OpenOutput, PROJECT, "a") as output:
            output.change(HASH)
        with log.open(OpenOutput, PROJECT, "b") as output:
            output.change(OTHER)
        with pytest.raises(LedgerBusy, match="cannot be read yet"):
            copy.catch_up(log.read(OpenOutput.name_of(PROJECT, "b"))[0].position)
        connection.commit()
    assert copy.catch_up() == 2


def test_a_follower_feeds_it_in_a_thread(log: Ledger, copy: BuildCopy) -> None:
    with copy.follow() as follower:
        position = change(log, "out.txt", HASH)
        assert follower.wait_until(lambda: follower.position >= position, 60)
        assert copy.generation("out.txt") == Generation(1, HASH)


def test_two_feeders_count_each_event_once(log: Ledger, copy: BuildCopy, dsn: str, folder: Path) -> None:
    """Both in this process and in another one, while events come."""
    child = multiprocessing.get_context("fork").Process(target=_feed, args=(dsn, folder))
    child.start()
    with BuildCopy(log, folder, PROJECT) as second, copy.follow(), second.follow():
        for number in range(60):
            change(log, f"out{number % 7}", f"{number:064}")
        history(log)
        copy.catch_up()
    assert verified(copy) == []
    assert copy.generation("out0") == Generation(9, f"{56:064}")
    child.terminate()
    child.join()


def _feed(dsn: str, folder: Path) -> None:
    with ledger.connect(dsn) as log, BuildCopy(log, folder, PROJECT) as copy:
        while True:
            copy.catch_up()


@pytest.mark.parametrize("seed", range(2))
def test_a_feeder_that_is_killed_leaves_a_copy_that_goes_on(
    log: Ledger, copy: BuildCopy, dsn: str, folder: Path, seed: int
) -> None:
    """Killed at any moment, again and again, while events come."""
    for number in range(150):
        change(log, f"out{number % 5}", f"{number:064}")
        if number % 15 == 0:
            child = multiprocessing.get_context("fork").Process(target=_feed, args=(dsn, folder))
            child.start()
            time.sleep(0.01 * (number / 15 + seed))  # any moment will do
            os.kill(child.pid or 0, signal.SIGKILL)
            child.join()
    copy.catch_up()
    assert copy.generation("out4") == Generation(30, f"{149:064}")
    assert verified(copy) == []


def test_a_feeder_that_is_killed_between_any_two_writes_leaves_nothing(
    log: Ledger, copy: BuildCopy, dsn: str, folder: Path
) -> None:
    copy.catch_up()
    history(log)
    with copy._environment().reading() as reader:
        before = dict(reader.cursor())
    for writes in range(100):
        child = multiprocessing.get_context("fork").Process(target=_feed_and_die, args=(dsn, folder, writes))
        child.start()
        child.join()
        if child.exitcode == 0:  # it had no more to write
            break
        assert child.exitcode == -signal.SIGKILL
        with copy._environment().reading() as reader:
            assert dict(reader.cursor()) == before
    assert writes > 15
    assert copy.catch_up() == 0
    assert verified(copy) == []


def _feed_and_die(dsn: str, folder: Path, writes: int) -> None:
    """Feed the copy, and be killed before the write after so many."""

    class Dying:
        def __init__(self, writer: Any) -> None:
            self.writer, self.left = writer, writes

        def __getattr__(self, name: str) -> Any:
            if name in ("put", "delete"):
                if self.left == 0:
                    os.kill(os.getpid(), signal.SIGKILL)
                self.left -= 1
            return getattr(self.writer, name)

    write = Environment.write
    Environment.write = lambda self, work: write(self, lambda writer: work(Dying(writer)))  # type: ignore[assignment,arg-type,method-assign,misc]
    with ledger.connect(dsn) as log, BuildCopy(log, folder, PROJECT) as copy:
        copy.catch_up()


def test_w4_15_readers_of_a_missing_copy_do_not_race(folder: Path) -> None:
    """Each finds it, or makes an empty one, which is not one of the project yet."""
    children = [multiprocessing.get_context("fork").Process(target=_look, args=(folder,)) for _ in range(6)]
    for child in children:
        child.start()
    for child in children:
        child.join()
    assert [child.exitcode for child in children] == [0] * 6


def _look(folder: Path) -> None:
    with BuildCopy(None, folder, PROJECT, readonly=True) as copy:
        assert (copy.raw(b"a"), copy.position) == (None, 0)
        with pytest.raises(StateDBError, match="is not one of project"), copy.reading():
            pass


def test_a_full_disk_stops_a_feeder_which_then_goes_on_where_it_was(
    log: Ledger, copy: BuildCopy, dsn: str, folder: Path
) -> None:
    change(log, "first", HASH)
    copy.catch_up()
    size = (folder / STORE / "data.mdb").stat().st_size
    for number in range(40):
        change(log, f"{number}/{'x' * 400}", f"{number:064}")
    child = multiprocessing.get_context("fork").Process(target=_fill, args=(dsn, folder, size + 8_000))
    child.start()
    child.join()
    assert child.exitcode == 0
    assert copy.generation("first") == Generation(1, HASH)
    assert copy.catch_up() == 0
    assert verified(copy) == []


def _fill(dsn: str, folder: Path, limit: int) -> None:
    """Feed the copy while its file may not grow, and then while it may."""
    with ledger.connect(dsn) as log, BuildCopy(log, folder, PROJECT) as copy:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
        for _ in range(2):
            with pytest.raises(DatabaseFullError, match="cannot grow"):
                copy.catch_up()
            assert copy.generation("first") == Generation(1, HASH)
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        assert copy.catch_up() == 40


# What is wrong is noticed


def test_a_copy_far_behind_reads_only_its_streams(
    log: Ledger, copy: BuildCopy, monkeypatch: pytest.MonkeyPatch
) -> None:
    history(log)
    copy.catch_up()
    monkeypatch.setattr(feeder, "FAR", 50)
    for _ in range(60):
        log.append("others/1", ledger.Body("others.happened", 1, "{}"))
    change(log, "out.txt", OTHER)
    with BuildCopy(log, copy.folder, PROJECT) as again:
        assert again.catch_up() == 1
        assert again.generation("out.txt") == Generation(2, OTHER)
        assert again.position == log.bound()
    assert verified(copy) == []


def test_what_others_record_is_noted_now_and_then(
    log: Ledger, copy: BuildCopy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feeder, "NOTED", 10)
    copy.catch_up()
    for _ in range(9):
        log.append("others/1", ledger.Body("others.happened", 1, "{}"))
    copy.catch_up()
    assert copy.position == 0
    log.append("others/1", ledger.Body("others.happened", 1, "{}"))
    copy.catch_up()
    assert copy.position == log.bound()


def spoil(copy: BuildCopy, *named: tuple[bytes, bytes | None]) -> None:
    """Write entries as no feeder would."""

    def work(writer: Any) -> None:
        for key, value in named:
            writer.delete(key) if value is None else writer.put(key, value)

    copy._environment().write(work)


@pytest.mark.parametrize("way", ["deleted", "truncated", "another project", "older format", "no position"])
def test_a_copy_that_cannot_be_continued_is_made_again(
    log: Ledger, copy: BuildCopy, way: str, caplog: pytest.LogCaptureFixture
) -> None:
    """By whatever is called first; the caches stay where the files are whole."""
    history(log)
    copy.catch_up()
    copy.put_raw([(b"kept", b"1")])
    folder = copy.folder
    identity = copy._environment().get(IDENTITY) or b""
    caplog.set_level(logging.WARNING)
    match way:
        case "deleted":
            shutil.rmtree(folder)
        case "truncated":
            copy._environment().close()
            data = folder / STORE / "data.mdb"
            os.truncate(data, data.stat().st_size // 2)
        case "another project":
            spoil(copy, (IDENTITY, identity.replace(PROJECT.encode(), b"other")), (b"gen:stale", b"\0" * 8))
        case "older format":
            spoil(copy, (IDENTITY, identity.replace(b'"format": %d' % FORMAT, b'"format": 0')))
        case "no position":
            spoil(copy, (CURSOR, None))
    change(log, "out.txt", OTHER)
    if way == "no position":
        copy.catch_up()
    with copy.reading() as now:
        assert now.generation("out.txt") == Generation(2, OTHER)
        assert now.generation("stale") is None
    assert (copy.raw(b"kept") is not None) == (way not in ("deleted", "truncated"))
    assert verified(copy) == []
    assert (way == "deleted") == (not caplog.messages)


def test_a_copy_of_another_ledger_is_made_again(
    log: Ledger, copy: BuildCopy, dsn: str, caplog: pytest.LogCaptureFixture
) -> None:
    history(log)
    copy.catch_up()
    with psycopg.connect(dsn, autocommit=True) as connection:
        ledger.log.install.init(connection, "other_ledger")
    with ledger.connect(dsn, schema="other_ledger") as other, BuildCopy(other, copy.folder, PROJECT) as here:
        change(other, "out.txt", OTHER)
        with here.reading() as now:
            assert (now.generation("out.txt"), now.runs()) == (Generation(1, OTHER), [])
        assert f"its ledger is {log.identity.ledger}, not {other.identity.ledger}" in caplog.text


def test_a_history_that_was_rolled_back_is_noticed(
    log: Ledger, copy: BuildCopy, admin_dsn: str, caplog: pytest.LogCaptureFixture
) -> None:
    """As a restore to an earlier point does."""
    change(log, "kept", HASH)
    lost = change(log, "lost", HASH)
    copy.catch_up()
    with psycopg.connect(admin_dsn, autocommit=True) as connection:
        connection.execute("SET session_replication_role = replica")
        connection.execute("DELETE FROM ledger.events WHERE position = %s", [lost])
        connection.execute("DELETE FROM ledger.heads WHERE stream LIKE '%/lost'")
    change(log, "kept", OTHER)
    copy.catch_up()
    assert (copy.generation("kept"), copy.generation("lost")) == (Generation(2, OTHER), None)
    assert f"the ledger has no event at position {lost}" in caplog.text
    assert verified(copy) == []


def test_offline_it_is_read_as_it_is(log: Ledger, copy: BuildCopy, folder: Path) -> None:
    history(log)
    copy.catch_up()
    copy.close()
    with BuildCopy(None, folder, PROJECT) as offline:
        assert offline.generation("out.txt") == Generation(1, HASH)
        with pytest.raises(StateDBError, match="opened offline"):
            offline.catch_up()
    with (
        BuildCopy(None, folder, "other") as other,
        pytest.raises(StateDBError, match="is not one of project 'other'"),
        other.reading(),
    ):
        pass


# Verifying


def test_a_verification_names_what_differs_and_repairs_it(log: Ledger, copy: BuildCopy) -> None:
    history(log)
    copy.catch_up()
    spoil(
        copy,
        (keys.key(keys.GENERATION, "out.txt"), b"\0" * 7 + b"\7" + OTHER.encode()),
        (keys.key(keys.DEP, "count", "mid/"), None),
        (keys.key(keys.REMOTE, "s3", "x"), b"1"),
    )
    check = CopyCheck(copy.folder)
    found = {one.about: one for one in check.differences(log, ALL, lambda _: None)}
    assert {about: one.says for about, one in found.items()} == {
        "build_output/proteome/out.txt": "the entry 'gen:out.txt' differs",
        "build_stage/proteome/count": "the entry 'dep:count\\x00mid/' is missing",
        "build_remote/proteome/s3": "the entry 'remote:s3\\x00x' exists without an event",
    }
    fields = found["build_output/proteome/out.txt"].fields
    assert [(field.name, field.kept, field.events) for field in fields] == [
        ("number", "7", "1"), ("value", f'"{OTHER}"', f'"{HASH}"'),
    ]  # fmt: skip
    summary_of = ledger_verify(log, check, repair=True)
    assert (summary_of.differences, summary_of.repaired) == (3, 3)
    assert verified(copy) == []


def ledger_verify(log: Ledger, check: CopyCheck, *, repair: bool) -> Any:
    """`pledger verify` with this check only."""
    from projections.verify import verify

    return verify(log, checks=[check], repair=repair, processes=1)


def test_pledger_verify_includes_the_copy_of_the_folder(
    log: Ledger,
    copy: BuildCopy,
    dsn: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    history(log)
    copy.catch_up()
    below = tmp_path / "src"
    below.mkdir()
    monkeypatch.chdir(below)
    assert main(["--dsn", dsn, "verify", "--processes", "1"]) == 0
    spoil(copy, (keys.key(keys.GENERATION, "out.txt"), None))
    assert main(["--dsn", dsn, "verify", "--processes", "1", "--check", "build_copy", "--json"]) == 1
    found = json.loads(capsys.readouterr().out.splitlines()[0])
    assert (found["view"], found["says"]) == ("build_copy", "the entry 'gen:out.txt' is missing")
    assert main(["--dsn", dsn, "verify", "--processes", "1", "--repair"]) == 0
    assert copy.generation("out.txt") == Generation(1, HASH)
    monkeypatch.chdir("/")
    assert main(["--dsn", dsn, "verify", "--check", "build_copy"]) == 3
    assert "there is no local copy of a build project" in capsys.readouterr().err


def test_a_rebuild_changes_nothing_of_a_right_copy(log: Ledger, copy: BuildCopy) -> None:
    history(log)
    copy.catch_up()
    with copy._environment().reading() as reader:
        before = dict(reader.cursor())
    assert copy.rebuild() == 9
    with copy._environment().reading() as reader:
        assert dict(reader.cursor()) == before


def test_readers_go_on_while_it_is_made_again(log: Ledger, copy: BuildCopy) -> None:
    change(log, "out.txt", HASH)
    copy.catch_up()
    stop, begun, seen = threading.Event(), threading.Event(), set()

    def read() -> None:
        while not stop.is_set():
            with copy.reading() as now:
                seen.add(now.generation("out.txt"))
            begun.set()

    thread = threading.Thread(target=read)
    thread.start()
    assert begun.wait(60)
    for _ in range(5):
        copy.rebuild()
    stop.set()
    thread.join()
    assert seen == {Generation(1, HASH)}
