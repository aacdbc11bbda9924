"""Manifests of runs and run-cache entries as JSON (spec S4-31 to S4-33)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ledger.builds import OutputHashEntry, RunCacheEntry, RunManifest, StageRunRecord, StageStatus
from ledger.builds.manifests import (
    deserialize_run_cache_entry,
    deserialize_run_manifest,
    serialize_to_bytes,
)

MANIFEST = RunManifest(
    run_id="20250110_143000_abc12345",
    started_at="2025-01-10T14:30:00Z",
    ended_at="2025-01-10T14:31:00Z",
    targeted_stages=["train"],
    execution_order=["load", "train"],
    stages={
        "load": StageRunRecord(input_hash="1f", status=StageStatus.SKIPPED, reason="unchanged", duration_ms=0)
    },
)
ENTRY = RunCacheEntry(
    run_id="r",
    output_hashes=[
        OutputHashEntry(path="a.txt", hash="1f"),
        {"path": "d", "hash": "2e", "manifest": [{"relpath": "x", "hash": "3d", "size": 1, "isexec": False}]},
        {"path": "plain", "hash": "4c", "manifest": None},
    ],
)


def test_s4_31_a_manifest_is_compact_sorted_json_and_reads_back() -> None:
    text = serialize_to_bytes(MANIFEST)
    assert text.startswith(b'{"ended_at":"2025-01-10T14:31:00Z","execution_order":["load","train"],"run_id":')
    assert deserialize_run_manifest(text) == MANIFEST
    assert deserialize_run_manifest(text)["stages"]["load"]["status"] is StageStatus.SKIPPED


def test_s4_33_an_entry_reads_back_and_a_null_manifest_is_a_plain_file() -> None:
    assert deserialize_run_cache_entry(serialize_to_bytes(ENTRY)) == ENTRY


def changed(value: object, *path: str | int, **keys: Any) -> bytes:
    """The JSON with keys set, or removed where the new value is `...`, in the object at a path."""
    whole = json.loads(json.dumps(value))
    place = whole
    for step in path:
        place = place[step]
    for key, new in keys.items():
        place.pop(key, None)
        if new is not ...:
            place[key] = new
    return json.dumps(whole).encode()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (changed(MANIFEST, run_id=...), "run manifest: missing keys: run_id"),
        (changed(MANIFEST, stages=..., ended_at=...), "missing keys: ended_at, stages"),
        (changed(MANIFEST, "stages", "load", reason=...), "record of stage 'load': missing keys: reason"),
        (changed(MANIFEST, "stages", "load", status="gone"), "Invalid status 'gone' for stage 'load'"),
        (changed(MANIFEST, stages=[]), "must be a JSON object"),
        (b"[]", "must be a JSON object"),
        (b"{", "Expecting"),
    ],
)
def test_s4_32_what_is_no_manifest_is_refused(text: bytes, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        deserialize_run_manifest(text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (changed(ENTRY, output_hashes=...), "run cache entry: missing keys: output_hashes"),
        (changed(ENTRY, "output_hashes", 0, hash=...), "missing keys: hash"),
        (changed(ENTRY, "output_hashes", 1, "manifest", 0, size=...), "directory 'd': missing keys: size"),
    ],
)
def test_s4_33_what_is_no_entry_is_refused(text: bytes, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        deserialize_run_cache_entry(text)
