"""
Names of builds: projects, stages, runs, and the identity of a path.

A path in a fact is relative to the root of its project, in POSIX form, without `.` and `..`; symbolic links
are kept, so that a link and its target are two paths (spec S4-12). A checkout that is moved keeps its history
(W4-08). A path outside of the root stays absolute.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Callable
from datetime import datetime
from pathlib import Path, PurePath
from typing import Final

from ..domain.names import stream_name
from ..errors import BadName

LONGEST_STAGE: Final = 200
"""Maximum number of characters in the name of a stage (spec S4-41)."""
COMMITTED: Final = "__committed__"
"""The run id of what `commit` records without a run; the run cache never drops it (spec S4-18)."""

_STAGE = re.compile(r"[A-Za-z0-9_@./-]+\Z")


def checked_stage(name: object) -> str:
    """The name of a stage itself, if a build file may use it (spec S4-41). Raises BadName."""
    if not isinstance(name, str) or not _STAGE.match(name) or len(name) > LONGEST_STAGE:
        raise BadName(
            "stage", name, f"must be 1 to {LONGEST_STAGE} letters, digits, '_', '@', '.', '/' or '-'"
        )
    if ".." in name.split("/"):
        raise BadName("stage", name, "must not contain the part '..'")
    return name


def checked_project(name: object) -> str:
    """The name of a build project itself: text that is not empty. Raises BadName."""
    if not isinstance(name, str) or not name:
        raise BadName("project", name, "must be text that is not empty")
    stream_name("build_stage", name)
    return name


def paths_in(root: str | PurePath) -> Callable[[str | PurePath], str]:
    """A function that returns the identity of a path in a project, for many paths: see `path_in`."""
    top = os.path.normpath(root)
    below = top if top.endswith(os.sep) else top + os.sep

    def identity(path: str | PurePath) -> str:
        text = os.fspath(path)
        whole = os.path.normpath(text if text.startswith(os.sep) else below + text)
        if whole.startswith(below):
            return whole[len(below) :] or "."
        return "." if whole == top else whole

    return identity


def path_in(root: str | PurePath, path: str | PurePath) -> str:
    """The identity of a path: relative to the root where it is below it, else absolute; links are kept.

    root: an absolute folder. A relative path is one below the root.
    """
    return paths_in(root)(path)


def path_of(root: str | PurePath, identity: str) -> Path:
    """The place of a path by its identity; the inverse of `path_in`."""
    return Path(root, identity)


def new_run_id(now: datetime) -> str:
    """A new run id: `YYYYMMDD_HHMMSS_` and 8 random hexadecimal digits (spec S4-30). now: aware, UTC."""
    return f"{now:%Y%m%d_%H%M%S}_{secrets.token_hex(4)}"
