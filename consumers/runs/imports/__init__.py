"""
The import of a Prefect database: what its server kept, recorded with its ids and its times as claimed ones.

    with prefect_database("~/.prefect/prefect.db") as database:
        report = Import(log, database).run()

    database.py     reads SQLite files and PostgreSQL databases of Prefect 3.6 to 3.8
    secrets.py      decrypts the values of blocks with the key that Prefect keeps beside them
    records.py      flows, deployments, pools, blocks, variables, limits and so on
    runs.py         flow runs and task runs with their states
    importer.py     the order of all that, and how far it is
"""

from typing import TYPE_CHECKING

from ledger.lazy import lazily

if TYPE_CHECKING:
    from .database import PrefectDatabase, prefect_database
    from .importer import Import, Progress, Report
else:
    __getattr__ = lazily(
        __name__,
        {"database": "PrefectDatabase prefect_database", "importer": "Import Progress Report"},
    )

__all__ = ["Import", "PrefectDatabase", "Progress", "Report", "prefect_database"]
