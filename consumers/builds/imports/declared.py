"""A build file of imported stages, so that `pledger builds run` goes on where the other tool stopped."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import tomli_w

from .locked import LockedPath, LockedStage

_TEMPLATE: Final = re.compile(r"\$\{(item|key|params)(?=[.}])")


def build_file(project: str, root: Path, stages: Iterable[LockedStage]) -> str:
    """The text of a build file with all stages that have a command; paths are relative to the root."""
    declared = {stage.name: declaration(root, stage) for stage in stages if stage.command is not None}
    return tomli_w.dumps({"project": {"name": project}, "stages": declared})


def declaration(root: Path, stage: LockedStage) -> dict[str, Any]:
    """A stage as a build file declares it; without dependencies in a remote store, which no runner reads."""
    found = {
        "command": command(root, stage),
        "deps": [path for path in (stage.identity(root, dep) for dep in stage.deps) if "://" not in path],
        "outs": [_out(stage.identity(root, out), out) for out in stage.outs],
        "params": [*stage.params],
    }
    return {name: value for name, value in found.items() if value}


def command(root: Path, stage: LockedStage) -> str:
    """The command as a build file in the root has it, with `$${` for what would be a template there."""
    assert stage.command is not None
    text = _TEMPLATE.sub(r"$${\1", stage.command)
    folder = os.path.relpath(stage.folder, root)
    return text if folder == "." else f"cd {shlex.quote(folder)} && {text}"


def _out(path: str, out: LockedPath) -> str | dict[str, Any]:
    return path if out.cached else {"path": path, "cache": False}
