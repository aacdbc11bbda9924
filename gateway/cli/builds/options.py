"""What the commands of builds share: which build file, which project, how hashes are shown."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from ..errors import Misuse

if TYPE_CHECKING:
    from consumers.builds.build_file import BuildFile

NAME: Final = "pledger-build.toml"
"""The build file of a folder."""
PACKAGES: Final = ("lmdb", "tomli_w", "yaml")
"""What the extra `builds` brings."""
SHORT: Final = 10
"""Characters of a hash at a terminal."""
STATUSES: Final = {
    "ran": "green", "completed": "green", "skipped": "dim", "failed": "red", "in_progress": "yellow",
    "interrupted": "red", "cancelled": "yellow", "would run": "yellow",
    "may run": "yellow",
}  # fmt: skip
_HASH: Final = re.compile(r"(?:\w+:)?[0-9a-f]{16,64}(?:\.\w+)?")

File = Annotated[
    str | None,
    typer.Option("--file", metavar="FILE", help=f"The build file, or its folder. Default: {NAME} here."),
]
Project = Annotated[
    str | None,
    typer.Option("--project", metavar="NAME", help="The build project. Default: the one of the build file."),
]
Stage = Annotated[str, typer.Argument(metavar="STAGE", help="The name of a stage.")]
Run = Annotated[str | None, typer.Option("--run", metavar="ID", help="In this run. Default: the last.")]


def build_file_of(file: str | None) -> BuildFile:
    """The build file of an option. Raises Misuse where there is none, BadFile."""
    from consumers.builds.build_file import read_build_file

    path = Path(file or ".")
    try:
        return read_build_file(path)
    except FileNotFoundError as error:
        wanted = "give another with --file" if file is None else "it must be a file or a folder with one"
        raise Misuse(f"there is no build file {error.filename}: {wanted}") from None


def project_of(project: str | None, file: str | None) -> str:
    """The project of the options. Raises Misuse where neither names one."""
    if project is not None and file is not None:
        raise Misuse("--project and --file exclude each other")
    if project is None and file is None and not Path(NAME).exists():
        raise Misuse(f"there is no {NAME} here: give the project by --project or --file")
    return project if project is not None else build_file_of(file).project


@contextmanager
def extra() -> Iterator[None]:
    """Raise Misuse where a package of the extra `builds` is missing."""
    try:
        yield
    except ImportError as error:
        if error.name not in PACKAGES and "[builds]" not in str(error):
            raise
        raise Misuse("this needs the extra `builds`: install it as the page on installation says") from error


def seconds(duration_ms: int | None) -> str:
    """A duration in seconds; empty where it is not known."""
    return "" if duration_ms is None else f"{duration_ms / 1000:.1f}"


def shortened(value: Any) -> str:
    """A value for a terminal: hashes are cut, all else is JSON."""
    import json

    if isinstance(value, str) and _HASH.fullmatch(value):
        start = value.find(":") + 1
        return value[: start + SHORT]
    return "" if value is None else json.dumps(value, ensure_ascii=False)
