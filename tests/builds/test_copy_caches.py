"""Caches of the local copy: a hash is valid for one file as it was, and racy ones are never stored."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ledger import InvalidAstHashKeyError, PathTooLongError, StateDBClosed, StateDBReadonly
from projections.builds.caches import COARSE_TICK, TICK, FileHash, Fingerprint, is_racy
from projections.builds.copy import BuildCopy

LONG_AGO = 1_700_000_000_123_456_789
LATER = LONG_AGO + 60_000_000_000


@pytest.fixture
def copy(tmp_path: Path) -> Iterator[BuildCopy]:
    """A copy without a ledger."""
    with BuildCopy(None, tmp_path / "builds", "p") as opened:
        yield opened


def stat_of(mtime_ns: int = LONG_AGO, size: int = 3, inode: int = 7, ctime_ns: int | None = None) -> Any:
    """Metadata of a file; without the time of change where that is None."""
    found = SimpleNamespace(st_mtime_ns=mtime_ns, st_size=size, st_ino=inode)
    if ctime_ns is not None:
        found.st_ctime_ns = ctime_ns
    return found


def test_a_hash_is_found_for_the_same_metadata_only(copy: BuildCopy) -> None:
    """S4-10, and the time of change where it is known."""
    assert copy.save_hashes([FileHash("a", stat_of(ctime_ns=LONG_AGO + 1), "1f")], LATER) == 1
    assert copy.hash_of("a", stat_of(ctime_ns=LONG_AGO + 1)) == "1f"
    assert copy.hash_of("a", stat_of()) == "1f"
    others = [
        stat_of(mtime_ns=LONG_AGO + 1), stat_of(size=4), stat_of(inode=8), stat_of(ctime_ns=LONG_AGO + 2),
    ]  # fmt: skip
    assert [copy.hash_of("a", stat) for stat in others] == [None] * 4
    assert copy.hash_of("b", stat_of()) is None
    copy.save_hashes([FileHash("a", stat_of(mtime_ns=-5), "2e")], LATER)  # before 1970
    assert (copy.hash_of("a", stat_of(mtime_ns=-5, ctime_ns=9)), copy.hash_of("a", stat_of())) == ("2e", None)


def test_many_hashes_are_stored_together_or_not_at_all(copy: BuildCopy) -> None:
    """S4-11."""
    files = [FileHash("a", stat_of(), "1"), FileHash("x" * 600, stat_of(), "2")]
    with pytest.raises(PathTooLongError, match="605 bytes, more than the maximum of 511"):
        copy.save_hashes(files, LATER)
    assert copy.hash_of("a", stat_of()) is None
    with pytest.raises(PathTooLongError):
        copy.hash_of("x" * 600, stat_of())


def test_w4_10_a_file_written_a_moment_ago_is_racy() -> None:
    assert is_racy(LONG_AGO, LONG_AGO)
    assert is_racy(LONG_AGO, LONG_AGO + TICK - 1)
    assert not is_racy(LONG_AGO, LONG_AGO + TICK)
    whole = LONG_AGO // 10**9 * 10**9  # of a file system that keeps no fractions
    assert is_racy(whole, whole + COARSE_TICK - 1)
    assert not is_racy(whole, whole + COARSE_TICK)
    assert is_racy(LONG_AGO, LONG_AGO - 1)  # the clock was set back


def test_w4_10_an_edit_of_the_same_size_in_the_same_tick_is_not_missed(
    copy: BuildCopy, tmp_path: Path
) -> None:
    """The file's times are set by hand to those before the edit: what a coarse clock does."""
    file = tmp_path / "a"
    file.write_text("old")
    before, seen_at = file.stat(), time.time_ns()
    assert copy.save_hashes([FileHash("a", before, "of old")], seen_at) == 0
    file.write_text("new")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    as_if = stat_of(before.st_mtime_ns, 3, before.st_ino, before.st_ctime_ns)
    assert copy.hash_of("a", as_if) is None


def test_w4_10_a_file_that_was_copied_over_with_its_times_is_not_missed(
    copy: BuildCopy, tmp_path: Path
) -> None:
    file, other = tmp_path / "a", tmp_path / "b"
    file.write_text("old")
    os.utime(file, ns=(LONG_AGO, LONG_AGO))
    before = file.stat()
    assert copy.save_hashes([FileHash("a", before, "of old")], before.st_ctime_ns + TICK) == 1
    assert copy.hash_of("a", file.stat()) == "of old"
    other.write_text("new")
    os.utime(other, ns=(LONG_AGO, LONG_AGO))
    while time.time_ns() < before.st_ctime_ns + TICK:
        pass
    shutil.copy2(other, file)
    now = file.stat()
    assert (now.st_mtime_ns, now.st_size, now.st_ino) == (before.st_mtime_ns, before.st_size, before.st_ino)
    assert copy.hash_of("a", now) is None


