"""
Prefect: flows and tasks that use the ledger (extra `[prefect]`).

    from consumers.prefect_flows import PrefectLocks, acting_in_run, ledger_from_block

    @flow
    def process(strip_id):
        with ledger_from_block() as log, acting_in_run():
            service = LSMStateService(ProjectStore(LSM, log, locks=PrefectLocks("lsm")))
            with service.open_strip("brain_7", slice_id=1, strip_id=strip_id) as strip:
                strip.mark_completed()

The connection is that of a `prefect-sqlalchemy` block; the history says which run did what; the lock may be
a global concurrency limit that other code takes too. Prefect is imported when it is first used: without the
extra this package can be imported, and using it raises ModuleNotFoundError, which names the extra.
"""

from .blocks import BLOCK, dsn_from_block, ledger_from_block
from .limits import LimitUnfit, ensure_limit, limit_name
from .locks import PrefectLocks
from .runs import acting_in_run

__all__ = [
    "BLOCK",
    "LimitUnfit",
    "PrefectLocks",
    "acting_in_run",
    "dsn_from_block",
    "ensure_limit",
    "ledger_from_block",
    "limit_name",
]
