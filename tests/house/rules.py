"""The rules of the house, each a function from a folder to the sentences that say what is wrong in it.

`python3 -m tests.house.rules`, from the project's folder, writes public_names.txt anew.
"""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PUBLIC_NAMES = "tests/house/public_names.txt"
LONG = "tests/house/long.txt"

# A wing may import itself and the wings before it, never one after it.
WINGS = ("ledger", "projections", "consumers", "gateway")
NEVER = {"tests", "docs", "dev"}

# A library has its homes; every other room reaches it through them.
HOMES = {
    "eventsourcing": ("ledger/store", "projections"),
    "fastapi": ("gateway/http",),
    "kafka": ("consumers",),
    "lmdb": ("projections/builds",),
    "prefect": ("consumers/prefect_flows",),
    "prefect_sqlalchemy": ("consumers/prefect_flows",),
    "prometheus_client": ("consumers/kafka", "projections"),
    "psycopg": ("ledger", "projections", "consumers"),
    "psycopg_pool": ("ledger/log", "projections", "consumers"),
    "rich": ("gateway",),
    "starlette": ("gateway/http",),
    "tomli_w": ("consumers/builds",),
    "typer": ("gateway",),
    "uvicorn": ("gateway/http",),
    "yaml": ("consumers/builds",),
}

# Packages that only this project imports; the names of all others are for users, and stand on a page.
INSIDE = (
    "ledger.log", "ledger.log.health", "ledger.log.sql", "projections.engine", "projections.fold",
    "projections.sql",
)  # fmt: skip

DRAWERS = {"base", "common", "helper", "helpers", "manager", "managers", "util", "utils"}

MAX_FUNCTION = 25

# None of these matches its own text here.
MACHINE = {
    "a path of one machine": re.compile(r"(?<![\w.~}>)*-])/(?:(?:home|root|Users|work)/[\w.]|opt/wheels)"),
    "a registry's host": re.compile(
        r"pypi\.(?:org|io)|pythonhosted\.(?:org|com)|repo[\w.]*\.maven|repo1?\.apache\.org"
        r"|registry\.(?:npmjs|yarnpkg)|(?:index|static)\.crates\.io|proxy\.golang\.org",
        re.IGNORECASE,
    ),
}
HOST_IN_LOCK = re.compile(
    r"://|^\s*-(?:i|f)\b|--(?:(?:extra-)?index-url|find-links|trusted-host)", re.MULTILINE
)


def python_files(root: Path, *rooms: str) -> Iterator[Path]:
    for room in rooms:
        place = root / room
        yield from [place] if place.is_file() else sorted(place.rglob("*.py"))


