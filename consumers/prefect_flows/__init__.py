"""
Prefect: flows and tasks that use the ledger (extra `[prefect]`).

    from consumers.prefect_flows import PrefectLocks, acting_in_run, ledger_from_block

    @flow
    def process(strip_id):
        with ledger_from_block() as log, acting_in_run():
            service = LSMStateService(ProjectStore(LSM, log, locks=PrefectLocks("lsm")))
            with service.open_strip("brain_7", slice_id=1, strip_id=strip_id) as strip:
                strip.mark_completed()

The connection comes from a `prefect-sqlalchemy` block; events carry the run as their actor; the lock can be a
global concurrency limit that other code takes too. Prefect is imported on first use: without the extra this
package can be imported, and its use raises ModuleNotFoundError with the name of the extra.
"""

from .blocks import ledger_from_block
from .limits import LimitUnfit, ensure_limit
from .locks import PrefectLocks
from .runs import acting_in_run

__all__ = [
    "LimitUnfit",
    "PrefectLocks",
    "acting_in_run",
    "ensure_limit",
    "ledger_from_block",
]
