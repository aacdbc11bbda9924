"""
The manifest of a stage's code: its command, and a fingerprint of each function that it names.

    code = ["src/model.py:train"]

A fingerprint is the SHA-256 of the source of a function, a class or a variable, without comments, docstrings
and layout; and of all names of the same file that it uses, and those that these use. So an edit elsewhere in
the file runs nothing again. What is imported counts by the line that imports it: name such files as
dependencies.
"""

from __future__ import annotations

import ast
import hashlib
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, Protocol

from ledger.errors import BadInput
from projections.builds.caches import Fingerprint

from .build_file import Stage

PYTHON: Final = f"{sys.version_info.major}.{sys.version_info.minor}"
SCHEMA: Final = "1"
"""Of the fingerprints: raise it when the code here makes others."""
COMMAND: Final = "command"
"""The key of the command in the manifest."""


class FingerprintCache(Protocol):
    """Fingerprints that were made; it may forget any of them."""

    def fingerprints(self, wanted: Sequence[Fingerprint]) -> Sequence[str | None]:
        """Each fingerprint, None where it is not known."""
        ...

    def save_fingerprints(self, made: Sequence[tuple[Fingerprint, str]], seen_at: int) -> object:
        """Keep fingerprints. seen_at: as in `HashCache`."""
        ...


def fingerprint(source: str, name: str) -> str:
    """The fingerprint of a function, class or variable of a module; of a method by `Class.method`.

    Raises BadInput where there is none of this name, or the source is no Python.
    """
    try:
        module = ast.parse(source)
    except (SyntaxError, ValueError) as error:
        raise BadInput(f"is no Python {PYTHON}: {error}") from None
    defined = _definitions(module.body)
    found = _found(defined, name)
    parts = [*found, *(node for used in sorted(_used(found, defined)) for node in defined[used])]
    text = "\n".join(ast.unparse(_WithoutDocstrings().visit(node)) for node in dict.fromkeys(parts))
    return hashlib.sha256(text.encode()).hexdigest()


def code_manifests(
    root: Path, stages: Iterable[Stage], cache: FingerprintCache
) -> dict[str, dict[str, str] | BadInput]:
    """The manifest of the code of each stage; an error where its code is not there or is no Python."""
    stages = list(stages)
    made = _fingerprints(root, {place for stage in stages for place in stage.code}, cache)
    return {stage.name: _manifest(stage, made) for stage in stages}


def _manifest(stage: Stage, made: Mapping[str, str | BadInput]) -> dict[str, str] | BadInput:
    manifest = {COMMAND: stage.template}
    for place in stage.code:
        found = made[place]
        if isinstance(found, BadInput):
            return found
        manifest[place] = found
    return manifest


def _fingerprints(root: Path, places: set[str], cache: FingerprintCache) -> dict[str, str | BadInput]:
    """The fingerprint of each `FILE:NAME`."""
    made: dict[str, str | BadInput] = {}
    keys: dict[str, Fingerprint] = {}
    seen_at = time.time_ns()
    for place in sorted(places):
        file, _, name = place.rpartition(":")
        try:
            what = (root / file).stat()
            keys[place] = Fingerprint(file, what.st_mtime_ns, what.st_size, what.st_ino, name, PYTHON, SCHEMA)
        except OSError as error:
            made[place] = BadInput(f"the code {place} cannot be read: {error.strerror}")
    known = dict(zip(keys, cache.fingerprints([*keys.values()]), strict=True)) if keys else {}
    fresh = {place: _made(root, place) for place, found in known.items() if found is None}
    cache.save_fingerprints(
        [(keys[place], one) for place, one in fresh.items() if isinstance(one, str)], seen_at
    )
    return made | {place: one for place, one in known.items() if one is not None} | fresh


def _made(root: Path, place: str) -> str | BadInput:
    file, _, name = place.rpartition(":")
    try:
        return fingerprint((root / file).read_text(encoding="utf-8"), name)
    except (OSError, UnicodeDecodeError) as error:
        return BadInput(f"the code {place} cannot be read: {error}")
    except BadInput as error:
        return BadInput(f"the code {place}: {error}")


def _definitions(body: Iterable[ast.stmt]) -> dict[str, list[ast.stmt]]:
    """What defines each name of a module or class; a name may be defined in several places."""
    found: dict[str, list[ast.stmt]] = {}
    for node in body:
        for name in _defines(node):
            found.setdefault(name, []).append(node)
    return found


def _defines(node: ast.stmt) -> set[str]:
    """The names that a statement defines; of an `if` or `try` those of all statements in it."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return {node.name}
    if isinstance(node, ast.Import | ast.ImportFrom):
        return {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
    names = {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    inner = [n for n in ast.walk(node) if isinstance(n, ast.stmt) and n is not node]
    return names.union(*(_defines(n) for n in inner))


def _found(defined: Mapping[str, list[ast.stmt]], name: str) -> list[ast.stmt]:
    """The statements that define a name; of `Class.method` those in the class."""
    first, _, rest = name.partition(".")
    found = defined.get(first, [])
    if rest and found:
        inside = [node for one in found if isinstance(one, ast.ClassDef) for node in one.body]
        return _found(_definitions(inside), rest)
    if not found:
        raise BadInput(f"defines no {name}")
    return found


def _used(start: Iterable[ast.stmt], defined: Mapping[str, list[ast.stmt]]) -> set[str]:
    """The names of the module that these statements use, and those that their definitions use."""
    used: set[str] = set()
    left = list(start)
    while left:
        for node in ast.walk(left.pop()):
            if isinstance(node, ast.Name) and node.id in defined and node.id not in used:
                used.add(node.id)
                left += defined[node.id]
    return used


class _WithoutDocstrings(ast.NodeTransformer):
    """Removes the docstrings of functions and classes."""

    def generic_visit(self, node: ast.AST) -> ast.AST:
        super().generic_visit(node)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            match node.body:
                case [ast.Expr(value=ast.Constant(value=str())), *rest]:
                    node.body = rest or [ast.Pass()]
        return node
