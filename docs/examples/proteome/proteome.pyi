# ruff: noqa: E501, I001
# fmt: off
"""Made by `python -m ledger.pipelines.stub proteome` from the declaration; change that."""

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Final, overload

from ledger.log.ledger import Ledger
from ledger.log.scope_locks import Locks
from ledger.pipelines.pipeline import Pipeline
from ledger.pipelines.facts import (
    Completed, Created, Deleted, Entered, Failed, FlagSet, Left, MadePending, Planned, ProjectCreated, Reset,
    Started, Touched,
)
from ledger.pipelines.ident import Ident
from ledger.pipelines.item import Item
from ledger.pipelines.item import OpenItem
from ledger.pipelines.readiness import BecameReady, OpenReadiness
from ledger.pipelines.service import StateService
from ledger.pipelines.service import ProjectStore

PROTEOME: Final[Pipeline]

@dataclass(frozen=True)
class ProteomeProjectId(Ident): ...

@dataclass(frozen=True)
class ProteomeProteinId(ProteomeProjectId):
    protein_id: int

@dataclass(frozen=True)
class ProteomeDigestId(ProteomeProteinId):
    digest_id: int

@dataclass(frozen=True, slots=True, kw_only=True)
class ProteomeDigestStateView(Item):
    protein_id: int
    digest_id: int
    cleaved: bool = False
    weighed: bool = False
    exported: bool = False

class ProteomeDigestState(OpenItem[ProteomeDigestStateView]):
    @property
    def protein_id(self) -> int: ...
    @property
    def digest_id(self) -> int: ...
    @property
    def cleaved(self) -> bool: ...
    @property
    def weighed(self) -> bool: ...
    @property
    def exported(self) -> bool: ...
    def set_cleaved(self, value: bool = True) -> None: ...
    def reset_cleaved(self) -> None: ...
    def set_weighed(self, value: bool = True) -> None: ...
    def reset_weighed(self) -> None: ...
    def set_exported(self, value: bool = True) -> None: ...
    def reset_exported(self) -> None: ...

class ProteomeDigestCreated(Created):
    """proteome.digest.created"""
class ProteomeDigestTouched(Touched):
    """proteome.digest.touched"""
class ProteomeDigestStarted(Started):
    """proteome.digest.started"""
class ProteomeDigestCompleted(Completed):
    """proteome.digest.completed"""
class ProteomeDigestFailed(Failed):
    """proteome.digest.failed"""
class ProteomeDigestPending(MadePending):
    """proteome.digest.pending"""
class ProteomeDigestDeleted(Deleted):
    """proteome.digest.deleted"""
class ProteomeDigestReset(Reset):
    """proteome.digest.reset"""
class ProteomeDigestEntered(Entered):
    """proteome.digest.entered"""
class ProteomeDigestLeft(Left):
    """proteome.digest.left"""
class ProteomeDigestCleaved(FlagSet):
    """proteome.digest.cleaved"""
class ProteomeDigestWeighed(FlagSet):
    """proteome.digest.weighed"""
class ProteomeDigestExported(FlagSet):
    """proteome.digest.exported"""

@dataclass(frozen=True, slots=True, kw_only=True)
class ProteomeProteinStateView(Item):
    protein_id: int
    covered: bool = False
    digests: Mapping[int, ProteomeDigestStateView] = ...
    def get_digest(self, digest_id: int) -> ProteomeDigestStateView | None:
        """The digest, None where any part of the way to it is missing."""
    def iter_digests(self) -> Iterator[ProteomeDigestStateView]:
        """Every digest, by its ids."""

class ProteomeProteinState(OpenItem[ProteomeProteinStateView]):
    @property
    def protein_id(self) -> int: ...
    @property
    def covered(self) -> bool: ...
    @property
    def digests(self) -> Mapping[int, ProteomeDigestState]: ...
    def set_covered(self, value: bool = True) -> None: ...
    def reset_covered(self) -> None: ...
    def get_digest(self, digest_id: int) -> ProteomeDigestState | None:
        """The digest, None where any part of the way to it is missing."""
    def iter_digests(self) -> Iterator[ProteomeDigestState]:
        """Every digest, by its ids."""
    def get_or_create_digest(self, digest_id: int) -> ProteomeDigestState:
        """The digest, created where there is none, with what is missing above it."""

class ProteomeProteinCreated(Created):
    """proteome.protein.created"""
