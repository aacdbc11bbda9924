"""
The fold of the log into entries of the local copy: what each fact changes in it.

The states are folded by the domain's own `evolve`. Values, with numbers as 8 bytes, big-endian:

    gen:       generation, hash as text (none: the content is not known)
    stage:     version of the stream, state as JSON
    dep:       generation
    runcache:  RunCacheEntry as JSON, as the original writes it
    run:       position since which the run is listed, `started_at` and `ended_at` as JSON
    plan:      `targeted_stages` and `execution_order` as JSON
    ranstage:  StageRunRecord as JSON
    order:     run id        remote:  1        cachedby:  key in the run cache

A name that is too long for a key has no entry: whoever asks for it gets PathTooLongError, as the writer does.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import suppress
from hashlib import blake2b
from struct import Struct
from typing import Any, Final, cast

import msgspec

from ledger import PathTooLongError, Recorded
from ledger.builds.manifests import OutputHashEntry, RunCacheEntry, RunManifest, serialize_to_bytes
from ledger.builds.output import OpenOutput, Output
from ledger.builds.remote import OpenRemote, RemoteAdded, RemoteCleared, RemoteRemoved
from ledger.builds.run import CacheDropped, OpenRun, RunDropped, evolve_manifest
from ledger.builds.stage import CacheEntryWritten, OpenStage, Stage, StageCompleted
from ledger.domain.event import Event
from ledger.domain.frozen import items_of
from ledger.domain.names import split_name, stream_name
from ledger.domain.state import decoder
from ledger.domain.topics import Unknown

from . import keys
from .environment import Transaction
from .keys import below, clear, entries, key

STREAMS: Final = (OpenOutput, OpenStage, OpenRun, OpenRemote)
NUMBER: Final = Struct(">Q")
ENCODER: Final = msgspec.json.Encoder(enc_hook=items_of)
read_stage: Final = decoder(Stage)
"""Reads a state of which nobody changes the dicts: to freeze them would take twenty times as long."""
TIMES: Final = ("started_at", "ended_at")
PLANNED: Final = ("targeted_stages", "execution_order")
FORMAT: Final = 3
"""Raise it whenever keys, values or this fold change: a copy of another format is made again."""


def prefixes(project: str) -> list[str]:
    """What the names of all streams of a project start with."""
    return [f"{stream_name(kind.CATEGORY, project)}/" for kind in STREAMS]


class Fold:
    """Folds facts of one project into the entries that a transaction writes."""

    def __init__(self, writer: Transaction, project: str) -> None:
        self._writer = writer
        self._prefixes = tuple(prefixes(project))
        self._does = {
            OpenOutput.CATEGORY: self._output,
            OpenStage.CATEGORY: self._stage,
            OpenRun.CATEGORY: self._run,
            OpenRemote.CATEGORY: self._remote,
        }

    def __call__(self, events: Iterable[Recorded]) -> int:
        """Fold these events, in the order of the log; returns how many were of the project.

        Raises UnreadableEvent where one of them does not match its topic.
        """
        folded = 0
        for event in events:
            if event.stream.startswith(self._prefixes):
                category, (_, *rest) = split_name(event.stream)
                if len(rest) == 1:
                    with suppress(PathTooLongError):
                        self._does[category](rest[0], event, event.event)
                    folded += 1
        return folded

    def _output(self, path: str, recorded: Recorded, fact: Event | Unknown) -> None:
        place = key(keys.GENERATION, path)
        known = self._writer.get(place)
        before = Output(hash=known[8:].decode() or None) if known else Output()
        now = _evolved(OpenOutput, before, fact, recorded)
        self._writer.put(place, NUMBER.pack(recorded.version) + (now.hash or "").encode())

    def _stage(self, stage: str, recorded: Recorded, fact: Event | Unknown) -> None:
        place = key(keys.STAGE, stage)
        known = self._writer.get(place)
        before = read_stage(known[8:]) if known else Stage()
        now = _evolved(OpenStage, before, fact, recorded)
        self._writer.put(place, NUMBER.pack(recorded.version) + ENCODER.encode(now))
        if now.generations != before.generations:
            clear(self._writer, below(keys.DEP, stage))
            for path, generation in now.generations.items():
                with suppress(PathTooLongError):
                    self._writer.put(key(keys.DEP, stage, path), NUMBER.pack(generation))
        if (entry := cache_entry(fact)) is not None:
            self._cache(key(keys.RUN_CACHE, stage, cast("Any", fact).input_hash), entry)

    def _run(self, run: str, recorded: Recorded, fact: Event | Unknown) -> None:
        place = key(keys.RUN, run)
        known = self._writer.get(place)
        before = now = None if known is None else _manifest(run, known[NUMBER.size :])
        if not isinstance(fact, Unknown):
            now = evolve_manifest(before, run, fact, recorded.recorded_at)
        # Listed from where it began, also one that was dropped before.
        position = NUMBER.pack(recorded.position) if known is None else known[: NUMBER.size]
        if now is not before:  # it began, was recorded as a whole, or was dropped
            self._begin(run, position, now)
        if now is not None:
            for stage, record in now["stages"].items():  # only those of this fact
                with suppress(PathTooLongError):
                    self._writer.put(key(keys.RAN_STAGE, run, stage), _json(record))
            self._writer.put(place, position + _json({name: now[name] for name in TIMES}))
        if isinstance(fact, RunDropped | CacheDropped):
            self._drop_cache(run)

    def _begin(self, run: str, position: bytes, now: RunManifest | None) -> None:
        """Write the plan of a run, which has no stages yet; or delete all that is known of the run."""
        clear(self._writer, below(keys.RAN_STAGE, run))
        order, plan = keys.ORDER + position, key(keys.PLAN, run)
        if now is None:
            for place in (order, plan, key(keys.RUN, run)):
                self._writer.delete(place)
        else:
            self._writer.put(order, run.encode())
            self._writer.put(plan, _json({name: now[name] for name in PLANNED}))

    def _remote(self, remote: str, recorded: Recorded, fact: Event | Unknown) -> None:
        match fact:
            case RemoteAdded(hashes=hashes):
                for hash in hashes:
                    with suppress(PathTooLongError):
                        self._writer.put(key(keys.REMOTE, remote, hash), b"1")
            case RemoteRemoved(hashes=hashes):
                for hash in hashes:
                    with suppress(PathTooLongError):
                        self._writer.delete(key(keys.REMOTE, remote, hash))
            case RemoteCleared():
                clear(self._writer, below(keys.REMOTE, remote))

    # The run cache

    def _cache(self, place: bytes, entry: RunCacheEntry) -> None:
        """Write an entry, and by which run it is found for dropping."""
        if (former := self._writer.get(place)) is not None:
            self._writer.delete(_cached_by(json.loads(former)["run_id"], place))
        self._writer.put(place, serialize_to_bytes(entry))
        self._writer.put(_cached_by(entry["run_id"], place), place)

    def _drop_cache(self, run: str) -> None:
        """Delete the entries that name a run."""
        for found, place in [*entries(self._writer, below(keys.CACHED_BY, run))]:
            self._writer.delete(place)
            self._writer.delete(found)


def cache_entry(fact: Event | Unknown) -> RunCacheEntry | None:
    """The entry of the run cache that a fact makes; None where it makes none."""
    match fact:
        case StageCompleted(run=str(run), incremental=False):
            outs = [out for out in fact.outs if out.cached]
        case CacheEntryWritten(run=run):
            outs = [*fact.outs]
        case _:
            return None
    hashes = [OutputHashEntry(path=out.path, hash=out.hash) for out in outs]
    for output in hashes:
        if (files := fact.manifests.get(output["path"])) is not None:
            output["manifest"] = [file._asdict() for file in files]  # type: ignore[misc]
    return RunCacheEntry(run_id=run, output_hashes=hashes)


def _manifest(run: str, times: bytes) -> RunManifest:
    """A manifest with the times of a run and nothing else, to apply one fact to."""
    told = json.loads(times)
    return RunManifest(
        run_id=run, started_at=told["started_at"], ended_at=told["ended_at"], targeted_stages=[],
        execution_order=[], stages={},
    )  # fmt: skip


def _evolved(kind: type[Any], state: Any, fact: Event | Unknown, recorded: Recorded) -> Any:
    return state if isinstance(fact, Unknown) else kind.evolve(state, fact, recorded.recorded_at)


def _cached_by(run: str, place: bytes) -> bytes:
    return below(keys.CACHED_BY, run) + blake2b(place, digest_size=16).digest()


def _json(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
