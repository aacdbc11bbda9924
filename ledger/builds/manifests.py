"""
Manifests of runs and entries of the run cache, as JSON (spec S4-31 to S4-33).

They are plain dicts with the field names of the original, so that a program that knows these reads them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from enum import StrEnum
from typing import Any, Final, NotRequired, TypedDict, cast

from ..errors import shown


class StageStatus(StrEnum):
    """The statuses of a stage (spec S4-31)."""

    READY = "ready"
    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"
    SKIPPED = "skipped"
    FAILED = "failed"
    RAN = "ran"
    UNKNOWN = "unknown"


FINISHED: Final = frozenset({StageStatus.RAN, StageStatus.SKIPPED, StageStatus.FAILED})
"""The statuses of a stage that a run has finished."""


class StageRunRecord(TypedDict):
    """What a run did with one stage. duration_ms: in milliseconds."""

    input_hash: str | None
    status: StageStatus
    reason: str
    duration_ms: int


class RunManifest(TypedDict):
    """A run. Times in ISO 8601; ended_at is None while it goes on, or if it crashed."""

    run_id: str
    started_at: str
    ended_at: str | None
    targeted_stages: list[str]
    execution_order: list[str]
    stages: dict[str, StageRunRecord]


class DirManifestEntry(TypedDict):
    """A file of an output that is a directory. isexec: its owner may execute it."""

    relpath: str
    hash: str
    size: int
    isexec: bool


class OutputHashEntry(TypedDict):
    """An output of a run-cache entry. manifest: of a directory; None or absent: a plain file."""

    path: str
    hash: str | None
    manifest: NotRequired[list[DirManifestEntry] | None]


class RunCacheEntry(TypedDict):
    """What a stage made of one input hash: the run, and its outputs."""

    run_id: str
    output_hashes: list[OutputHashEntry]


class DeferredWrites(TypedDict, total=False):
    """What is to be recorded of a stage (spec S4-20). An absent key: nothing to record of it."""

    dep_generations: dict[str, int]
    run_cache_input_hash: str
    run_cache_entry: RunCacheEntry
    increment_outputs: bool


def serialize_to_bytes(value: RunManifest | RunCacheEntry) -> bytes:
    """Its JSON: compact, keys sorted."""
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def deserialize_run_manifest(data: bytes | str) -> RunManifest:
    """The manifest in a JSON text. Raises ValueError for missing keys or an unknown status (spec S4-32)."""
    manifest = json.loads(data)
    check_run_manifest(manifest)
    for record in manifest["stages"].values():
        record["status"] = StageStatus(record["status"])
    return cast(RunManifest, manifest)


def deserialize_run_cache_entry(data: bytes | str) -> RunCacheEntry:
    """The entry in a JSON text. Raises ValueError for missing keys (spec S4-33)."""
    entry = json.loads(data)
    check_run_cache_entry(entry)
    return cast(RunCacheEntry, entry)


def check_run_manifest(manifest: Any) -> None:
    """Raise ValueError for missing keys or an unknown status (spec S4-32)."""
    _check(manifest, RunManifest.__annotations__, "run manifest")
    _check(manifest["stages"], (), "stages of a run manifest")
    for stage, record in manifest["stages"].items():
        _check(record, StageRunRecord.__annotations__, f"record of stage {stage!r}")
        if record["status"] not in _STATUSES:
            raise ValueError(f"Invalid status {record['status']!r} for stage {stage!r}")


def check_run_cache_entry(entry: Any) -> None:
    """Raise ValueError for missing keys (spec S4-33)."""
    _check(entry, RunCacheEntry.__annotations__, "run cache entry")
    for output in entry["output_hashes"]:
        _check(output, ("path", "hash"), "output of a run cache entry")
        for file in output.get("manifest") or ():
            _check(file, DirManifestEntry.__annotations__, f"file of the directory {output['path']!r}")


_STATUSES: Final = frozenset(map(str, StageStatus))


def _check(value: Any, keys: Iterable[str], what: str) -> None:
    """Raise ValueError that names the missing keys."""
    if not isinstance(value, dict):
        raise ValueError(f"{what} must be a JSON object, not {shown(value)}")
    if missing := sorted(set(keys) - value.keys()):
        raise ValueError(f"{what}: missing keys: {', '.join(missing)}")
