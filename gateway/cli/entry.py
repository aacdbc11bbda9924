"""
The command `pledger` before it imports the rest of the package: checks that the package's parts are its own.

A foreign `consumers.py` or folder `gateway` that stands earlier on Python's path hides the package's own, and
the result is a traceback. The wheel contains this file as `pledger.py` as well (pyproject.toml), because a
module in a hidden package could report nothing.
"""

from __future__ import annotations

import gc
import json
import sys
from collections import Counter
from importlib.util import find_spec
from pathlib import Path

OURS = {
    "ledger": "log/append.py",
    "projections": "engine/__init__.py",
    "consumers": "reactor.py",
    "gateway": "cli/main.py",
}
"""The packages of pipeline-ledger, each with a file that no other package of that name has."""

MISUSE = 2
"""The exit code for wrong use (gateway/cli/errors.py, which may be hidden)."""


def main() -> int:
    """Run `pledger`, or report in one sentence which file hides a part of it; returns the exit code."""
    if found := hiding():
        return _refuse(*found)
    # What is imported stays, so it is not searched for garbage: 5 to 14 % of the start of most commands.
    gc.set_threshold(100_000)
    from gateway.cli.main import main as run

    return run()


def hiding() -> tuple[str, Path | None] | None:
    """A package of this distribution that another file hides, and that file.

    None for the file: there is no file. None: all four packages are ours, and from one place.
    """
    files = {package: _file_of(package) for package in OURS}
    roots = Counter(file.parent.parent for package, file in files.items() if file and _is_ours(package, file))
    for package, file in files.items():
        if file is None or not _is_ours(package, file) or file.parent.parent != roots.most_common(1)[0][0]:
            return package, file
    return None


def _file_of(package: str) -> Path | None:
    """The file that `import PACKAGE` would run, without importing it; None for a folder without one."""
    found = find_spec(package)
    return Path(found.origin) if found and found.origin else None


def _is_ours(package: str, file: Path) -> bool:
    return file.name == "__init__.py" and (file.parent / OURS[package]).is_file()


def _refuse(package: str, file: Path | None) -> int:
    if file is None:
        says = f"the package `{package}` of pipeline-ledger is missing: install pipeline-ledger again"
    else:
        says = (
            f"{file} hides the package `{package}` of pipeline-ledger: rename it, or remove its folder from "
            "PYTHONPATH"
        )
    if "--json" in sys.argv[1:]:
        parts = {"package": package, "file": None if file is None else str(file)}
        said = json.dumps({"error": "HiddenPackage", "message": says, "parts": parts, "exit": MISUSE})
    else:
        said = f"pledger: {says}"
    print(said, file=sys.stderr)
    return MISUSE


if __name__ == "__main__":
    sys.exit(main())
