"""What is in files and folders has one name; the content cache gives it back exactly, or not at all."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consumers.builds.content_cache import Collected, ContentCache, Link, remove
from consumers.builds.hashing import Identity, Workspace, identity_of


class Known:
    """A hash cache that forgets nothing, and says what it was given."""

    def __init__(self) -> None:
        self.kept: dict[tuple[str, int, int, int], str] = {}

    def get_many(self, files: list[tuple[str, os.stat_result]]) -> list[str | None]:
        return [self.kept.get(self._key(path, what)) for path, what in files]

    def save_many(self, files: list[tuple[str, os.stat_result, str]], seen_at: int) -> None:
        self.kept.update({self._key(path, what): digest for path, what, digest in files})

    def _key(self, path: str, what: os.stat_result) -> tuple[str, int, int, int]:
        return path, what.st_mtime_ns, what.st_size, what.st_ino


@pytest.fixture(params=["copy", "hardlink"])
def cache(request: pytest.FixtureRequest, tmp_path: Path) -> ContentCache:
    link: Link = request.param
    return ContentCache(tmp_path / "cache", tmp_path / "scratch", link)


def made(folder: Path, files: dict[str, bytes | None], executable: frozenset[str] = frozenset()) -> Path:
    """A folder with files; None is an empty folder."""
    folder.mkdir(parents=True)
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if data is None:
            path.mkdir()
        else:
            path.write_bytes(data)
            path.chmod(0o755 if name in executable else 0o644)
    return folder


def what_is_in(folder: Path) -> dict[str, object]:
    """All files of a folder, with their bytes and whether they may be executed."""
    return {
        path.relative_to(folder).as_posix(): (path.read_bytes(), bool(path.stat().st_mode & stat.S_IXUSR))
        if path.is_file() else None
        for path in sorted(folder.rglob("*"))
    }  # fmt: skip


FILES: dict[str, bytes | None] = {
    "a": b"1",
    "b/c": b"",
    "b/run": b"#!",
    "same": b"1",
    "tool": b"1",
    "e": None,
}


def test_a_folder_and_a_file_have_different_names_and_so_has_another_mode(tmp_path: Path) -> None:
    folder = made(tmp_path / "d", FILES)
    before = identity_of(folder)
    assert before.hash.endswith(".dir")
    assert before.manifest is not None
    assert [entry.path for entry in before.manifest] == ["a", "b/c", "b/run", "e/", "same", "tool"]
    assert (
        identity_of(folder / "a").hash == "6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b"
    )
    (folder / "a").chmod(0o755)
    assert identity_of(folder / "a").hash.endswith("b4b.x")
    assert identity_of(folder).hash != before.hash
    (folder / "a").chmod(0o644)
    assert identity_of(folder) == before


def test_all_files_are_read_once(tmp_path: Path) -> None:
    made(tmp_path / "d", FILES)
    workspace = Workspace(tmp_path, Known())
    first = workspace.look(["d", "d/a", "d/b/", "no", "d/a/no"])
    second = workspace.look(["d", "d/a", "d/b/"])
    assert second == {path: first[path] for path in ("d", "d/a", "d/b/")}
    assert [first[path].fresh for path in second] == [True] * 3  # type: ignore[union-attr]
    assert [second[path].fresh for path in second] == [False] * 3  # type: ignore[union-attr]
    (tmp_path / "d" / "a").write_bytes(b"12")
    third = workspace.look(["d", "d/a", "d/b/"])
    assert [third[path].fresh for path in second] == [True, True, False]  # type: ignore[union-attr]
    assert isinstance(first["no"], FileNotFoundError)
    assert isinstance(first["d/a/no"], NotADirectoryError)


def test_what_has_no_content_is_an_error_and_not_a_hash(tmp_path: Path) -> None:
    os.mkfifo(made(tmp_path / "d", {}) / "pipe")
    made(tmp_path / "e", {})
    (tmp_path / "e" / "up").symlink_to(tmp_path / "e")
    made(tmp_path / "f", {})
    (tmp_path / "f" / "dangling").symlink_to("nowhere")
    found = Workspace(tmp_path, Known()).look(["d", "d/pipe", "e", "f"])
    assert all(isinstance(one, OSError) for one in found.values())
    assert "leads back" in str(found["e"])


@settings(max_examples=15)
@given(st.data())
def test_what_was_stored_comes_back_to_the_byte(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    root = tmp_path_factory.mktemp("law")
    files = data.draw(st.dictionaries(
        st.sampled_from(["a", "b/c", "b/d/e", "x y", "ü"]), st.one_of(st.binary(max_size=9)), max_size=5,
    ))  # fmt: skip
    executable = frozenset(data.draw(st.sets(st.sampled_from(["a", "b/c", "ü"]))))
    cache = ContentCache(root / "cache", root / "scratch", data.draw(st.sampled_from(["copy", "hardlink"])))
    folder = made(root / "d", dict(files), executable)
    identity, content = identity_of(folder), what_is_in(folder)
    cache.store(folder, identity)
    assert cache.holds(identity.hash)
    assert what_is_in(folder) == content
    assert cache.restore(identity.hash, root / "sub" / "other")
    assert what_is_in(root / "sub" / "other") == content
    assert identity_of(root / "sub" / "other") == identity


def test_a_damaged_object_is_missing_and_never_restored(cache: ContentCache, tmp_path: Path) -> None:
    folder = made(tmp_path / "d", FILES)
    identity = identity_of(folder)
    cache.store(folder, identity)
    remove(folder)
    (broken,) = [path for path in cache.folder.glob("*/*") if path.read_bytes() == b"#!"]
    broken.chmod(0o644)
    broken.write_bytes(b"##")
    (tmp_path / "d").write_bytes(b"keep me")
    assert not cache.restore(identity.hash, tmp_path / "d")
    assert (tmp_path / "d").read_bytes() == b"keep me"
    assert not cache.holds(identity.hash)
    assert not cache.restore("0" * 64, tmp_path / "d")
    assert [*(tmp_path / "scratch").iterdir()] == []


def test_a_file_takes_the_place_of_whatever_is_there(cache: ContentCache, tmp_path: Path) -> None:
    made(tmp_path / "d", FILES)
    tool, folder = identity_of(tmp_path / "d" / "tool"), identity_of(tmp_path / "d")
    cache.store(tmp_path / "d" / "tool", tool)
    cache.store(tmp_path / "d", folder)
    place = tmp_path / "place"
    for identity in (tool, folder, tool, folder):
        assert cache.restore(identity.hash, place)
        assert identity_of(place) == identity


def test_what_changes_while_it_is_stored_is_refused(cache: ContentCache, tmp_path: Path) -> None:
    path = made(tmp_path / "d", {"a": b"new"}) / "a"
    with pytest.raises(OSError, match="changed while it was stored"):
        cache.store(path, Identity("0" * 64))
    assert not cache.holds("0" * 64)
    assert [*cache.folder.glob("*/*")] == []


def test_collecting_keeps_what_is_named_and_the_files_of_folders(cache: ContentCache, tmp_path: Path) -> None:
    kept, gone = (
        made(tmp_path / "kept", {"a": b"1", "b": b"2"}),
        made(tmp_path / "gone", {"a": b"1", "c": b"33"}),
    )
    for folder in (kept, gone):
        cache.store(folder, identity_of(folder))
    keep = [identity_of(kept).hash]
    assert cache.collect(keep, dry_run=True) == cache.collect(keep)
    assert cache.collect(keep) == Collected(kept=3)
    assert cache.holds(keep[0])
    assert not cache.holds(identity_of(gone).hash)
