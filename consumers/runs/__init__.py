"""The services of runs: what schedules them, marks late ones, ends dead ones, and frees what they held."""

from typing import TYPE_CHECKING

from ledger.lazy import lazily

if TYPE_CHECKING:
    from .listening import Listening
    from .services import RunServices, RunServiceSettings
else:
    __getattr__ = lazily(__name__, {"listening": "Listening", "services": "RunServices RunServiceSettings"})

__all__ = ["Listening", "RunServiceSettings", "RunServices"]
