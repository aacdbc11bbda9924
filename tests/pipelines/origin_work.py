"""How the origin worked on its state: guards, milestones, events, flows and commands (spec 1.6 to 1.8)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import wraps
from typing import Any

import psycopg

from ledger.pipelines import (
    Ident,
    LSMChannelId,
    LSMStripId,
    OCTBatchId,
    OCTMosaicId,
    OCTSliceId,
    ProcessingState,
    RunDecision,
)
from tests.pipelines.origin import OriginStore

CHANNEL_READY, STRIP_COMPRESSED = "lsm.channel.ready", "lsm.strip.compressed"
MOSAIC_READY, SLICE_REGISTERED = "psoct.mosaic.ready", "psoct.slice.registered"
_log = logging.getLogger(__name__)


class OriginWork:
    """The flows of the origin on its two stores. crash: called where something is half done."""

    def __init__(self, dsn: str, crash: Callable[[], None] = lambda: None) -> None:
        self.dsn, self.crash = dsn, crash
        self.lsm, self.oct = OriginStore(dsn, "lsm"), OriginStore(dsn, "oct")

    # Guards and milestones

    def opener(self, ident: Ident) -> Any:
        """The default opener of guards; it has no branch for slices (W0-17)."""
        if isinstance(ident, LSMStripId | LSMChannelId):
            return self.lsm.open_item(ident)
        if isinstance(ident, OCTBatchId | OCTMosaicId):
            return self.oct.open_item(ident)
        raise TypeError(f"unsupported item_ident type for default open_state: {type(ident)!r}")

    def enter_flow(self, view: Any, ident: Ident, *, skip_if_running: bool = False) -> RunDecision:
        """Decides on a view that was peeked at before, then acts under the lock (W0-07)."""
        if view is not None and (
            view.processing_state is ProcessingState.COMPLETED
            or (skip_if_running and view.processing_state is ProcessingState.RUNNING)
        ):
            return RunDecision.SKIPPED
        with self.opener(ident) as item:
            item.mark_started()
        return RunDecision.STARTED

    def enter_milestone(self, view: Any, ident: Ident, field: str) -> RunDecision:
        if getattr(view, field, False):
            return RunDecision.SKIPPED
        with self.opener(ident) as item:
            getattr(item, f"reset_{field}")()
        return RunDecision.STARTED

    def milestone(
        self, field: str, on_failure: Callable[[Any, Exception], object] | None = None
    ) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """The wrapper: who returns has succeeded, even if it decided to skip (W0-10)."""

        def around(function: Callable[..., Any]) -> Callable[..., Any]:
            @wraps(function)
            def wrapper(*, ident: Ident) -> Any:
                store = self.lsm if ident.__class__.__name__.startswith("LSM") else self.oct
                if self.enter_milestone(store.peek_item(ident), ident, field) is RunDecision.SKIPPED:
                    return None
                try:
                    result = function(ident=ident)
                except Exception as error:
                    try:
                        (on_failure or self.tell_the_lab)(ident, error)
                    except Exception:
                        _log.exception("Failure hook failed for %s field=%s", ident, field)
                    raise
                with store.open_item(ident) as item:
                    getattr(item, f"set_{field}")(True)
                return result

            return wrapper

        return around

    def tell_the_lab(self, ident: Ident, error: Exception) -> None:
        """The default failure hook of strips (W0-18)."""
        raise NotImplementedError

    # Events

    def emit(self, name: str, ident: Ident) -> None:
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            connection.execute("INSERT INTO emitted VALUES (%s, %s)", [name, str(ident)])

    def check_channel_ready(self, ident: LSMChannelId, strips_per_slice: int) -> None:
        """Run whenever a strip's flow completes, and so again for each later one (W0-12)."""
        view = self.lsm.peek_item(ident)
        if view is not None and view.all_compressed(strips_per_slice):
            self.emit(CHANNEL_READY, ident)

    def check_mosaic_ready(self, ident: OCTMosaicId, batches: int) -> None:
        view = self.oct.peek_item(ident)
        if view is not None and view.all_batches_done(batches):
            self.emit(MOSAIC_READY, ident)

    # Flows

    def compress_strip(self, ident: LSMStripId, strips_per_slice: int) -> None:
        """Writes first and emits after (W0-11)."""
        with self.lsm.open_item(ident) as strip:
            strip.set_compressed()
        self.crash()
        self.emit(STRIP_COMPRESSED, ident)
        self.check_channel_ready(LSMChannelId(*ident.key[:3]), strips_per_slice)

    def register_slice(self, ident: OCTSliceId) -> None:
        """Emits first and writes after (W0-11)."""
        self.emit(SLICE_REGISTERED, ident)
        self.crash()
        with self.oct.open_item(ident) as item:
            item.mark_completed()
            item.set_registered()

    def process_strip(self, ident: LSMStripId) -> None:
        """Raises outside of what any hook covers, and leaves the strip running (W0-08)."""
        self.enter_flow(self.lsm.peek_item(ident), ident)
        raise RuntimeError("Strip folder is too small")

    def slice_of_mosaic_in_flows(self, mosaic_id: int, mosaics_per_slice: int = 2) -> int:
        return (mosaic_id - 1) // mosaics_per_slice + 1

    def slice_of_mosaic_in_service(self, mosaic_id: int) -> int:  # another rule (W0-09)
        return mosaic_id // 2

    # Commands

    def show(self, project_name: str) -> str:
        with self.lsm.locked(project_name) as project:  # opens for change to look (W0-01)
            return str(project.model_dump_json(indent=2))

    def reset_all(self, project_name: str) -> str:
        """Deletes from what it iterates; of nothing it says that it was reset (W0-13)."""
        with self.lsm.locked(project_name) as project:
            deleted = all(project.delete_slice(slice_id) for slice_id in project.slices)
        if not deleted:
            raise ValueError("Target does not exist in project state")
        return f"Reset slice from project={project_name!r}: slice=None"