class ProteomeProteinTouched(Touched):
    """proteome.protein.touched"""
class ProteomeProteinStarted(Started):
    """proteome.protein.started"""
class ProteomeProteinCompleted(Completed):
    """proteome.protein.completed"""
class ProteomeProteinFailed(Failed):
    """proteome.protein.failed"""
class ProteomeProteinPending(MadePending):
    """proteome.protein.pending"""
class ProteomeProteinDeleted(Deleted):
    """proteome.protein.deleted"""
class ProteomeProteinReset(Reset):
    """proteome.protein.reset"""
class ProteomeProteinEntered(Entered):
    """proteome.protein.entered"""
class ProteomeProteinLeft(Left):
    """proteome.protein.left"""
class ProteomeProteinCovered(FlagSet):
    """proteome.protein.covered"""

@dataclass(frozen=True, slots=True, kw_only=True)
class ProteomeProjectStateView(Item):
    project_name: str
    digests_per_protein: int | None = None
    proteins: Mapping[int, ProteomeProteinStateView] = ...
    def get_protein(self, protein_id: int) -> ProteomeProteinStateView | None:
        """The protein, None where any part of the way to it is missing."""
    def iter_proteins(self) -> Iterator[ProteomeProteinStateView]:
        """Every protein, by its ids."""
    @overload
    def get_digest(self, protein_id: int, digest_id: int) -> ProteomeDigestStateView | None:
        """The digest, None where any part of the way to it is missing."""
    @overload
    def get_digest(self, ident: ProteomeDigestId) -> ProteomeDigestStateView | None:
        """The digest, None where any part of the way to it is missing."""
    def iter_digests(self) -> Iterator[ProteomeDigestStateView]:
        """Every digest, by its ids."""
    def get_digest_by_parts(self, protein_id: int, digest_id: int) -> ProteomeDigestStateView | None:
        """The same; mind the order of the ids."""

class ProteomeProjectState(OpenItem[ProteomeProjectStateView]):
    @property
    def project_name(self) -> str: ...
    @property
    def digests_per_protein(self) -> int | None: ...
    @property
    def proteins(self) -> Mapping[int, ProteomeProteinState]: ...
    def get_protein(self, protein_id: int) -> ProteomeProteinState | None:
        """The protein, None where any part of the way to it is missing."""
    def iter_proteins(self) -> Iterator[ProteomeProteinState]:
        """Every protein, by its ids."""
    def get_or_create_protein(self, protein_id: int) -> ProteomeProteinState:
        """The protein, created where there is none, with what is missing above it."""
    def delete_protein(self, protein_id: int) -> bool:
        """Delete a protein with all below it; False, and nothing changes, where there is none."""
    @overload
    def get_digest(self, protein_id: int, digest_id: int) -> ProteomeDigestState | None:
        """The digest, None where any part of the way to it is missing."""
    @overload
    def get_digest(self, ident: ProteomeDigestId) -> ProteomeDigestState | None:
        """The digest, None where any part of the way to it is missing."""
    def iter_digests(self) -> Iterator[ProteomeDigestState]:
        """Every digest, by its ids."""
    def get_digest_by_parts(self, protein_id: int, digest_id: int) -> ProteomeDigestState | None:
        """The same; mind the order of the ids."""
    @overload
    def get_or_create_digest(self, protein_id: int, digest_id: int) -> ProteomeDigestState:
        """The digest, created where there is none, with what is missing above it."""
    @overload
    def get_or_create_digest(self, ident: ProteomeDigestId) -> ProteomeDigestState:
        """The digest, created where there is none, with what is missing above it."""
    def get_or_create_digest_by_parts(self, protein_id: int, digest_id: int) -> ProteomeDigestState:
        """The same; mind the order of the ids."""
    def delete_digest(self, protein_id: int, digest_id: int) -> bool:
        """Delete a digest with all below it; False, and nothing changes, where there is none."""

class ProteomeProjectCreated(ProjectCreated):
    """proteome.project.created"""
class ProteomeProjectTouched(Touched):
    """proteome.project.touched"""
class ProteomeProjectStarted(Started):
    """proteome.project.started"""
class ProteomeProjectCompleted(Completed):
    """proteome.project.completed"""
class ProteomeProjectFailed(Failed):
    """proteome.project.failed"""
class ProteomeProjectPending(MadePending):
    """proteome.project.pending"""
