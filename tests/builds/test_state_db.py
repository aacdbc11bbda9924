"""The contract of the original's StateDB, statement by statement (spec S4-01 to S4-24, S4-30 to S4-36)."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from consumers.builds.state_db import StateDB
from ledger import BadInput, DatabaseFullError, Ledger, PathTooLongError, StateDBError
from ledger.builds import (
    DeferredWrites,
    OpenOutput,
    OpenRun,
    OpenStage,
    OutputHashEntry,
    RunCacheEntry,
    RunManifest,
    StageRunRecord,
    StageStatus,
)
from ledger.builds.names import COMMITTED, new_run_id

Opener = Callable[..., StateDB]
LONG = "d" * 600
CODE = ("src/stages.py", 1234567890, 1000, 99999, "my_func", "3.13", 1)


@pytest.fixture
def opener(shared: Ledger, tmp_path: Path, project: str) -> Iterator[Opener]:
    """Opens the store of this test's project; all are closed at the end."""
    opened: list[StateDB] = []

    def open_one(readonly: bool = False, *, folder: Path = tmp_path, **others: Any) -> StateDB:
        given = {"log": shared, "project": project, "root": folder, **others}
        opened.append(StateDB(folder / "state.db", readonly, **given))
        return opened[-1]

    yield open_one
    for one in opened:
        one.close()


@pytest.fixture
def db(opener: Opener) -> StateDB:
    return opener()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "file.txt"
    path.write_text("content")
    return path


def manifest(run_id: str, **stages: str) -> RunManifest:
    return RunManifest(
        run_id=run_id,
        started_at="2025-01-10T14:30:00+00:00",
        ended_at="2025-01-10T14:31:00+00:00",
        targeted_stages=["train"],
        execution_order=[*stages],
        stages={
            name: StageRunRecord(input_hash="1f", status=StageStatus(status), reason="why", duration_ms=7)
            for name, status in stages.items()
        },
    )


def entry(run_id: str, *outputs: tuple[str, str]) -> RunCacheEntry:
    return RunCacheEntry(run_id=run_id, output_hashes=[OutputHashEntry(path=p, hash=h) for p, h in outputs])


def events(log: Ledger, db: StateDB, category: str = "build") -> int:
    """How many events the project of a store has."""
    return sum(one.version for one in log.streams(category) if one.stream.split("/")[1] == db.project)


# Opening and modes


def test_s4_01_the_store_is_a_folder_beside_the_file_and_parents_are_made(
    opener: Opener, tmp_path: Path
) -> None:
    opener(folder=tmp_path / "a" / "b").put_raw(b"k", b"v")
    assert [path.name for path in (tmp_path / "a" / "b").iterdir()] == ["state.lmdb"]


def test_s4_02_a_readonly_store_that_is_missing_is_made_and_read(opener: Opener, tmp_path: Path) -> None:
    reader = opener(True)
    assert reader.readonly
    assert reader.get_generation(tmp_path / "x") is None
    assert reader.list_runs() == []


