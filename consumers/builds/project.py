"""A build project that is open: its build file and graph, its files, its local copy, its content cache."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ledger import Ledger
from projections.builds.caches import FileHash, Fingerprint
from projections.builds.copy import BuildCopy

from .build_file import BuildFile, read_build_file
from .content_cache import ContentCache
from .graph import Graph, graph_of
from .hashing import Workspace

COPY: Final = ".pledger/builds"
"""The folder of the local copy, below the root of a project."""
SCRATCH: Final = ".pledger/builds/scratch"


class CopyCaches:
    """The hashes of files and the fingerprints of code that the local copy keeps."""

    def __init__(self, copy: BuildCopy) -> None:
        self._copy = copy

    def get_many(self, files: Sequence[tuple[str, os.stat_result]]) -> Sequence[str | None]:
        """As in `HashCache`."""
        with self._copy.reading() as now:
            return now.hashes(files)

    def save_many(self, files: Sequence[tuple[str, os.stat_result, str]], seen_at: int) -> None:
        """As in `HashCache`."""
        self._copy.save_hashes([FileHash(*file) for file in files], seen_at)

    def fingerprints(self, wanted: Sequence[Fingerprint]) -> Sequence[str | None]:
        """As in `FingerprintCache`."""
        with self._copy.reading() as now:
            return now.fingerprints(wanted)

    def save_fingerprints(self, made: Sequence[tuple[Fingerprint, str]], seen_at: int) -> None:
        """As in `FingerprintCache`."""
        if made:
            self._copy.save_fingerprints(made, seen_at)


@dataclass(frozen=True)
class Project:
    """A project that is open."""

    log: Ledger
    build: BuildFile
    graph: Graph
    copy: BuildCopy
    caches: CopyCaches
    workspace: Workspace
    contents: ContentCache

    @property
    def name(self) -> str:
        """The name of the project, in the names of its streams."""
        return self.build.project


@contextmanager
def opened(log: Ledger, file: Path, *, copy: Path | None = None) -> Iterator[Project]:
    """Open the project of a build file. copy: the folder of the local copy, by default below the root.

    Raises BadFile, BadInput, StateDBError.
    """
    build = read_build_file(file)
    graph = graph_of(build)
    with BuildCopy(log, copy or build.root / COPY, build.project) as local:
        caches = CopyCaches(local)
        workspace = Workspace(build.root, caches)
        contents = ContentCache(build.cache, build.root / SCRATCH, build.link)
        yield Project(log, build, graph, local, caches, workspace, contents)
