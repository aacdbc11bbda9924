"""
A build file: the stages of a project, in TOML.

    [project]
    name = "proteome"

    [params]
    k = 3

    [stages.count]
    foreach = ["ecoli", "yeast"]
    command = "python count.py ${params.k} data/${item}.faa out/${item}.tsv"
    deps = ["count.py", "data/${item}.faa"]
    outs = ["out/${item}.tsv"]

`foreach` makes a stage of each item: `count@ecoli`. In all texts of a stage, `${item}`, `${item.field}`,
`${key}` and `${params.name}` are replaced; `$${item}` is `${item}` to the shell, and any other `${…}` is left
to it. Paths are relative to the folder of the file, and commands run in it.
"""

from __future__ import annotations

import json
import posixpath
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ledger.builds.names import checked_stage, path_in
from ledger.errors import BadFile, BadName

from .paths import bare

DEFAULT: Final = "pledger-build.toml"
"""The build file of a folder, where none is named."""
STATE: Final = ".pledger"
"""The folder of a project's own state."""
CACHE: Final = ".pledger/builds/cache"
"""The content cache of a project, where its file names none."""
_PLACEHOLDER: Final = re.compile(r"(\$?)\$\{(item|key|params(?=\.))((?:\.[\w-]+)*)\}")
Scalar = str | int | float | bool


