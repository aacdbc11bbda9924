"""
Stages that another build tool has recorded: lock files of DVC and of pivot, as facts of this ledger.

    dvc.py, pivot.py    read lock files, as locked.py has them
    verified.py         compares them with the files in the workspace
    recorded.py         the one append
    declared.py         a build file that declares the same stages
"""

__all__: list[str] = []
