"""Paths as a build file declares them: the slash at the end marks a folder, and is no part of its name."""

from __future__ import annotations


def bare(path: str) -> str:
    """A path without the slash that marks a folder: the name of a stream, an edge of the graph."""
    return path.rstrip("/") or path