class _Table(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class _OutTable(_Table):
    path: str
    cache: bool = True
    incremental: bool = False


class _StageTable(_Table):
    command: str
    deps: list[str] = []
    outs: list[str | _OutTable] = []
    params: list[str] = []
    code: list[str] = []
    foreach: list[Scalar | dict[str, Any]] | dict[str, Any] | None = None


class _ProjectTable(_Table):
    name: Annotated[str, Field(min_length=1)]
    cache: str = CACHE
    link: Literal["copy", "hardlink"] = "copy"


class _FileTable(_Table):
    project: _ProjectTable
    params: dict[str, Any] = {}
    stages: dict[str, _StageTable] = {}


@dataclass(frozen=True, slots=True)
class Out:
    """An output of a stage. cache: kept in the content cache. incremental: the command gets the last one."""

    path: str
    cache: bool = True
    incremental: bool = False


@dataclass(frozen=True, slots=True)
class Stage:
    """A stage as it is declared, its texts filled in.

    template: the command before its parameters were filled in, as the code manifest holds it. params: names
    to values. code: `FILE:NAME` of functions and classes.
    """

    name: str
    command: str
    template: str
    deps: tuple[str, ...] = ()
    outs: tuple[Out, ...] = ()
    params: Mapping[str, Any] = field(default_factory=dict)
    code: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class BuildFile:
    """A build file that was read. cache: the content cache. link: how outputs come from it."""

    path: Path
    project: str
    cache: Path
    link: Literal["copy", "hardlink"]
    stages: Mapping[str, Stage]

    @property
    def root(self) -> Path:
        """The folder to which all paths are relative."""
        return self.path.parent


def read_build_file(path: Path) -> BuildFile:
    """Read a build file, or that of a folder. Raises BadFile, FileNotFoundError."""
    path = path.absolute()
    if path.is_dir():
        path /= DEFAULT
    table = _checked(path, _parsed(path))
    values = _Parameters(path, table.params)
    stages = {
        stage.name: stage
        for name, stage_table in table.stages.items()
        for stage in _stages(path, name, stage_table, values)
    }
    cache = path.parent / Path(table.project.cache).expanduser()
    return BuildFile(path, table.project.name, cache, table.project.link, stages)


def _parsed(path: Path) -> dict[str, Any]:
    """The content of a file of TOML, JSON or YAML. Raises BadFile."""
    try:
        if path.suffix in (".yaml", ".yml"):
            from .yaml_text import read_yaml  # late: only few need it

            found = read_yaml(path)
        else:
            data = path.read_bytes().decode("utf-8")
            found = json.loads(data) if path.suffix == ".json" else tomllib.loads(data)
    except BadFile:
        raise
    except (ValueError, RecursionError) as error:  # of both parsers, and of text that is not UTF-8
        raise BadFile(str(path), "", str(error)) from None
    if not isinstance(found, dict):
        raise BadFile(str(path), "", "holds no table of names and values")
    return found


def _checked(path: Path, content: dict[str, Any]) -> _FileTable:
    try:
        return _FileTable.model_validate(content)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"] if part not in ("str", "_OutTable"))
        raise BadFile(str(path), place, first["msg"]) from None


class _Parameters:
    """The values of parameters: of the table [params], and of files, each read once."""

    def __init__(self, path: Path, table: Mapping[str, Any]) -> None:
        self._path, self._tables = path, {"": table}
        self._values: dict[str, Any] = {}

    def value(self, name: str, place: str) -> Any:
        """The value of `key.key`, or of `FILE:key.key`. Raises BadFile."""
        if name not in self._values:
            self._values[name] = self._found(name, place)
        return self._values[name]

    def _found(self, name: str, place: str) -> Any:
        file, _, key = name.rpartition(":")
        found: Any = self._table(file, place)
        for part in key.split("."):
            if not isinstance(found, Mapping) or part not in found:
                where = file or "[params]"
                raise BadFile(str(self._path), place, f"there is no parameter {key!r} in {where}")
            found = found[part]
        try:
            return json.loads(json.dumps(found, allow_nan=False, default=str))  # times become texts
        except ValueError as error:
            raise BadFile(str(self._path), place, f"the parameter {name!r} is no JSON: {error}") from None

    def _table(self, file: str, place: str) -> Mapping[str, Any]:
        if file not in self._tables:
            try:
                self._tables[file] = _parsed(self._path.parent / file)
            except OSError as error:
                wrong = f"the file of parameters {file!r} cannot be read: {error.strerror}"
                raise BadFile(str(self._path), place, wrong) from None
        return self._tables[file]


def _stages(path: Path, name: str, table: _StageTable, values: _Parameters) -> Iterator[Stage]:
    """The stages of one table: one, or one for each item of its `foreach`. Raises BadFile."""
    texts = _StageTexts(str(path), f"stages.{name}", table, values)
    for key, item in _items(table.foreach):
        full = name if key is None else f"{name}@{key}"
        try:
            checked_stage(full)
        except BadName as error:
            raise BadFile(str(path), texts.place, str(error)) from None
        yield texts.stage(full, _Item(key, item))


def _items(foreach: list[Any] | dict[str, Any] | None) -> Iterator[tuple[str | None, Any]]:
    if foreach is None:
        yield None, None
    elif isinstance(foreach, dict):
        yield from foreach.items()
    else:
        for number, item in enumerate(foreach):
            yield (str(number) if isinstance(item, dict) else _text(item)), item


class _Item(NamedTuple):
    """An item of a foreach; without one there is no key."""

    key: str | None
    value: Any


class _Slot(NamedTuple):
    """A place in a text that is filled in: `${item.a.b}`."""

    text: str
    what: str
    fields: tuple[str, ...]


class _StageTexts:
    """The texts of a stage's table, taken apart once for all items of its foreach."""

    def __init__(self, file: str, place: str, table: _StageTable, values: _Parameters) -> None:
        self.file, self.place, self._values = file, place, values
        self._root = posixpath.dirname(file)
        outs = [out if isinstance(out, _OutTable) else _OutTable(path=out) for out in table.outs]
        self._command = _taken_apart(table.command)
        self._deps = [*map(_taken_apart, table.deps)]
        self._outs = [(_taken_apart(out.path), out.cache, out.incremental) for out in outs]
        self._code, self._named = [*map(_taken_apart, table.code)], [*map(_taken_apart, table.params)]
        texts = [self._command, *self._deps, *(path for path, *_ in self._outs)]
        used = {".".join(part.fields) for text in texts for part in text if isinstance(part, _Slot)
                and part.what == "params"}  # fmt: skip
        self._params = {name: values.value(name, place) for name in sorted(used)}

    def stage(self, name: str, item: _Item) -> Stage:
        """The stage of an item. Raises BadFile."""
        params = self._params
        if self._named:
            named = {text: self._values.value(text, self.place) for text in self._each(self._named, item)}
            params = dict(sorted({**params, **named}.items()))
        return Stage(
            name, self._filled(self._command, item), self._filled(self._command, item, template=True),
            tuple(dict.fromkeys([self._path(dep, item) for dep in self._deps])),
            tuple([Out(self._output(path, item), *how) for path, *how in self._outs]),
            params, tuple(self._each(self._code, item)),
        )  # fmt: skip

    def _each(self, texts: list[_Text], item: _Item) -> Iterator[str]:
        return (self._filled(text, item) for text in texts)

    def _path(self, text: _Text, item: _Item) -> str:
        """The identity of a path, with the slash that marks a folder."""
        path = self._filled(text, item)
        if not path:
            raise BadFile(self.file, self.place, "a path is empty")
        if path[0] != "/" and "//" not in path and "./" not in path and not path.endswith("."):
            return path  # is its own identity, as nearly all are
        found = path_in(self._root, path)
        return f"{found}/" if path.endswith("/") and not found.endswith("/") else found

    def _output(self, text: _Text, item: _Item) -> str:
        """The path of an output, which is deleted before its stage runs: nothing that the project needs."""
        path = self._path(text, item)
        place = bare(path)
        ours = place in (".", posixpath.basename(self.file)) or place.split("/")[0] == STATE
        if ours or f"{self._root}/".startswith(f"{place.rstrip('/')}/"):
            wrong = (
                f"{path} cannot be an output: it is deleted before the stage runs, and the project is in it"
            )
            raise BadFile(self.file, self.place, wrong)
        return path

    def _filled(self, text: _Text, item: _Item, *, template: bool = False) -> str:
        """A text with its item and parameters. template: leave parameters, as the code manifest has it."""
        if len(text) == 1 and isinstance(text[0], str):
            return text[0]
        return "".join(
            [part if isinstance(part, str) else self._value(part, item, template) for part in text]
        )

    def _value(self, slot: _Slot, item: _Item, template: bool) -> str:
        if slot.what == "params":
            return slot.text if template else _text(self._params[".".join(slot.fields)])
        if item.key is None:
            raise BadFile(self.file, self.place, f"{slot.text}: a stage without foreach has no item")
        found: Any = item.key if slot.what == "key" else item.value
        for part in slot.fields:
            if not isinstance(found, Mapping) or part not in found:
                wrong = f"{slot.text}: the item {item.key!r} has no such field"
                raise BadFile(self.file, self.place, wrong)
            found = found[part]
        return _text(found)


_Text = list[str | _Slot]


def _taken_apart(text: str) -> _Text:
    """A text as its plain parts and the places that are filled in."""
    parts: _Text = []
    end = 0
    for match in _PLACEHOLDER.finditer(text):
        escaped, what, fields = match.groups()
        parts.append(text[end : match.start()])
        names = tuple(fields.split(".")[1:])
        parts.append(match[0][1:] if escaped else _Slot(match[0], what, names))
        end = match.end()
    return [*parts, text[end:]]


def _text(value: Any) -> str:
    """A value as it stands in a command."""
    return value if isinstance(value, str) else json.dumps(value, default=str)
