"""Names of builds: paths by identity, stages, run ids, streams."""

from __future__ import annotations

import os
import re
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger import BadName, split_name
from ledger.builds import OpenOutput, OpenStage
from ledger.builds.names import checked_project, checked_stage, new_run_id, path_in, path_of


@pytest.mark.parametrize(
    ("path", "identity"),
    [
        ("out.txt", "out.txt"),
        ("./a//b/../out.txt", "a/out.txt"),
        ("/data/p/a/out.txt", "a/out.txt"),
        ("models/", "models"),
        ("/data/p", "."),
        ("/data/pp/x", "/data/pp/x"),
        ("../x", "/data/x"),
        ("/elsewhere/./x", "/elsewhere/x"),
    ],
)
def test_a_path_is_relative_to_its_root(path: str, identity: str) -> None:
    assert path_in("/data/p", path) == identity
    assert path_in("/data/p/", Path(path)) == identity
    assert path_in("/data/p", path_of("/data/p", identity)) == identity


def test_w4_08_a_moved_checkout_has_the_same_paths() -> None:
    assert path_in("/old/p", "/old/p/a/x") == path_in("/new/place/p", "/new/place/p/a/x")
    assert path_in("/", "/a") == "a"


def test_a_link_and_its_target_are_two_paths(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert path_in(tmp_path, "link/x") != path_in(tmp_path, "real/x")


@pytest.mark.parametrize("name", ["train", "a/b@x", "A_1.2-3", "...", "a" * 200])
def test_a_stage_may_be_named_so(name: str) -> None:
    assert checked_stage(name) == name


@pytest.mark.parametrize("name", ["", "a b", "a:b", "../a", "a/..", "a\n", "a" * 201, "é", None])
def test_a_stage_may_not_be_named_so(name: object) -> None:
    with pytest.raises(BadName, match="stage"):
        checked_stage(name)


def test_a_project_has_a_name() -> None:
    assert checked_project("a/b c") == "a/b c"
    for wrong in ("", "a\0b", 7):
        with pytest.raises(BadName):
            checked_project(wrong)


def test_a_run_id_says_when_and_is_new_each_time() -> None:
    ids = [new_run_id(datetime(2026, 3, 25, 12, 1, 2, tzinfo=UTC)) for _ in range(50)]
    assert all(re.fullmatch(r"20260325_120102_[0-9a-f]{8}", one) for one in ids)
    assert len(set(ids)) == 50


parts = st.text(st.sampled_from("ab:/%._-é"), min_size=1, max_size=6)


@given(parts, parts, parts, parts)
def test_w4_07_streams_of_different_keys_never_meet(project: str, one: str, other: str, path: str) -> None:
    assert (OpenStage.name_of(project, one) == OpenStage.name_of(other, path)) == (
        (project, one) == (other, path)
    )
    assert split_name(OpenOutput.name_of(project, path)) == ("build_output", (project, path))


@given(st.lists(st.sampled_from(["a", "b", "..", ".", ""]), max_size=6))
def test_an_identity_is_that_of_the_normal_path(parts: list[str]) -> None:
    path = "/".join(parts)
    assert path_of("/r/p", path_in("/r/p", path)) == Path(os.path.normpath(Path("/r/p", path)))