def test_w4_08_a_copied_tree_is_hashed_again_and_a_moved_one_is_not(copy: BuildCopy, tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "a").write_text("old")
    os.utime(tree / "a", ns=(LONG_AGO, LONG_AGO))
    before = (tree / "a").stat()
    copy.save_hashes([FileHash("a", before, "1f")], before.st_ctime_ns + TICK)
    shutil.copytree(tree, tmp_path / "copied")
    tree.rename(tmp_path / "moved")
    assert copy.hash_of("a", (tmp_path / "copied" / "a").stat()) is None
    assert copy.hash_of("a", (tmp_path / "moved" / "a").stat()) == "1f"


def print_of(path: str = "a.py", **other: Any) -> Fingerprint:
    """A fingerprint's key."""
    fields = dict(
        rel_path=path, mtime_ns=LONG_AGO, size=3, inode=7, qualname="f", py_version="3.12", schema_version="1"
    )
    return Fingerprint(**{**fields, **other})


def test_fingerprints(copy: BuildCopy) -> None:
    """S4-15: one transaction, invalid ones are left out."""
    bad = [
        print_of(""), print_of(qualname=""), print_of(py_version=""), print_of(schema_version=""),
        print_of(qualname="f\0g"), print_of("x" * 500),
    ]  # fmt: skip
    good = [print_of(), print_of(qualname="g"), print_of(inode=8)]
    assert copy.save_fingerprints([(one, one.qualname) for one in (*bad, *good)], LATER) == 3
    assert [copy.fingerprint(one) for one in good] == ["f", "g", "f"]
    assert copy.fingerprint(print_of(size=4)) is None
    for one in bad:
        with pytest.raises(InvalidAstHashKeyError):
            copy.fingerprint(one)
    copy.put_raw([(b"fp:a", b"1")])
    assert copy.clear_fingerprints() == 3
    assert (copy.fingerprint(good[0]), copy.raw(b"fp:a")) == (None, b"1")


def test_raw_entries_meet_no_others(copy: BuildCopy) -> None:
    """S4-16; a program may choose names that look like those of other entries."""
    copy.save_hashes([FileHash("a", stat_of(), "1f")], LATER)
    assert copy.raw(b"hash:a") is None
    copy.put_raw([(b"hash:a", b"x"), (b"", b"empty")])
    copy.put_raw([])
    assert (copy.raw(b"hash:a"), copy.raw(b"")) == (b"x", b"empty")
    assert copy.hash_of("a", stat_of()) == "1f"
    with pytest.raises(PathTooLongError):
        copy.put_raw([(b"a", b"1"), (b"x" * 508, b"2")])
    assert copy.raw(b"a") is None


def test_w4_09_entries_of_files_that_are_gone_or_changed_are_deleted(copy: BuildCopy, tmp_path: Path) -> None:
    stats = {}
    for name in ("kept.py", "changed.py", "gone.py"):
        (tmp_path / name).write_text("x")
        stats[name] = (tmp_path / name).stat()
    later = max(stat.st_ctime_ns for stat in stats.values()) + COARSE_TICK
    copy.save_hashes([FileHash(name, stat, "1") for name, stat in stats.items()], later)
    prints = [
        print_of(name, mtime_ns=stat.st_mtime_ns, size=1, inode=stat.st_ino) for name, stat in stats.items()
    ]
    copy.save_fingerprints([(one, "2") for one in prints], later)
    (tmp_path / "changed.py").write_text("longer")
    (tmp_path / "gone.py").unlink()
    assert copy.gc(tmp_path) == 4
    assert [copy.hash_of(name, stat) for name, stat in stats.items()] == ["1", None, None]
    assert [copy.fingerprint(one) for one in prints] == ["2", None, None]
    assert copy.gc(tmp_path) == 0


def test_modes(tmp_path: Path) -> None:
    """S4-02, S4-03: what is read-only refuses to write, and what is closed refuses everything."""
    with BuildCopy(None, tmp_path, "p") as writes, BuildCopy(None, tmp_path, "p", readonly=True) as reads:
        writes.put_raw([(b"a", b"1")])
        assert reads.raw(b"a") == b"1"
        for act in (
            lambda: reads.put_raw([]), lambda: reads.save_hashes([], 0), reads.rebuild, reads.catch_up,
            lambda: reads.save_fingerprints([], 0), reads.clear_fingerprints, lambda: reads.gc(tmp_path),
            reads.follow,
        ):  # fmt: skip
            with pytest.raises(StateDBReadonly, match="readonly StateDB"):
                cast("Any", act)()
    reads.close()
    for act in (lambda: writes.raw(b"a"), lambda: reads.put_raw([]), lambda: writes.position):
        with pytest.raises(StateDBClosed, match="Cannot operate on closed StateDB"):
            cast("Any", act)()
