"""
A PostgreSQL server for a machine that has none.

Binaries come from a wheel or from the system, and the data is in a folder of the ledger. Kernel file locks
decide when the server stops: with its last client, however that client died.

    home.py      the folder, its locks and secrets
    account.py   who the server's processes run as
    binaries.py  which PostgreSQL, and making it usable
    cluster.py   initdb, start, ready; the everyday role
    sharing.py   `Embedded`: many processes, one server
    reaper.py    the small program that stops it
"""

from ledger.embedded.shared_server import Embedded, throwaway

__all__ = ["Embedded", "throwaway"]
