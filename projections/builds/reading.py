"""One snapshot of the local copy: point reads, many at once, and ranges."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from ledger.builds.manifests import (
    RunCacheEntry,
    RunManifest,
    deserialize_run_manifest,
)
from ledger.builds.stage import Out, Stage
from ledger.domain.state import load_each

from . import keys
from .caches import Fingerprint, hash_in
from .environment import Transaction
from .fold import NUMBER, read_stage
from .keys import after, below, entries, key, last_part


class Generation(NamedTuple):
    """The present generation of an output, and the hash of its content; None where that is not known."""

    generation: int
    hash: str | None


@dataclass(frozen=True, slots=True)
class Lock:
    """What the last completion of a stage recorded, as far as a skip needs it; fields as in `Stage`.

    Its mappings are plain dicts, and only to be read: 10,000 of them are read in a tenth of the time.
    """

    input_hash: str | None = None
    generations: dict[str, int] = field(default_factory=dict)
    outs: tuple[Out, ...] = ()
    duration_ms: int = 0


class Snapshot:
    """The copy at one moment. Each method raises PathTooLongError for a name that is too long for a key."""

    def __init__(self, reader: Transaction) -> None:
        self._reader = reader
        self._cursor = reader.cursor()

    # Outputs and stages

    def generation(self, path: str) -> Generation | None:
        """The generation and hash of an output; None where nothing is recorded of it."""
        return generation_in(self._reader.get(key(keys.GENERATION, path)))

    def generations(self, paths: Iterable[str]) -> dict[str, Generation]:
        """Those of many outputs, by path; an unknown output is left out."""
        wanted = {key(keys.GENERATION, path): path for path in paths}
        return {
            wanted[found]: Generation(NUMBER.unpack_from(value)[0], value[8:].decode() or None)
            for found, value in self._cursor.getmulti(wanted)
        }

    def stage(self, stage: str) -> tuple[int, Stage] | None:
        """Version and state of a stage; None where nothing is recorded of it."""
        value = self._reader.get(key(keys.STAGE, stage))
        return None if value is None else (NUMBER.unpack_from(value)[0], read_stage(value[8:]))

    def stages(self, stages: Iterable[str]) -> dict[str, Stage]:
        """The states of many stages, by name; an unknown stage is left out."""
        wanted = {key(keys.STAGE, stage): stage for stage in stages}
        return {wanted[found]: read_stage(value[8:]) for found, value in self._cursor.getmulti(wanted)}

    def locks(self, stages: Iterable[str]) -> dict[str, Lock]:
        """What the last completions of many stages recorded, by name; an unknown stage is left out."""
        wanted = {key(keys.STAGE, stage): stage for stage in stages}
        found = self._cursor.getmulti(wanted)
        locks = load_each(Lock, [value[8:].decode() for _, value in found], frozen=False)
        return {wanted[place]: lock for (place, _), lock in zip(found, locks, strict=True)}

    def stage_names(self) -> list[str]:
        """The names of all stages, sorted by their bytes."""
        start = len(keys.STAGE)
        return [last_part(found, start) for found, _ in entries(self._reader, keys.STAGE)]

    def dep_generations(self, stage: str) -> dict[str, int]:
        """The generations of its dependencies that a stage recorded, by path."""
        prefix = below(keys.DEP, stage)
        return {
            last_part(found, len(prefix)): NUMBER.unpack(value)[0]
            for found, value in entries(self._reader, prefix)
        }

    # Runs

    def run(self, run: str) -> RunManifest | None:
        """The manifest of a run; None where it is not known or was dropped."""
        known = self._reader.get(key(keys.RUN, run))
        if known is None:
            return None
        plan = self._reader.get(key(keys.PLAN, run)) or b"{}"
        prefix = below(keys.RAN_STAGE, run)
        stages = {
            last_part(found, len(prefix)): json.loads(record)
            for found, record in entries(self._reader, prefix)
        }
        manifest = {"run_id": run, **json.loads(known[NUMBER.size :]), **json.loads(plan), "stages": stages}
        return deserialize_run_manifest(json.dumps(manifest))

    def runs(self, limit: int | None = None) -> list[str]:
        """The ids of runs, the newest first, in the order of their first events (W4-11)."""
        cursor, found = self._reader.cursor(), list[str]()
        there = cursor.prev() if cursor.set_range(after(keys.ORDER)) else cursor.last()
        while there and cursor.key().startswith(keys.ORDER) and (limit is None or len(found) < limit):
            found.append(cursor.value().decode())
            there = cursor.prev()
        return found

    def run_cache(self, stage: str, input_hash: str) -> RunCacheEntry | None:
        """What a stage made of an input hash; None where that is not known or was dropped."""
        value = self._reader.get(key(keys.RUN_CACHE, stage, input_hash))
        return None if value is None else msgspec.json.decode(value)

    def run_caches(self, wanted: Iterable[tuple[str, str]]) -> dict[tuple[str, str], RunCacheEntry]:
        """Those of many stages, each with an input hash."""
        places = {key(keys.RUN_CACHE, stage, input_hash): (stage, input_hash) for stage, input_hash in wanted}
        found = self._cursor.getmulti(places)
        return {places[place]: msgspec.json.decode(value) for place, value in found}

    def cached_by(self, run: str) -> int:
        """How many entries of the run cache name a run."""
        return sum(1 for _ in entries(self._reader, below(keys.CACHED_BY, run)))

    def caching_runs(self) -> set[str]:
        """The runs that entries of the run cache name."""
        start = len(keys.CACHED_BY)
        return {
            os.fsdecode(keys.unescaped(found[start:-17]))
            for found, _ in entries(self._reader, keys.CACHED_BY)
        }

    def contents(self) -> set[str]:
        """The contents that may be needed: of the run cache, and of the last completion of each stage."""
        cached = (msgspec.json.decode(value) for _, value in entries(self._reader, keys.RUN_CACHE))
        found = {out["hash"] for entry in cached for out in entry["output_hashes"]}
        found |= {out.hash for stage in self.stages(self.stage_names()).values() for out in stage.outs}
        return {content for content in found if content is not None}

    # Remotes

    def remote_holds(self, remote: str, hashes: Iterable[str]) -> set[str]:
        """Which of these contents a remote holds."""
        wanted = {key(keys.REMOTE, remote, hash): hash for hash in hashes}
        return {wanted[found] for found in self._cursor.getmulti(wanted, values=False)}

    # Caches

    def hash_of(self, path: str, stat: os.stat_result) -> str | None:
        """The hash of a file with this metadata; None where it must be read."""
        return hash_in(self._reader.get(key(keys.HASH, path)), stat)

    def hashes(self, files: Sequence[tuple[str, os.stat_result]]) -> list[str | None]:
        """Those of many files, in their order."""
        places = [key(keys.HASH, path) for path, _ in files]
        found = dict(self._cursor.getmulti(places))
        return [hash_in(found.get(place), stat) for place, (_, stat) in zip(places, files, strict=True)]

    def fingerprint(self, wanted: Fingerprint) -> str | None:
        """The fingerprint of a piece of code. Raises InvalidAstHashKeyError."""
        value = self._reader.get(wanted.key())
        return None if value is None else value.decode()

    def fingerprints(self, wanted: Sequence[Fingerprint]) -> list[str | None]:
        """Those of many, in their order. Raises InvalidAstHashKeyError."""
        places = [one.key() for one in wanted]
        found = dict(self._cursor.getmulti(places))
        return [value.decode() if (value := found.get(place)) is not None else None for place in places]

    def raw(self, name: bytes) -> bytes | None:
        """The bytes that a program put under this name."""
        return self._reader.get(keys.raw(name))


def generation_in(value: bytes | None) -> Generation | None:
    """The generation and hash in an entry."""
    return None if value is None else Generation(NUMBER.unpack_from(value)[0], value[8:].decode() or None)
