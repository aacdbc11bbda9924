"""Paths of a project: relative to its root, POSIX, without `.` and `..`; a moved checkout keeps them."""

from __future__ import annotations

import posixpath


def normal_path(path: str) -> str:
    """A path without `.` and `..` inside; links stay, and so does the slash at the end of a folder."""
    if not path or path == "/":
        return path
    normal = posixpath.normpath(path)
    return f"{normal}/" if path.endswith("/") else normal


def relative_path(root: str, path: str) -> str:
    """A path relative to the root; one outside of it stays absolute (W4-08)."""
    full = normal_path(posixpath.join(root, path))
    home = f"{root}/"
    return full[len(home) :] if full.startswith(home) else full


def bare(path: str) -> str:
    """A path without the slash that marks a folder: the name of a stream, an edge of the graph."""
    return path.rstrip("/") or path