def read(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


class Source(NamedTuple):
    """What the rules ask of a module: its imports, those at its import, and the lines of its functions."""

    imports: list[ast.Import | ast.ImportFrom]
    early: list[ast.Import | ast.ImportFrom]
    functions: list[tuple[str, int]]


def source(path: Path) -> Source:
    return _source(path.read_text(encoding="utf-8"))


@cache
def _source(text: str) -> Source:
    """Parsed once for all rules; the tree, which is large, is not kept."""
    module = ast.parse(text)
    found = [node for node in statements(module) if isinstance(node, ast.Import | ast.ImportFrom)]
    return Source(found, list(early_imports(module)), list(functions(module)))


def parts(node: ast.AST) -> Iterator[ast.AST]:
    """The statements directly below a node, and the handlers and cases that hold statements.

    Expressions hold none, and are nine in ten nodes: they are not walked.
    """
    for name in ("body", "handlers", "orelse", "finalbody", "cases"):
        yield from getattr(node, name, ())


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """Everything below a node that is a statement or holds some."""
    for part in parts(node):
        yield part
        yield from statements(part)


# Who may import whom.


def wrong_imports(root: Path) -> list[str]:
    wrong = []
    for path in python_files(root, *WINGS):
        room = path.relative_to(root).as_posix()
        for name, line in imports(path, room):
            if not may_import(room, name):
                wrong.append(f"{room}:{line} imports {name}")
    return wrong


def imports(path: Path, room: str) -> Iterator[tuple[str, int]]:
    """The first part of every name that is imported, also inside functions and for type checkers only."""
    for node in source(path).imports:
        if isinstance(node, ast.Import):
            yield from ((alias.name.split(".")[0], node.lineno) for alias in node.names)
        else:
            yield room.split("/")[0] if node.level else (node.module or "").split(".")[0], node.lineno


def may_import(room: str, name: str) -> bool:
    if name in WINGS:
        return WINGS.index(name) <= WINGS.index(room.split("/")[0])
    if name in HOMES:
        return any(room == f"{home}.py" or room.startswith(f"{home}/") for home in HOMES[name])
    return name not in NEVER


def circles(root: Path) -> list[str]:
    """Circles of imports inside a wing: modules that need each other when they are imported.

    An import in a function is late and no part of a circle, nor is one for type checkers only.
    """
    needs = import_graph(root)
    return [" -> ".join([*circle, circle[0]]) for circle in strongly_connected(needs) if len(circle) > 1]


def import_graph(root: Path) -> dict[str, set[str]]:
    """Which modules of the same wing each module imports while it is imported itself."""
    paths = {module_of(path.relative_to(root)): path for path in python_files(root, *WINGS)}
    graph = {}
    for name, path in paths.items():
        package = name if path.name == "__init__.py" else name.rpartition(".")[0]
        found = {target for node in source(path).early for target in targets(node, package, paths)}
        graph[name] = {one for one in found - {name} if one.split(".")[0] == name.split(".")[0]}
    return graph


def module_of(path: Path) -> str:
    return ".".join(path.parent.parts if path.name == "__init__.py" else path.with_suffix("").parts)


def early_imports(module: ast.Module) -> Iterator[ast.Import | ast.ImportFrom]:
    nodes: list[ast.stmt] = list(module.body)
    while nodes:
        node = nodes.pop()
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            nodes += node.orelse
        elif isinstance(node, ast.If | ast.Try | ast.With | ast.ClassDef):
            nodes += [child for child in ast.iter_child_nodes(node) if isinstance(child, ast.stmt)]


def targets(node: ast.Import | ast.ImportFrom, package: str, known: dict[str, Path]) -> Iterator[str]:
    """The modules that an import needs: of `from x import y` y, where that is a module, and else x."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names if alias.name in known)
        return
    parts = package.split(".")
    place = ".".join(parts[: len(parts) - node.level + 1]) if node.level else ""
    full = ".".join(part for part in (place, node.module) if part)
    for alias in node.names:
        module = f"{full}.{alias.name}"
        if module in known:
            yield module
        elif full in known:
            yield full


def strongly_connected(graph: dict[str, set[str]]) -> list[list[str]]:
    """The groups of nodes that reach each other (Tarjan), each in the order in which it was walked."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    groups: list[list[str]] = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in sorted(graph[node]):
            if other not in index:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], index[other])
        if low[node] == index[node]:
            at = stack.index(node)
            groups.append(stack[at:])
            del stack[at:]

    for node in sorted(graph):
        if node not in index:
            visit(node)
    return groups


def drawers(root: Path) -> list[str]:
    """Modules and folders with a name that says nothing."""
    paths = [path.relative_to(root) for path in python_files(root, *WINGS, "tests", "docs/examples")]
    named = {part for path in paths for part in [path.with_suffix(""), *path.parents]}
    return [f"{path.as_posix()}: name it after its topic" for path in sorted(named) if is_drawer(path)]


def is_drawer(path: Path) -> bool:
    return path.name.strip("_") in DRAWERS


# The public names.


def public_names(root: Path) -> tuple[list[str], list[str]]:
    """Every name in the __all__ of a package that users import, dotted; and what is wrong with an __all__."""
    names, wrong = [], []
    for path in python_files(root, *WINGS):
        if path.name == "__init__.py":
            package = ".".join(path.parent.relative_to(root).parts)
            listed = all_of(read(path))
            if listed is None:
                wrong.append(f"{package} has no __all__ that is a plain list of names")
            elif listed != sorted(set(listed)):
                wrong.append(f"{package}.__all__ is not sorted: {sorted(set(listed))}")
            names += [f"{package}.{name}" for name in listed or [] if package not in INSIDE]
    return sorted(names), wrong


def all_of(module: ast.Module) -> list[str] | None:
    """The literal __all__; a package with nothing in it but a docstring may do without."""
    body = module.body[1:] if ast.get_docstring(module) is not None else module.body
    for node in body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if any(isinstance(target, ast.Name) and target.id == "__all__" for target in targets):
            value = getattr(node, "value", None)
            items = value.elts if isinstance(value, ast.List | ast.Tuple) else [ast.Constant(None)]
            found = [item.value if isinstance(item, ast.Constant) else None for item in items]
            return [str(name) for name in found] if all(isinstance(name, str) for name in found) else None
    return None if body else []


def stale_names(root: Path) -> list[str]:
    """Where the list of public names and the packages differ."""
    names, wrong = public_names(root)
    listed = (root / PUBLIC_NAMES).read_text(encoding="utf-8").splitlines()
    wrong += [f"{name} is public, but not listed" for name in sorted(set(names) - set(listed))]
    wrong += [f"{name} is listed, but not public" for name in sorted(set(listed) - set(names))]
    return wrong + ([f"{PUBLIC_NAMES} is not sorted"] if listed != sorted(set(listed)) else [])


# Nothing of one machine.