WRITES: dict[str, Callable[[StateDB, Path], object]] = {
    "save": lambda db, file: db.save(file, file.stat(), "h"),
    "save_many": lambda db, file: db.save_many([(file, file.stat(), "h")]),
    "increment_generation": lambda db, file: db.increment_generation(file),
    "record_dep_generations": lambda db, file: db.record_dep_generations("s", {"d": 1}),
    "remote_hashes_add": lambda db, file: db.remote_hashes_add("r", ["h"]),
    "remote_hashes_remove": lambda db, file: db.remote_hashes_remove("r", ["h"]),
    "remote_index_clear": lambda db, file: db.remote_index_clear("r"),
    "save_ast_hash_many": lambda db, file: db.save_ast_hash_many([(*CODE, "h")]),
    "clear_ast_hashes": lambda db, file: db.clear_ast_hashes(),
    "put_raw": lambda db, file: db.put_raw(b"k", b"v"),
    "put_raw_many": lambda db, file: db.put_raw_many([(b"k", b"v")]),
    "write_run": lambda db, file: db.write_run(manifest("r")),
    "prune_runs": lambda db, file: db.prune_runs(1),
    "write_run_cache": lambda db, file: db.write_run_cache("s", "i", entry("r")),
    "prune_run_cache": lambda db, file: db.prune_run_cache({"r"}),
    "apply_deferred_writes": lambda db, file: db.apply_deferred_writes("s", [], {}),
}
READS: dict[str, Callable[[StateDB, Path], object]] = {
    "get": lambda db, file: db.get(file, file.stat()),
    "get_many": lambda db, file: db.get_many([]),
    "get_generation": lambda db, file: db.get_generation(file),
    "get_many_generations": lambda db, file: db.get_many_generations([file]),
    "get_dep_generations": lambda db, file: db.get_dep_generations("s"),
    "remote_hash_exists": lambda db, file: db.remote_hash_exists("r", "h"),
    "remote_hashes_intersection": lambda db, file: db.remote_hashes_intersection("r", {"h"}),
    "get_ast_hash": lambda db, file: db.get_ast_hash(*CODE),
    "get_raw": lambda db, file: db.get_raw(b"k"),
    "read_run": lambda db, file: db.read_run("r"),
    "list_runs": lambda db, file: db.list_runs(),
    "lookup_run_cache": lambda db, file: db.lookup_run_cache("s", "i"),
}


def test_s4_02_every_writing_method_is_refused_and_changes_nothing(
    opener: Opener, shared: Ledger, file: Path
) -> None:
    writer, reader = opener(), opener(True)
    for method, write in WRITES.items():
        with pytest.raises(RuntimeError, match="readonly StateDB") as refused:
            write(reader, file)
        assert isinstance(refused.value, StateDBError), method
    assert events(shared, writer) == 0
    writer.increment_generation(file)
    assert reader.get_generation(file) == 1


def test_s4_03_after_close_every_method_is_refused(opener: Opener, file: Path) -> None:
    with opener() as db:
        db.save(file, file.stat(), "h")
    db.close()
    for call in (*READS.values(), *WRITES.values()):
        with pytest.raises(RuntimeError, match="Cannot operate on closed StateDB"):
            call(db, file)


def test_s4_04_the_errors_are_one_tree_and_say_what_to_do() -> None:
    assert issubclass(PathTooLongError, StateDBError)
    assert issubclass(DatabaseFullError, StateDBError)
    assert (
        str(PathTooLongError("/d", 600, 511)) == "the key of '/d' has 600 bytes, more than the maximum of 511"
    )
    assert "delete .pledger/builds/state.lmdb" in str(DatabaseFullError(".pledger/builds/state.lmdb", "full"))


def test_s4_05_a_reader_has_what_the_writer_recorded_and_one_process_may_open_both(
    opener: Opener, tmp_path: Path
) -> None:
    writer, reader, other = opener(), opener(True), opener()
    writer.increment_generation(tmp_path / "out")
    assert reader.get_generation(tmp_path / "out") == other.get_generation(tmp_path / "out") == 1


# Hashes of files


def test_s4_10_a_hash_is_found_while_the_metadata_are_the_same(db: StateDB, file: Path) -> None:
    assert db.get(file, file.stat()) is None
    db.save(file, stat := file.stat(), "abc")
    assert db.get(file, stat) == "abc"
    os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns + 1))
    assert db.get(file, file.stat()) is None
    file.write_text("longer content")
    os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert db.get(file, file.stat()) is None


def test_s4_10_a_replaced_file_has_another_inode(db: StateDB, file: Path) -> None:
    db.save(file, stat := file.stat(), "abc")
    (other := file.with_name("other")).write_text("CONTENT")
    other.replace(file)
    os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert db.get(file, file.stat()) is None


