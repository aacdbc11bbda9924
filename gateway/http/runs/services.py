"""What the routes work with, made once for a server: the services of the ledger, and the views of runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from ledger import Ledger


@dataclass(frozen=True, slots=True)
class PrefectSettings:
    """How the Prefect-compatible API is served.

    version: the version of Prefect that it names; None: that of the client. services: also run the services
    of runs (scheduler, late runs, …) in this process.
    """

    version: str | None = None
    services: bool = True


class Services:
    """The services of runs on one ledger; while the block runs, the views of runs are followed."""

    def __init__(self, ledger: Ledger, settings: PrefectSettings) -> None:
        self.ledger, self.settings = ledger, settings

    def __enter__(self) -> Self:
        """Begin to follow the views, and to run the services."""
        return self

    def __exit__(self, *_: object) -> None:
        """Stop both."""