def project_files(root: Path) -> list[Path]:
    """What git tracks or would track; everything where there is no git."""
    git = ["git", "-C", str(root), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        listed = subprocess.run(git, capture_output=True, check=True, text=True).stdout.split("\0")
    except (OSError, subprocess.CalledProcessError):
        listed = [str(path.relative_to(root)) for path in root.rglob("*") if path.suffix != ".pyc"]
        listed = [
            name for name in listed if not name.startswith((".venv", ".git/")) and "_cache/" not in name
        ]
    return [root / name for name in sorted(listed) if name and (root / name).is_file()]


def machine_traces(root: Path) -> list[str]:
    wrong = []
    for path in project_files(root):
        content = path.read_bytes()
        if b"\0" in content[:8192] or not traces(path, text := content.decode(errors="replace")):
            continue  # no match goes across lines: most files are searched whole, once
        for number, line in enumerate(text.splitlines(), 1):
            place = f"{path.relative_to(root).as_posix()}:{number}"
            wrong += [f"{place} names {what}: {line.strip()[:90]}" for what in traces(path, line)]
    return wrong


def traces(path: Path, text: str) -> list[str]:
    """What a line, or a whole file, names of one machine."""
    found = [what for what, pattern in MACHINE.items() if pattern.search(text)]
    is_lock = path.suffix == ".lock" or path.name.startswith("requirements")
    return [*found, "a host"] if is_lock and not found and HOST_IN_LOCK.search(text) else found


# The log's core names no domain.

DOMAINS = re.compile(r"\b(jobs?|batch(es)?|machines?|pipelines?|items?|lsm|psoct)\b", re.IGNORECASE)
NO_DOMAIN = re.compile(r"\.items\(\)|pipeline-ledger")
"""A method of mappings, and the name of the package."""


def domains_in_the_log(root: Path) -> list[str]:
    """Lines of Python and SQL below ledger/log that name a domain."""
    return [
        f"{path.relative_to(root).as_posix()}:{number}: {line.strip()[:90]}"
        for path in sorted((root / "ledger" / "log").rglob("*"))
        if path.suffix in (".py", ".sql")
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if DOMAINS.search(NO_DOMAIN.sub("", line))
    ]


# Nothing too long.


def long_places(root: Path) -> dict[str, int]:
    """Functions over MAX_FUNCTION lines, docstring apart. A file may be as long as its one subject is."""
    found = {}
    for path in python_files(root, *WINGS, "docs/examples", "dev.py"):
        name = path.relative_to(root).as_posix()
        found |= {f"{name}:{function}": lines for function, lines in source(path).functions}
    return {place: lines for place, lines in found.items() if lines > MAX_FUNCTION}


def functions(node: ast.AST, prefix: str = "") -> Iterator[tuple[str, int]]:
    for child in parts(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            name = f"{prefix}{child.name}"
            if not isinstance(child, ast.ClassDef):
                yield name, (child.end_lineno or 0) - child.lineno + 1 - docstring_lines(child)
            yield from functions(child, f"{name}.")
        else:
            yield from functions(child, prefix)


def docstring_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    if ast.get_docstring(function) is None:
        return 0
    return (function.body[0].end_lineno or 0) - function.body[0].lineno + 1


def too_long(root: Path) -> list[str]:
    """Long places without a reason, and reasons without a long place."""
    rows = [line.split(maxsplit=1) for line in (root / LONG).read_text(encoding="utf-8").splitlines() if line]
    excused, found = {row[0] for row in rows}, long_places(root)
    wrong = [f"{row[0]}: no reason is given" for row in rows if len(row) < 2]
    wrong += [f"{place} has {found[place]} lines" for place in sorted(found.keys() - excused)]
    return wrong + [
        f"{place} is excused, but not long (any more)" for place in sorted(excused - found.keys())
    ]


# The door is open to old interpreters.

NEW_SYNTAX = (ast.JoinedStr, ast.AnnAssign, ast.NamedExpr, ast.Match, ast.Nonlocal, ast.YieldFrom, ast.Await)


def too_new(source: str) -> list[str]:
    """What Python 2.7 could not parse: it would answer with a syntax error and not with a sentence."""
    wrong = [] if source.isascii() else ["characters beyond ASCII"]
    for node in ast.walk(ast.parse(source)):
        new = isinstance(node, NEW_SYNTAX) or (isinstance(node, ast.Raise) and node.cause)
        new = new or (isinstance(node, ast.arguments) and (node.kwonlyargs or node.posonlyargs))
        new = new or (isinstance(node, ast.arg) and node.annotation) or getattr(node, "returns", None)
        new = new or (
            isinstance(node, ast.List | ast.Tuple) and any(isinstance(e, ast.Starred) for e in node.elts)
        )
        if new:
            wrong.append(f"line {getattr(node, 'lineno', '?')}: {type(node).__name__}")
    return wrong


if __name__ == "__main__":
    (ROOT / PUBLIC_NAMES).write_text("".join(f"{name}\n" for name in public_names(ROOT)[0]), encoding="utf-8")
