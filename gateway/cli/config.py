"""The configuration file: a project's settings, which each command would need as options otherwise.

`pledger.toml`, or `[tool.pledger]` in `pyproject.toml`, of this folder or of the nearest folder above it that
has one of them:

    dsn = "postgresql://lab@db/pipelines"   # or "embedded:ledger"; a path is relative to this file
    schema = "ledger"
    actor = "night shift"
    domains = ["library.books"]             # modules that declare streams
    views = ["library.shelves"]             # modules that declare views
    path = ["."]                            # where modules are searched, relative to this file

Options and LEDGER_… variables override the file; domains and views add up.
"""

from __future__ import annotations

import os
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Final

from .errors import Misuse

NAME: Final = "pledger.toml"
PROJECT: Final = "pyproject.toml"
_EMBEDDED: Final = "embedded:"


@dataclass(frozen=True, slots=True)
class Config:
    """The settings of the file; those that it does not have are None or empty. path: absolute folders."""

    dsn: str | None = None
    schema: str | None = None
    actor: str | None = None
    domains: tuple[str, ...] = ()
    views: tuple[str, ...] = ()
    path: tuple[str, ...] = (".",)
    file: Path | None = None

    def find_modules(self) -> None:
        """Search modules in `path`, too, after all other places, so that they hide none of this package's."""
        sys.path.extend(folder for folder in self.path if self.file and folder not in sys.path)


def load(named: str | None = None) -> Config:
    """The configuration of this folder; `named` or LEDGER_CONFIG names another file. Raises Misuse."""
    named = named or os.environ.get("LEDGER_CONFIG")
    if named:
        return _read(Path(named).absolute(), required=True) or Config()
    return next(_found(Path.cwd()), Config())


def _found(folder: Path) -> Iterator[Config]:
    for place in (folder, *folder.parents):
        for name in (NAME, PROJECT):
            if (place / name).is_file() and (config := _read(place / name)) is not None:
                yield config


def _read(file: Path, *, required: bool = False) -> Config | None:
    """The settings for `pledger` in a file; None if it has none and need not have any."""
    try:
        said: Any = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise Misuse(f"the configuration file {file} cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        if file.name == PROJECT and not required:
            return None  # other programs report it
        raise Misuse(f"the configuration file {file} is not TOML: {error}") from error
    if file.name == PROJECT:
        said = said.get("tool", {}).get("pledger")
        if said is None:
            return None
    return _settled(_checked(said, file), file)


def _checked(said: Any, file: Path) -> Config:
    known = {field.name for field in fields(Config)} - {"file"}
    if not isinstance(said, dict):
        raise Misuse(f"{file}: [tool.pledger] must be a table")
    for name, value in said.items():
        if name not in known:
            raise Misuse(f"{file}: unknown setting {name!r}; the settings are {', '.join(sorted(known))}")
        if name in ("dsn", "schema", "actor"):
            if not isinstance(value, str) or not value:
                raise Misuse(f'{file}: {name} must be a text, such as {name} = "…"')
        elif not isinstance(value, list) or not all(isinstance(one, str) and one for one in value):
            raise Misuse(f'{file}: {name} must be a list of texts, such as {name} = ["…"]')
    found: dict[str, Any] = {n: tuple(v) if isinstance(v, list) else v for n, v in said.items()}
    return Config(**found)


def _settled(config: Config, file: Path) -> Config:
    """The same with absolute paths."""
    folder, dsn = file.parent, config.dsn
    if dsn is not None and dsn.startswith(_EMBEDDED) and dsn != _EMBEDDED:
        dsn = f"{_EMBEDDED}{folder / Path(dsn.removeprefix(_EMBEDDED)).expanduser()}"
    path = tuple(str((folder / Path(one).expanduser()).resolve()) for one in config.path)
    return replace(config, dsn=dsn, path=path, file=file)
