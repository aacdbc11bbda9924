"""What a lock file of another build tool says of a stage, in one shape for all tools."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from ledger.builds.names import path_in
from ledger.errors import BadFile

Model = TypeVar("Model", bound=BaseModel)


class Lenient(BaseModel):
    """A part of a lock file: unknown keys are ignored, and a hash of digits only may be a number."""

    model_config = ConfigDict(extra="ignore", coerce_numbers_to_str=True)


@dataclass(frozen=True, slots=True)
class LockedPath:
    """A dependency or an output.

    path: as the lock file has it, from `folder`. hash: it names its algorithm, as in `md5:d41d8…`, so it
    never equals a hash of ours. executable: None where the tool does not say. cached: whether the tool keeps
    a copy.
    """

    path: str
    hash: str
    executable: bool | None = None
    cached: bool = True


@dataclass(frozen=True, slots=True)
class LockedStage:
    """A stage that was completed. folder: where its paths and its command start.

    command: None where the tool runs functions instead.
    """

    name: str
    folder: Path
    code: Mapping[str, str]
    params: Mapping[str, Any]
    deps: tuple[LockedPath, ...]
    outs: tuple[LockedPath, ...]
    command: str | None = None

    def place(self, locked: LockedPath) -> Path:
        """Where a path of this stage is on this machine."""
        return self.folder / locked.path

    def identity(self, root: Path, locked: LockedPath) -> str:
        """A path of this stage in a build with this root; an address of a remote store stays as it is."""
        return locked.path if "://" in locked.path else path_in(root, self.place(locked))


def checked(model: type[Model], value: object, file: Path, place: str = "") -> Model:
    """The value as this model. Raises BadFile with the first place that does not fit."""
    try:
        return model.model_validate(value)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(filter(None, (place, *map(str, first["loc"]))))
        raise BadFile(str(file), where, first["msg"]) from error
