"""
`dvc.lock` of DVC 2 and later (schema 2.0), YAML, all stages in one file; with the `dvc.yaml` beside it.

Paths and commands start in the working folder of their stage, which only dvc.yaml knows; so it is read where
it is there. Hashes are MD5; of a folder that of a JSON list of its files.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from ledger.builds.names import checked_stage
from ledger.errors import BadFile

from ..yaml_text import read_yaml
from .locked import Lenient, LockedPath, LockedStage, checked

SCHEMA: Final = "2.0"
FILES: Final = "dvc.yaml"
"""Where the stages are declared."""
ALGORITHMS: Final = ("md5", "etag", "checksum")
"""The names of hashes: of local files, of object stores, of HDFS."""


class _Entry(Lenient):
    path: str
    md5: str | None = None
    etag: str | None = None
    checksum: str | None = None
    isexec: bool = False


class _Stage(Lenient):
    cmd: str | list[str]
    deps: list[_Entry] = []
    params: dict[str, dict[str, Any]] = {}
    outs: list[_Entry] = []


class _Declared(Lenient):
    """What dvc.yaml says of a stage, as far as the lock does not repeat it."""

    wdir: str = "."
    outs: list[str | dict[str, Any]] = []
    metrics: list[str | dict[str, Any]] = []
    plots: list[str | dict[str, Any]] = []

    def uncached(self) -> set[str]:
        """The outputs of which DVC keeps no copy."""
        several = (one for one in (*self.outs, *self.metrics, *self.plots) if isinstance(one, dict))
        return {
            path for one in several for path, more in one.items()
            if isinstance(more, dict) and more.get("cache") is False
        }  # fmt: skip


def read_dvc_lock(path: Path) -> list[LockedStage]:
    """The stages of a dvc.lock, in its order. Raises BadFile, BadName, OSError."""
    value = read_yaml(path)
    if not isinstance(value, dict) or not isinstance(value.get("stages", {}), dict):
        raise BadFile(str(path), "", "is no dvc.lock: it must be a mapping with `schema` and `stages`")
    if str(value.get("schema")) != SCHEMA:
        raise BadFile(
            str(path), "schema", f"must be '{SCHEMA}', which DVC 2 and later write: run `dvc commit` with one"
        )
    declared = _declared(path.with_name(FILES))
    return [
        _stage(checked_stage(str(name)), checked(_Stage, stage, path, f"stages.{name}"), declared, path)
        for name, stage in value.get("stages", {}).items()
    ]


def _declared(path: Path) -> Mapping[str, Any]:
    """The stages of dvc.yaml; none where there is no such file."""
    if not path.exists():
        return {}
    value = read_yaml(path)
    stages = value.get("stages") if isinstance(value, dict) else None
    return stages if isinstance(stages, dict) else {}


def _stage(name: str, stage: _Stage, declared: Mapping[str, Any], file: Path) -> LockedStage:
    found = declared.get(name, declared.get(name.partition("@")[0], {}))
    if isinstance(found, dict):
        found = found.get("do", found)  # of a stage with foreach
    known = checked(_Declared, found, file.with_name(FILES), f"stages.{name}")
    if "${" in known.wdir:
        raise BadFile(
            str(file.with_name(FILES)), f"stages.{name}.wdir", "depends on a variable: write it out"
        )
    command = stage.cmd if isinstance(stage.cmd, str) else " && ".join(stage.cmd)
    params = {f"{path}:{key}": value for path, keys in stage.params.items() for key, value in keys.items()}
    uncached = known.uncached()
    return LockedStage(
        name,
        file.absolute().parent / known.wdir,
        {"command": command},
        params,
        tuple(_locked(entry) for entry in stage.deps),
        tuple(_locked(entry, cached=entry.path not in uncached) for entry in stage.outs),
        command,
    )


def _locked(entry: _Entry, *, cached: bool = True) -> LockedPath:
    """The entry in our shape; one without a hash is `md5:unknown`, which equals nothing."""
    found = ((name, getattr(entry, name)) for name in ALGORITHMS)
    algorithm, digest = next((one for one in found if one[1]), ("md5", "unknown"))
    return LockedPath(entry.path, f"{algorithm}:{digest}", executable=entry.isexec, cached=cached)
