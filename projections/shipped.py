"""The views that are shipped: of no domain, or of the domains of this package."""

from __future__ import annotations

import importlib
from typing import Final

from ledger.domain.known import KNOWN

DOMAINS: Final = (
    "ledger.builds", "ledger.jobs", "ledger.machines", "ledger.pipelines.lsm", "ledger.pipelines.psoct",
    "ledger.runs",
)  # fmt: skip
"""The packages of the shipped domains; each domain names its views."""
VIEWS: Final = ("projections.views.in_state", "projections.views.progress", "projections.views.activity")
"""The modules that define the views of all domains; the SQL of each lies beside it, under the view's name."""


def load() -> None:
    """Import the shipped domains and all views that imported domains name, so that projectors find them."""
    for module in (*DOMAINS, *VIEWS):
        importlib.import_module(module)
    for domain in [*KNOWN.domains.values()]:
        domain.load_views()
    importlib.import_module("projections.pipelines.items").load()
