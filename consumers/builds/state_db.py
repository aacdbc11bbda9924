"""
The state store of the original build tool, method by method, on the ledger (spec S4-01 to S4-36).

    with StateDB(root / ".pledger/builds/state.db", log=log, project="proteome", root=root) as db:
        db.apply_deferred_writes("train", ["out/model.bin"], {"increment_outputs": True})
        db.get_generation(root / "out/model.bin")

What is history (generations, dependencies, remotes, runs, the run cache) is appended to the ledger, and then
read from the local copy, which has it before the method returns. What is a cache (hashes of files,
fingerprints, raw entries) is in the local copy only. A key that is too long raises PathTooLongError in every
method that does not say otherwise, also where it only reads (W4-06).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from ledger import BadName, Ledger, PathTooLongError, StateDBClosed, StateDBError, StateDBReadonly, Stream
from ledger.builds import (
    DeferredWrites,
    OpenOutput,
    OpenRemote,
    OpenRun,
    OpenStage,
    RunCacheEntry,
    RunManifest,
)
from ledger.builds.manifests import check_run_cache_entry, check_run_manifest
from ledger.builds.names import checked_project, paths_in
from ledger.builds.retention import RETENTION, Dropped, beyond, drop_cache, drop_runs, orphans
from ledger.domain.names import MAX_BYTES
from ledger.errors import InvalidAstHashKeyError
from ledger.log.retry import retry_conflicts
from projections.builds import BuildCopy, FileHash, Fingerprint, keys

S = TypeVar("S", bound=Stream[Any, Any])
T = TypeVar("T")
_TRUSTED: Final = 1 << 62
"""When hashes were seen that the caller vouches for, in nanoseconds: no file is newer."""

AstHash = tuple[str, int, int, int, str, str, int | str, str]
"""A fingerprint: rel_path, mtime_ns, size, inode, qualname, py_version, schema_version, hash."""


class StateDB:
    """The state store of a project. db_path: only its folder counts; the store is `state.lmdb` in that.

    readonly: refuse what writes. root: the folder to which paths are relative, so that a moved checkout keeps
    its state (W4-08). Several processes may open one store; threads may share one object.
    Raises StateDBError, ServerUnavailable.
    """

    def __init__(
        self,
        db_path: Path | str,
        readonly: bool = False,
        *,
        log: Ledger,
        project: str,
        root: Path | str,
    ) -> None:
        self.log, self.project = log, checked_project(project)
        self._readonly, self._closed = readonly, False
        self._identity = paths_in(Path(root).absolute())
        self._real_identity = paths_in(Path(root).resolve())
        self._folder = Path(db_path).parent
        self._copy = BuildCopy(log, self._folder, project, readonly=readonly)
        try:
            self._begin()
        except BaseException:
            self.close()
            raise

    @property
    def readonly(self) -> bool:
        """Whether writing methods are refused."""
        return self._readonly

    def close(self) -> None:
        """Close it; further calls do nothing, and any other method raises StateDBClosed (spec S4-03)."""
        self._closed = True
        self._copy.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    # Hashes of files

    def get(self, path: Path, stat: os.stat_result) -> str | None:
        """The hash of a file, if its metadata are those that were saved; else None (spec S4-10)."""
        return self._copy.hash_of(self._file(path), stat)

    def get_many(self, items: Sequence[tuple[Path, os.stat_result]]) -> dict[Path, str | None]:
        """The hashes of many files, by path, from one snapshot; None for a miss."""
        with self._copy.reading() as now:
            found = now.hashes([(self._file(path), stat) for path, stat in items])
        return {path: hash for (path, _), hash in zip(items, found, strict=True)}

    def save(self, path: Path, stat: os.stat_result, file_hash: str) -> None:
        """Save the hash of a file with these metadata (spec S4-11)."""
        self.save_many([(path, stat, file_hash)])

    def save_many(self, items: Iterable[tuple[Path, os.stat_result, str]]) -> None:
        """Save many in one transaction: where one path is too long, none is saved."""
        self._check_writes("save_many")
        files = [FileHash(self._file(path), stat, file_hash) for path, stat, file_hash in items]
        self._copy.save_hashes(files, _TRUSTED)

    # Generations of outputs

    def get_generation(self, path: Path) -> int | None:
        """The generation of an output; None where it has none (spec S4-12)."""
        found = self._copy.generation(self._output(path))
        return None if found is None else found.generation

    def get_many_generations(self, paths: Iterable[Path]) -> dict[Path, int | None]:
        """Those of many outputs, by path, from one snapshot."""
        wanted = {path: self._output(path) for path in paths}
        with self._copy.reading() as now:
            found = now.generations(wanted.values())
        return {path: found[one].generation if one in found else None for path, one in wanted.items()}

    def increment_generation(self, path: Path) -> int:
        """Raise the generation of an output whose content is not known; returns the new one, from 1."""
        self._check_writes("increment_generation")
        output = self._open(OpenOutput, self._output(path))

        def change() -> tuple[int, list[OpenOutput]]:
            opened = self._load([output])[0]
            opened.change(None)
            return opened.generation or 0, [opened]

        return self._store(change)

    # Generations of dependencies

    def record_dep_generations(self, stage_name: str, generations: Mapping[str, int]) -> None:
        """Replace all that is recorded of a stage's dependencies (spec S4-13)."""
        self._check_writes("record_dep_generations")
        self._defer(stage_name, {"dep_generations": dict(generations)}, [])

    def get_dep_generations(self, stage_name: str) -> dict[str, int] | None:
        """The generations that a stage recorded, by dependency; None where there are none."""
        keys.key(keys.STAGE, stage_name)
        with self._copy.reading() as now:
            return now.dep_generations(stage_name) or None

    # Index of remotes

    def remote_hash_exists(self, remote_name: str, file_hash: str) -> bool:
        """Whether a remote is known to hold a content (spec S4-14)."""
        return bool(self.remote_hashes_intersection(remote_name, {file_hash}))

    def remote_hashes_intersection(self, remote_name: str, hashes: Iterable[str]) -> set[str]:
        """Which of these contents a remote is known to hold."""
        with self._copy.reading() as now:
            return now.remote_holds(remote_name, hashes)

    def remote_hashes_add(self, remote_name: str, hashes: Iterable[str]) -> None:
        """Note that a remote holds these contents."""
        self._check_writes("remote_hashes_add")
        new = (wanted := {*hashes}) - self.remote_hashes_intersection(remote_name, wanted)
        self._change_remote(remote_name, lambda remote: remote.add(new))

    def remote_hashes_remove(self, remote_name: str, hashes: Iterable[str]) -> None:
        """Note that a remote no longer holds these contents."""
        self._check_writes("remote_hashes_remove")
        held = self.remote_hashes_intersection(remote_name, {*hashes})
        self._change_remote(remote_name, lambda remote: remote.remove(held))

    def remote_index_clear(self, remote_name: str) -> None:
        """Forget what a remote holds."""
        self._check_writes("remote_index_clear")
        self._change_remote(remote_name, OpenRemote.clear)

    # Fingerprints of code

    def get_ast_hash(
        self,
        rel_path: str,
        mtime_ns: int,
        size: int,
        inode: int,
        qualname: str,
        py_version: str,
        schema_version: int | str,
    ) -> str | None:
        """A fingerprint; None where there is none, and for an invalid key (spec S4-15)."""
        wanted = Fingerprint(rel_path, mtime_ns, size, inode, qualname, py_version, str(schema_version))
        try:
            return self._copy.fingerprint(wanted)
        except InvalidAstHashKeyError:
            return None

    def save_ast_hash_many(self, entries: Iterable[AstHash]) -> None:
        """Save fingerprints in one transaction; those with an invalid key are left out."""
        self._check_writes("save_ast_hash_many")
        prints = [(Fingerprint(*one[:6], str(one[6])), one[7]) for one in entries]
        self._copy.save_fingerprints(prints, _TRUSTED)

    def clear_ast_hashes(self) -> int:
        """Delete all fingerprints; returns how many."""
        self._check_writes("clear_ast_hashes")
        return self._copy.clear_fingerprints()

    # Raw entries

    def get_raw(self, key: bytes) -> bytes | None:
        """The bytes under a key of the caller's own; None where there are none (spec S4-16)."""
        return self._copy.raw(key)

    def put_raw(self, key: bytes, value: bytes) -> None:
        """Put bytes under a key."""
        self._check_writes("put_raw")
        self._copy.put_raw([(key, value)])

    def put_raw_many(self, entries: Iterable[tuple[bytes, bytes]]) -> None:
        """Put many in one transaction; those whose key is too long are left out."""
        self._check_writes("put_raw_many")
        self._copy.put_raw([(key, value) for key, value in entries if _is_raw(key)])

    # Runs

    def write_run(self, manifest: RunManifest) -> None:
        """Record a run by its manifest, in place of what was recorded of it (spec S4-17).

        Raises ValueError for missing keys or an unknown status (spec S4-32).
        """
        self._check_writes("write_run")
        check_run_manifest(manifest)
        run = self._open(OpenRun, manifest["run_id"])
        for stage in manifest["stages"]:
            keys.key(keys.RAN_STAGE, run.run_id, stage)

        def change() -> tuple[None, list[OpenRun]]:
            opened = self._load([run])[0]
            opened.write(manifest)
            return None, [opened]

        self._store(change)

    def read_run(self, run_id: str) -> RunManifest | None:
        """The manifest of a run, also while it goes on; None where there is none."""
        with self._copy.reading() as now:
            return now.run(run_id)

    def list_runs(self, limit: int = 100) -> list[RunManifest]:
        """Manifests, the newest first: in the order in which the runs began to be recorded (W4-11)."""
        with self._copy.reading() as now:
            found = [now.run(run_id) for run_id in now.runs(limit)]
        return [manifest for manifest in found if manifest is not None]

    def prune_runs(self, retention: int = RETENTION) -> int:
        """Drop the runs that are over and not among the newest, with their entries of the run cache.

        One append (W4-05). Returns how many runs. Raises BadInput unless retention is above 0 (spec S4-35).
        """
        self._check_writes("prune_runs")
        with self._copy.reading() as now:
            old = beyond(now.runs(), retention)
        return self._dropped(drop_runs(self.log, self.project, old, retention)) if old else 0

    # Run cache

    def write_run_cache(self, stage_name: str, input_hash: str, entry: RunCacheEntry) -> None:
        """Record what a stage made of an input hash (spec S4-18). Raises ValueError for missing keys."""
        self._check_writes("write_run_cache")
        self._defer(stage_name, {"run_cache_input_hash": input_hash, "run_cache_entry": entry}, [])

    def lookup_run_cache(self, stage_name: str, input_hash: str) -> RunCacheEntry | None:
        """What a stage made of an input hash; None where that is not known."""
        with self._copy.reading() as now:
            return now.run_cache(stage_name, input_hash)

    def prune_run_cache(self, valid_run_ids: Iterable[str]) -> int:
        """Drop the entries that name other runs; returns how many. Run ids with `__` in front are kept."""
        self._check_writes("prune_run_cache")
        with self._copy.reading() as now:
            entries = {run_id: now.cached_by(run_id) for run_id in now.caching_runs()}
        gone = orphans(entries, valid_run_ids)
        return self._dropped(drop_cache(self.log, self.project, gone)) if gone else 0

    # Deferred writes

    def apply_deferred_writes(
        self, stage_name: str, output_paths: Iterable[str], deferred: DeferredWrites
    ) -> None:
        """Record what a stage left to record: all of it in one append, or nothing (spec S4-19 to S4-22).

        `increment_outputs` raises the generation of each output. Where the run-cache entry names the hash of
        an output, its generation changes only if its content does (W4-02).
        """
        self._check_writes("apply_deferred_writes")
        outputs = [self._output(Path(path)) for path in output_paths]
        self._defer(stage_name, deferred, outputs if deferred.get("increment_outputs") else [])

    # Parts

    def _begin(self) -> None:
        """Bring the copy up to date; a read-only one is only made where it is missing (spec S4-02)."""
        if not self._readonly:
            self._copy.catch_up()
            return
        try:
            with self._copy.reading():
                pass
        except StateDBError:
            with BuildCopy(self.log, self._folder, self.project) as writable:
                writable.catch_up()

    def _check_writes(self, method: str) -> None:
        if self._closed:
            raise StateDBClosed
        if self._readonly:
            raise StateDBReadonly(method)

    def _file(self, path: Path) -> str:
        """The physical identity of a file: links are followed (spec S4-10)."""
        return self._real_identity(os.path.realpath(path))

    def _output(self, path: Path) -> str:
        """The logical identity of an output: links are kept (spec S4-12)."""
        text = os.fspath(path)
        return self._identity(text if text.startswith(os.sep) else Path(text).absolute())

    def _open(self, kind: type[S], name: str) -> S:
        """A new stream object of this project. Raises PathTooLongError where the copy cannot have its key."""
        keys.key(_PREFIXES[kind], name)
        try:
            return kind(self.project, name)
        except BadName as error:
            if error.wrong.endswith(f"more than {MAX_BYTES}"):
                raise PathTooLongError(name, len(error.value), MAX_BYTES) from error  # type: ignore[arg-type]
            raise

    def _load(self, streams: Sequence[S]) -> list[S]:
        """New stream objects as they are in the log now, in one snapshot, in this order."""
        anew = [type(stream)(*stream.key) for stream in streams]
        if anew:
            self.log.load_each(anew)
        return anew

    def _store(self, change: Callable[[], tuple[T, Sequence[Stream[Any, Any]]]]) -> T:
        """Append what `change` decides on streams that it loads, and bring the copy up to there."""

        def decide() -> tuple[T, int | None]:
            result, streams = change()
            appended = self.log.commit(*streams)
            return result, appended and appended.last_position

        result, position = retry_conflicts(decide)
        if position is not None:
            self._copy.catch_up(position)
        return result

    def _change_remote(self, remote_name: str, act: Callable[[OpenRemote], None]) -> None:
        remote = self._open(OpenRemote, remote_name)

        def change() -> tuple[None, list[OpenRemote]]:
            opened = self._load([remote])[0]
            act(opened)
            return None, [opened]

        self._store(change)

    def _dropped(self, dropped: Dropped) -> int:
        if dropped.position is not None:
            self._copy.catch_up(dropped.position)
        return dropped.number

    def _defer(self, stage_name: str, deferred: DeferredWrites, raised: Sequence[str]) -> None:
        """Record deferred writes in one append. raised: the outputs whose generations are raised."""
        stage = self._open(OpenStage, stage_name)
        outputs = [self._open(OpenOutput, path) for path in dict.fromkeys(raised)]
        generations = deferred.get("dep_generations")
        for dep in generations or ():
            keys.key(keys.DEP, stage_name, dep)
        input_hash, entry = deferred.get("run_cache_input_hash"), deferred.get("run_cache_entry")
        if input_hash is not None and entry is not None:
            check_run_cache_entry(entry)
            keys.key(keys.RUN_CACHE, stage_name, input_hash)
            self._open(OpenRun, entry["run_id"])
        hashes = self._hashes_in(entry)

        def change() -> tuple[None, list[Stream[Any, Any]]]:
            opened, changing = self._load([stage])[0], self._load(outputs)
            if generations is not None:
                opened.record_generations(generations)
            if input_hash is not None and entry is not None:
                opened.write_cache_entry(input_hash, entry)
            for output in changing:
                output.change(hashes.get(output.path), stage=stage_name, run=entry and entry["run_id"])
            return None, [opened, *changing]

        self._store(change)

    def _hashes_in(self, entry: RunCacheEntry | None) -> dict[str, str | None]:
        """The hashes of outputs that an entry of the run cache names, by the identity of the path."""
        outputs = entry["output_hashes"] if entry else []
        return {self._output(Path(output["path"])): output["hash"] for output in outputs}


_PREFIXES: Final[Mapping[type[Stream[Any, Any]], bytes]] = {
    OpenOutput: keys.GENERATION, OpenStage: keys.STAGE, OpenRun: keys.RUN, OpenRemote: keys.REMOTE,
}  # fmt: skip
"""The prefix of the key that the copy has for a stream."""


def _is_raw(key: bytes) -> bool:
    """Whether a raw key is short enough."""
    try:
        keys.raw(key)
    except PathTooLongError:
        return False
    return True