def test_s4_10_many_are_read_with_none_for_a_miss(db: StateDB, file: Path) -> None:
    (miss := file.with_name("miss")).touch()
    db.save(file, file.stat(), "abc")
    assert db.get_many([(file, file.stat()), (miss, miss.stat())]) == {file: "abc", miss: None}
    assert db.get_many([]) == {}


def test_s4_10_a_link_is_the_file_that_it_leads_to(db: StateDB, file: Path) -> None:
    (link := file.with_name("link")).symlink_to(file)
    db.save(link, file.stat(), "abc")
    assert db.get(file, file.stat()) == "abc"


def test_s4_11_saving_overwrites_and_of_a_batch_with_a_long_path_nothing_is_saved(
    db: StateDB, file: Path
) -> None:
    stat = file.stat()
    db.save(file, stat, "abc")
    with pytest.raises(PathTooLongError):
        db.save_many([(file, stat, "def"), (file.with_name("long") / LONG, stat, "x")])
    assert db.get(file, stat) == "abc"
    db.save_many([(file, stat, "def")])
    assert db.get(file, stat) == "def"
    db.save_many([])


# Generations


def test_s4_12_a_generation_counts_from_one(db: StateDB, tmp_path: Path) -> None:
    x, y = tmp_path / "x", tmp_path / "y"
    assert db.get_generation(x) is None
    assert [db.increment_generation(x) for _ in range(3)] == [1, 2, 3]
    assert db.get_many_generations([x, y]) == {x: 3, y: None}
    assert db.get_many_generations([]) == {}
    assert db.get_generation(tmp_path / "a" / ".." / "x") == 3


