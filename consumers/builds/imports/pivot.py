"""
The stage locks of pivot: `.pivot/stages/STAGE.lock`, YAML, one file a stage (spec S4-41).

A lock holds what a stage was last run with, but not how it is run: its code is a manifest of fingerprints of
Python functions.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, Literal

from ledger.builds.names import checked_stage
from ledger.errors import BadFile

from ..yaml_text import Yaml11, read_yaml
from .locked import Lenient, LockedPath, LockedStage, checked

STAGES: Final = Path(".pivot", "stages")
ENDING: Final = ".lock"


class _Entry(Lenient):
    path: str
    hash: str


class _Lock(Lenient):
    """The keys of a stage lock; all but the version are required, and none may be null."""

    schema_version: Literal[1] = 1
    code_manifest: dict[str, str]
    params: dict[str, Any]
    deps: list[_Entry]
    outs: list[_Entry]
    dep_generations: dict[str, int]


def find_pivot_locks(project: Path) -> Iterator[Path]:
    """The stage locks below the folder of a project, by name."""
    yield from sorted(path for path in (project / STAGES).rglob(f"*{ENDING}") if path.is_file())


def read_pivot_lock(path: Path) -> LockedStage:
    """The stage of a lock file, named by its path below `.pivot/stages`. Raises BadFile, BadName, OSError.

    pivot itself takes a lock that it cannot read for absent; here it is refused, and the error says why.
    """
    value = read_yaml(path, Yaml11)
    if not isinstance(value, dict):
        raise BadFile(str(path), "", "is no stage lock of pivot: it must be a mapping, and not be empty")
    lock = checked(_Lock, value, path)
    name, folder = _place(path)
    deps, outs = (
        tuple(LockedPath(entry.path, f"xxh64:{entry.hash}") for entry in entries)
        for entries in (lock.deps, lock.outs)
    )
    return LockedStage(name, folder, lock.code_manifest, lock.params, deps, outs)


def _place(path: Path) -> tuple[str, Path]:
    """The name of a lock's stage, and the folder of its project."""
    whole = path.absolute()
    for folder in whole.parents:
        if folder.parts[-2:] == STAGES.parts:
            name = whole.relative_to(folder).as_posix().removesuffix(ENDING)
            return checked_stage(name), folder.parents[1]
    raise BadFile(str(path), "", f"is not below a folder {STAGES}, so its stage has no name")
