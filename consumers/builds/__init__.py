"""Builds that run: build files, their graphs, what is in files, the content cache; and the store StateDB."""

from typing import TYPE_CHECKING

from ledger.lazy import lazily

if TYPE_CHECKING:
    from .progress import RunEnded
    from .run import run_build
    from .state_db import StateDB
else:
    __getattr__ = lazily(__name__, {"progress": "RunEnded", "run": "run_build", "state_db": "StateDB"})

__all__ = ["RunEnded", "StateDB", "run_build"]