class ProteomeProjectDeleted(Deleted):
    """proteome.project.deleted"""
class ProteomeProjectReset(Reset):
    """proteome.project.reset"""
class ProteomeProjectEntered(Entered):
    """proteome.project.entered"""
class ProteomeProjectLeft(Left):
    """proteome.project.left"""
class ProteomeProjectPlanned(Planned):
    """proteome.project.planned"""

class ProteomeProteinReady(BecameReady):
    """proteome.protein.ready"""

class ProteomeProteinReadiness(OpenReadiness): ...

class ProteomeStateService(StateService):
    def __init__(
        self, ledger: Ledger | ProjectStore | None = None, *, locks: Locks | None = None
    ) -> None: ...
    def open_project(
        self, project: ProteomeProjectId | str, *, timeout_seconds: float | None = None
    ) -> AbstractContextManager[ProteomeProjectState]:
        """The project, open for change."""
    def open_project_by_parts(
        self, project_name: str, *, timeout_seconds: float | None = None
    ) -> AbstractContextManager[ProteomeProjectState]:
        """The project, open for change."""
    def read_project(
        self, project: ProteomeProjectId | str, *, timeout_seconds: float | None = None
    ) -> ProteomeProjectStateView:
        """The project and all below it; an empty one where there is none."""
    def read_project_by_parts(
        self, project_name: str, *, timeout_seconds: float | None = None
    ) -> ProteomeProjectStateView:
        """The project and all below it; an empty one where there is none."""
    def peek_project(self, project: ProteomeProjectId | str) -> ProteomeProjectStateView:
        """The same without waiting for anybody."""
    def peek_project_by_parts(self, project_name: str) -> ProteomeProjectStateView:
        """The same without waiting for anybody."""
    def open_protein(
        self, project: ProteomeProteinId | str, *, protein_id: int | None = None, timeout_seconds: float | None = None
    ) -> AbstractContextManager[ProteomeProteinState]:
        """The protein, open for change."""
    def open_protein_by_parts(
        self, project_name: str, *, protein_id: int, timeout_seconds: float | None = None
    ) -> AbstractContextManager[ProteomeProteinState]:
        """The protein, open for change."""
    def read_protein(
        self, project: ProteomeProteinId | str, *, protein_id: int | None = None, timeout_seconds: float | None = None
    ) -> ProteomeProteinStateView | None:
        """The protein and all below it; None where there is none."""
    def read_protein_by_parts(
        self, project_name: str, *, protein_id: int, timeout_seconds: float | None = None
    ) -> ProteomeProteinStateView | None:
        """The protein and all below it; None where there is none."""
    def peek_protein(
        self, project: ProteomeProteinId | str, *, protein_id: int | None = None
    ) -> ProteomeProteinStateView | None:
        """The same without waiting for anybody."""
    def peek_protein_by_parts(self, project_name: str, *, protein_id: int) -> ProteomeProteinStateView | None:
        """The same without waiting for anybody."""
    def open_digest(
        self, project: ProteomeDigestId | str, *, protein_id: int | None = None, digest_id: int | None = None, timeout_seconds: float | None = None
    ) -> AbstractContextManager[ProteomeDigestState]:
        """The digest, open for change."""
    def open_digest_by_parts(
        self, project_name: str, *, protein_id: int, digest_id: int, timeout_seconds: float | None = None
    ) -> AbstractContextManager[ProteomeDigestState]:
        """The digest, open for change."""
    def read_digest(
        self, project: ProteomeDigestId | str, *, protein_id: int | None = None, digest_id: int | None = None, timeout_seconds: float | None = None
    ) -> ProteomeDigestStateView | None:
        """The digest and all below it; None where there is none."""
    def read_digest_by_parts(
        self, project_name: str, *, protein_id: int, digest_id: int, timeout_seconds: float | None = None
    ) -> ProteomeDigestStateView | None:
        """The digest and all below it; None where there is none."""
    def peek_digest(
        self, project: ProteomeDigestId | str, *, protein_id: int | None = None, digest_id: int | None = None
    ) -> ProteomeDigestStateView | None:
        """The same without waiting for anybody."""
    def peek_digest_by_parts(
        self, project_name: str, *, protein_id: int, digest_id: int
    ) -> ProteomeDigestStateView | None:
        """The same without waiting for anybody."""

PROTEOMES: Final[ProteomeStateService]