def test_s4_12_a_link_and_its_target_have_generations_of_their_own(db: StateDB, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    db.increment_generation(tmp_path / "link" / "x")
    assert db.get_generation(tmp_path / "real" / "x") is None


def test_s4_12_generations_outlive_the_store(opener: Opener, tmp_path: Path) -> None:
    with opener() as db:
        db.increment_generation(tmp_path / "x")
    shutil.rmtree(tmp_path / "state.lmdb")
    assert opener().get_generation(tmp_path / "x") == 1


# Dependencies


def test_s4_13_the_records_of_a_stage_are_replaced_as_a_whole(db: StateDB) -> None:
    assert db.get_dep_generations("s") is None
    db.record_dep_generations("s", {"/a.csv": 5, "b.csv": 3})
    db.record_dep_generations("t", {"a": 1})
    assert db.get_dep_generations("s") == {"/a.csv": 5, "b.csv": 3}
    db.record_dep_generations("s", {"c.csv": 1})
    assert db.get_dep_generations("s") == {"c.csv": 1}
    db.record_dep_generations("s", {})
    assert db.get_dep_generations("s") is None
    assert db.get_dep_generations("t") == {"a": 1}


def test_w4_07_the_parts_of_a_key_never_meet(db: StateDB) -> None:
    db.record_dep_generations("a", {"b:c": 1})
    db.record_dep_generations("a:b", {"c": 2})
    assert (db.get_dep_generations("a"), db.get_dep_generations("a:b")) == ({"b:c": 1}, {"c": 2})
    db.record_dep_generations("a", {})
    assert db.get_dep_generations("a:b") == {"c": 2}
    db.remote_hashes_add("s3:x", ["y"])
    assert not db.remote_hash_exists("s3", "x:y")
    db.write_run_cache("s", "t:i", entry("r1"))
    assert db.lookup_run_cache("s:t", "i") is None


# Remotes


def test_s4_14_the_index_of_a_remote(opener: Opener, shared: Ledger) -> None:
    db = opener()
    db.remote_hashes_add("origin", ["a", "b", "b"])
    db.remote_hashes_add("other", {"c"})
    assert db.remote_hash_exists("origin", "a")
    assert not db.remote_hash_exists("origin", "c")
    assert db.remote_hashes_intersection("origin", {"a", "c"}) == {"a"}
    assert db.remote_hashes_intersection("origin", set()) == set()
    before = events(shared, db)
    db.remote_hashes_add("origin", ["a"])
    db.remote_hashes_remove("origin", ["zz"])
    assert events(shared, db) == before, "what changes nothing is not recorded"
    db.remote_hashes_remove("origin", ["a"])
    assert opener().remote_hashes_intersection("origin", {"a", "b"}) == {"b"}
    db.remote_index_clear("origin")
    assert db.remote_hashes_intersection("origin", {"a", "b"}) == set()
    assert db.remote_hash_exists("other", "c")


# Fingerprints


def test_s4_15_a_fingerprint_is_found_by_all_of_its_parts(opener: Opener) -> None:
    db = opener()
    db.save_ast_hash_many([(*CODE, "abc")])
    assert opener().get_ast_hash(*CODE) == "abc"
    for nth, other in enumerate(("x.py", 1, 1, 1, "f", "3.12", 2)):
        parts: list[Any] = [*CODE]
        parts[nth] = other
        assert db.get_ast_hash(*parts) is None


def test_s4_15_invalid_fingerprints_are_left_out(db: StateDB) -> None:
    wrong: list[Any] = [
        ("", *CODE[1:]), (*CODE[:4], "", *CODE[5:]), (*CODE[:4], "a\0b", *CODE[5:]), (*CODE[:5], "", 1),
        (LONG, *CODE[1:]),
    ]  # fmt: skip
    db.save_ast_hash_many([*((*one, "h") for one in wrong), (*CODE, "abc")])
    assert [db.get_ast_hash(*one) for one in wrong] == [None] * 5
    db.put_raw(b"fp:x", b"kept")
    assert db.clear_ast_hashes() == 1
    assert db.get_ast_hash(*CODE) is None
    assert db.clear_ast_hashes() == 0
    assert db.get_raw(b"fp:x") == b"kept"


# Raw entries


def test_s4_16_raw_entries(db: StateDB) -> None:
    assert db.get_raw(b"sm:x") is None
    db.put_raw(b"sm:x", b"\0v")
    with pytest.raises(PathTooLongError):
        db.put_raw(LONG.encode(), b"v")
    db.put_raw_many([])
    db.put_raw_many([(LONG.encode(), b"v"), (b"sm:y", b"w")])
    assert (db.get_raw(b"sm:x"), db.get_raw(b"sm:y")) == (b"\0v", b"w")


# Runs


def test_s4_17_a_run_is_read_as_it_was_written(opener: Opener) -> None:
    db, told = opener(), manifest("r1", load="skipped", train="ran")
    db.write_run(told)
    assert opener().read_run("r1") == told
    assert db.read_run("r2") is None
    again = manifest("r1", load="failed")
    db.write_run(again)
    assert db.read_run("r1") == again
    assert db.list_runs() == [again]


def test_w4_11_the_newest_run_is_the_one_that_was_recorded_last(db: StateDB) -> None:
    ids = ["20250110_143000_ffffffff", "20250110_143000_00000000", "20250110_143000_88888888"]
    for run_id in ids:
        db.write_run(manifest(run_id))
    assert [run["run_id"] for run in db.list_runs()] == ids[::-1]
    assert [run["run_id"] for run in db.list_runs(limit=2)] == [ids[2], ids[1]]


def test_w4_11_a_run_that_is_recorded_again_after_it_was_dropped_is_the_newest(db: StateDB) -> None:
    for run_id in ("r1", "r2"):
        db.write_run(manifest(run_id))
    db.prune_runs(1)
    db.write_run(manifest("r1"))
    assert [run["run_id"] for run in db.list_runs()] == ["r1", "r2"]


def test_w4_12_a_run_is_read_while_it_goes_on(db: StateDB, shared: Ledger) -> None:
    with shared.open(OpenRun, db.project, "r") as run:
        run.start([], ["a"])
        run.start_stage("a")
    db.put_raw(b"k", b"v")
    db.increment_generation(Path("x"))  # any write brings the copy up to date
    found = db.read_run("r")
    assert found is not None
    assert (found["ended_at"], found["stages"]["a"]["status"]) == (None, "in_progress")


def test_s4_17_pruning_keeps_the_newest_and_drops_their_run_cache(db: StateDB, shared: Ledger) -> None:
    for nth in range(4):
        db.write_run(manifest(f"r{nth}"))
        db.write_run_cache("s", f"i{nth}", entry(f"r{nth}"))
    db.write_run_cache("s", "commit", entry(COMMITTED))
    before = events(shared, db)
    assert db.prune_runs(4) == 0
    assert events(shared, db) == before
    assert db.prune_runs(2) == 2
    assert [run["run_id"] for run in db.list_runs()] == ["r3", "r2"]
    assert [db.lookup_run_cache("s", f"i{nth}") is None for nth in range(4)] == [True, True, False, False]
    assert db.read_run("r0") is None
    assert db.lookup_run_cache("s", "commit") is not None


def test_w4_05_pruning_is_one_append_however_many_runs_there_are(db: StateDB, shared: Ledger) -> None:
    for nth in range(3):
        db.write_run(manifest(f"r{nth}", a="ran"))
    db.prune_runs(1)
    last = shared.read(OpenRun.name_of(db.project, "r0"), backwards=True)[0]
    assert (last.topic, len(shared.recorded_with(last))) == ("build.run_dropped", 2)


# Run cache


def test_s4_18_an_entry_is_overwritten_and_stages_are_independent(db: StateDB) -> None:
    assert db.lookup_run_cache("s", "i") is None
    db.write_run_cache("s", "i", entry("r1", ("o", "1f")))
    db.write_run_cache("t", "i", entry("r2", ("o", "2e")))
    whole = entry("r3", ("o", "3d"), ("p", "4c"))
    whole["output_hashes"][1]["manifest"] = [{"relpath": "x/y", "hash": "5b", "size": 3, "isexec": True}]
    db.write_run_cache("s", "i", whole)
    assert db.lookup_run_cache("s", "i") == whole
    assert db.lookup_run_cache("t", "i") == entry("r2", ("o", "2e"))


def test_s4_18_entries_of_other_runs_are_pruned_but_not_those_of_commits(db: StateDB) -> None:
    for run_id in ("r1", "r2", COMMITTED):
        db.write_run_cache("s", f"of {run_id}", entry(run_id))
        db.write_run_cache("t", f"of {run_id}", entry(run_id))
    assert db.prune_run_cache({"r1", "unknown"}) == 2
    assert db.prune_run_cache({"r1"}) == 0
    assert [db.lookup_run_cache("s", f"of {run}") is None for run in ("r1", "r2", COMMITTED)] == [
        False,
        True,
        False,
    ]
    db.write_run_cache("s", "of r2", entry("r2"))
    assert db.lookup_run_cache("s", "of r2") is not None


def test_w4_13_hashes_that_share_their_first_digits_are_apart(db: StateDB) -> None:
    same, one, other = "0123456789abcdef", "1" * 48, "2" * 48
    db.write_run_cache("s", same + one, entry("r1"))
    assert db.lookup_run_cache("s", same + other) is None
    assert db.lookup_run_cache("s", same) is None


# Deferred writes


def test_s4_21_deferred_writes_are_recorded_together(db: StateDB, shared: Ledger, tmp_path: Path) -> None:
    out, before = tmp_path / "out.csv", shared.bound()
    deferred: DeferredWrites = {
        "dep_generations": {"/dep.csv": 10},
        "run_cache_input_hash": "i",
        "run_cache_entry": entry("r", (str(out), "def456")),
        "increment_outputs": True,
    }
    db.apply_deferred_writes("stage", [str(out), "plain"], deferred)
    assert db.get_dep_generations("stage") == {"/dep.csv": 10}
    assert (db.get_generation(out), db.get_generation(Path("plain"))) == (1, 1)
    assert db.lookup_run_cache("stage", "i") == deferred["run_cache_entry"]
    found = shared.log(before, shared.bound())
    assert len(shared.recorded_with(found[0])) == len(found) == 4
    assert shared.load(OpenOutput, db.project, "out.csv").state.hash == "def456"


def test_s4_22_outputs_are_raised_only_where_that_is_said(
    db: StateDB, shared: Ledger, tmp_path: Path
) -> None:
    out = str(tmp_path / "out")
    for deferred in ({"dep_generations": {"d": 1}}, {"increment_outputs": False}, {}):
        db.apply_deferred_writes("s", [out], deferred)  # type: ignore[arg-type]
        assert db.get_generation(Path(out)) is None
    before = events(shared, db)
    db.apply_deferred_writes("s", [], {"increment_outputs": True})
    assert events(shared, db) == before
    for nth in (1, 2):
        db.apply_deferred_writes("s", [out], {"increment_outputs": True})
        assert db.get_generation(Path(out)) == nth


def test_s4_21_an_entry_needs_both_of_its_keys(db: StateDB) -> None:
    db.apply_deferred_writes("s", [], {"run_cache_input_hash": "i"})
    db.apply_deferred_writes("s", [], {"run_cache_entry": entry("r")})
    assert db.lookup_run_cache("s", "i") is None


@pytest.mark.parametrize(
    ("outputs", "deferred"),
    [
        ([LONG], {"increment_outputs": True}),
        ([], {"dep_generations": {LONG: 1, "ok": 2}}),
        ([], {"run_cache_input_hash": LONG, "run_cache_entry": entry("r")}),
    ],
)
def test_s4_22_a_long_path_stores_nothing(
    db: StateDB, shared: Ledger, outputs: list[str], deferred: Any
) -> None:
    all_of_it = {"dep_generations": {"ok": 1}, **deferred}
    with pytest.raises(PathTooLongError):
        db.apply_deferred_writes("s", ["fine", *outputs], all_of_it)
    assert (db.get_dep_generations("s"), db.get_generation(Path("fine")), events(shared, db)) == (
        None,
        None,
        0,
    )


def test_s4_23_w4_02_back_to_a_former_content_is_another_generation(
    db: StateDB, shared: Ledger, tmp_path: Path
) -> None:
    """The original's counter stays at 2; here a restored content is a change like any other."""
    out = tmp_path / "out"
    for nth, content in enumerate(["A", "B", "A", "A"], 1):
        deferred: DeferredWrites = {
            "increment_outputs": True, "run_cache_input_hash": content,
            "run_cache_entry": entry("r", (str(out), content)),
        }  # fmt: skip
        db.apply_deferred_writes("s", [str(out)], deferred)
        assert db.get_generation(out) == min(nth, 3)


# Weaknesses


def test_w4_06_a_long_key_is_one_error_in_every_method(db: StateDB, shared: Ledger, tmp_path: Path) -> None:
    stat, deep = tmp_path.stat(), tmp_path / "/".join(["a"] * 252)
    calls: list[Callable[[], object]] = [
        lambda: db.get(tmp_path / LONG, stat),
        lambda: db.get_many([(tmp_path / LONG, stat)]),
        lambda: db.save(tmp_path / LONG, stat, "h"),
        lambda: db.get_generation(tmp_path / LONG),
        lambda: db.get_many_generations([tmp_path / LONG]),
        lambda: db.increment_generation(deep),
        lambda: db.record_dep_generations("s", {LONG: 1}),
        lambda: db.record_dep_generations(LONG, {"d": 1}),
        lambda: db.get_dep_generations(LONG),
        lambda: db.remote_hash_exists("r", LONG),
        lambda: db.remote_hashes_intersection(LONG, {"h"}),
        lambda: db.remote_hashes_add("r", [LONG]),
        lambda: db.remote_hashes_remove("r", [LONG]),
        lambda: db.remote_index_clear(LONG),
        lambda: db.get_raw(LONG.encode()),
        lambda: db.write_run(manifest(LONG)),
        lambda: db.write_run(manifest("r", **{LONG: "ran"})),
        lambda: db.read_run(LONG),
        lambda: db.write_run_cache("s", LONG, entry("r")),
        lambda: db.write_run_cache("s", "i", entry(LONG)),
        lambda: db.lookup_run_cache("s", LONG),
    ]
    for call in calls:
        with pytest.raises(PathTooLongError):
            call()
    assert events(shared, db) == 0


def test_w4_08_a_moved_checkout_keeps_its_state(opener: Opener, tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    (old / "data").mkdir(parents=True)
    (old / "data" / "in").write_text("content")
    with opener(folder=old) as db:
        db.increment_generation(old / "out")
        db.save(old / "data" / "in", (old / "data" / "in").stat(), "abc")
    old.rename(new)
    moved = opener(folder=new)
    assert moved.get_generation(new / "out") == 1
    assert moved.get(new / "data" / "in", (new / "data" / "in").stat()) == "abc"


def test_w4_09_a_deleted_store_loses_no_history(opener: Opener, tmp_path: Path) -> None:
    with opener() as db:
        db.increment_generation(tmp_path / "x")
        db.write_run(manifest("r", a="ran"))
        db.write_run_cache("s", "i", entry("r"))
        db.record_dep_generations("s", {"d": 1})
        db.remote_hashes_add("origin", ["h"])
    shutil.rmtree(tmp_path / "state.lmdb")
    again = opener()
    assert again.get_generation(tmp_path / "x") == 1
    assert again.read_run("r") == manifest("r", a="ran")
    assert again.lookup_run_cache("s", "i") == entry("r")
    assert again.get_dep_generations("s") == {"d": 1}
    assert again.remote_hash_exists("origin", "h")


def test_two_projects_in_one_ledger_are_apart(opener: Opener, tmp_path: Path) -> None:
    one, other = opener(), opener(folder=tmp_path / "other", project="another of them")
    one.increment_generation(tmp_path / "x")
    one.write_run(manifest("r"))
    assert other.get_generation(tmp_path / "other" / "x") is None
    assert other.list_runs() == []


# Formats of runs (spec S4-30 to S4-36)


def test_s4_32_what_is_no_manifest_is_refused_and_nothing_is_recorded(db: StateDB, shared: Ledger) -> None:
    whole: Any = manifest("r", a="ran")
    for wrong, said in (
        (
            {**whole, "stages": {"a": {**whole["stages"]["a"], "status": "gone"}}},
            "Invalid status 'gone' for stage 'a'",
        ),
        ({key: value for key, value in whole.items() if key != "ended_at"}, "missing keys: ended_at"),
    ):
        with pytest.raises(ValueError, match=said):
            db.write_run(wrong)
    with pytest.raises(ValueError, match="missing keys: output_hashes"):
        db.write_run_cache("s", "i", {"run_id": "r"})  # type: ignore[typeddict-item]
    assert events(shared, db) == 0


def test_s4_35_a_retention_is_above_zero(db: StateDB) -> None:
    with pytest.raises(BadInput, match="retention 0 must be an integer, 1 or more"):
        db.prune_runs(0)


def test_s4_30_run_ids_of_one_second_are_unique(db: StateDB) -> None:
    ids = sorted({new_run_id(datetime.now(UTC).replace(microsecond=0)) for _ in range(20)})
    for run_id in ids:
        db.write_run(manifest(run_id))
    assert [run["run_id"] for run in db.list_runs()] == ids[::-1]


def test_the_stage_of_deferred_writes_keeps_its_claim(db: StateDB, shared: Ledger) -> None:
    with shared.open(OpenStage, db.project, "s") as stage:
        stage.claim("host:7")
    db.record_dep_generations("s", {"d": 1})
    assert shared.load(OpenStage, db.project, "s").state.token == 1
