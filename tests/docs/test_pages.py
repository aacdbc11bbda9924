"""Every page of the documentation is run, and shows what really comes; its links lead somewhere."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest
from psycopg import sql

from ledger.embedded import Embedded
from tests.docs.pages import ROOT, anchors, blocks, links, name_of, pages, runnable
from tests.docs.shown_output import matches, on_screen
from tests.docs.skipped import SKIPPED
from tests.fork_server import python

PAGES = {name_of(page): page for page in pages()}
RUN = sorted(name for name, page in PAGES.items() if any(block.mark != "not run" for block in runnable(page)))


@pytest.fixture
def admin(postgres: Embedded, database: str) -> Iterator[str]:
    """The administrator's DSN; roles that a page makes are dropped with what they own."""
    roles = sql.SQL("SELECT rolname FROM pg_roles")
    with psycopg.connect(postgres.admin_dsn(database), autocommit=True) as connection:
        before = set(connection.execute(roles).fetchall())
        yield postgres.admin_dsn(database)
        for (role,) in set(connection.execute(roles).fetchall()) - before:
            for statement in ("DROP OWNED BY {}", "DROP ROLE {}"):
                connection.execute(sql.SQL(statement).format(sql.Identifier(role)))  # type: ignore[arg-type]


@pytest.fixture
def reader(postgres: Embedded, dsn: str, admin: str, tmp_path: Path) -> dict[str, str]:
    """The environment of a reader: an empty home; `pledger`, `python`, PostgreSQL's tools on the PATH."""
    pid = postgres.postmaster_pid()
    assert pid is not None
    tools, home = tmp_path / "bin", tmp_path / "home"
    tools.mkdir()
    home.mkdir()
    # -P: as an installed command, `pledger` does not look for modules in the present folder.
    for name, words in {"pledger": ["-P", "-m", "gateway.cli.main"], "python": []}.items():
        command = f'PYTHONPATH="$PYTHONPATH:{ROOT}" exec {shlex.join([*python(), *words])} "$@"'
        (tools / name).write_text(f"#!/bin/sh\n{command}\n", encoding="utf-8")
        (tools / name).chmod(0o755)
    found = [str(tools), str(Path(psutil.Process(pid).exe()).parent), os.environ["PATH"]]
    return {
        "PATH": os.pathsep.join(found), "HOME": str(home), "LEDGER_HOME": str(home / "ledger"),
        "LEDGER_DSN": dsn, "DOCS_ADMIN_DSN": admin,
        "NO_COLOR": "1", "TERM": "xterm", "TZ": "UTC", "LC_ALL": "C.UTF-8",
        "PAGER": "cat",  # psql pages what is longer than the screen, and nobody is there to press a key
    } | {name: os.environ[name] for name in ["PYTHONPYCACHEPREFIX"] if name in os.environ}  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize("name", RUN)
def test_a_page_does_what_it_says(name: str, reader: dict[str, str], tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    command = [*python(), "-m", "tests.docs.play", str(PAGES[name])]
    ways: dict[str, Any] = {"cwd": folder, "env": reader | {"PYTHONPATH": str(ROOT)}, "text": True}
    done = subprocess.run(command, capture_output=True, timeout=300, check=False, **ways)
    assert done.returncode == 0, done.stderr
    assert done.stderr == "", "a page's code ends quietly"


def test_what_is_not_run_is_known() -> None:
    """A page may only leave out what this list names, each with its reason."""
    found = [
        (name, block.value)
        for name, page in PAGES.items()
        for block in runnable(page)
        if block.mark == "not run"
    ]
    assert sorted(found) == sorted(SKIPPED)


def test_every_mark_is_understood() -> None:
    """A mark that is misspelt, or does not stand directly above a block, would be passed over in silence."""
    for name, page in PAGES.items():
        text = page.read_text(encoding="utf-8")
        marked = sum(bool(block.mark) for block in blocks(text))
        assert text.count("<!-- not run") + text.count("<!-- file") == marked, name


@pytest.mark.parametrize("name", sorted(PAGES))
def test_links_lead_somewhere(name: str) -> None:
    for target in links(PAGES[name].read_text(encoding="utf-8")):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        there = (PAGES[name].parent / path).resolve() if path else PAGES[name]
        assert there.exists(), f"{name} links to {target}"
        assert there.is_relative_to(ROOT), f"{name} links to {target}, outside the project"
        if anchor:
            assert anchor in anchors(there.read_text(encoding="utf-8")), f"{name} links to {target}"


def test_every_page_is_reached_from_the_index() -> None:
    index = PAGES["docs/index.md"]
    linked = {
        (index.parent / target.partition("#")[0]).resolve()
        for target in links(index.read_text(encoding="utf-8"))
    }
    missing = [
        name for name, page in PAGES.items() if page.resolve() not in linked | {index, ROOT / "README.md"}
    ]
    assert not missing, f"docs/index.md does not name {missing}"


@pytest.mark.parametrize(
    ("shown", "real"),
    [("a …  c", "a b  b c"), ("a\n…\nz", "a\nb\nc\nz"), ("…", ""), ("a\n\nb", "a\nb\n"), ("a  b", "a b")],
)
def test_the_matcher_is_tolerant(shown: str, real: str) -> None:
    assert matches(shown, real)


@pytest.mark.parametrize(
    ("shown", "real"), [("a", "b"), ("a", "a\nb"), ("a … c", "a b"), ("", "a"), ("a\n…", "b"), ("A", "a")]
)
def test_the_matcher_is_not_too_tolerant(shown: str, real: str) -> None:
    assert not matches(shown, real)


@pytest.mark.parametrize(
    ("written", "left"),
    [
        ("a\r\nb\r\n", "a\nb\n"),
        ("abc\rx\r\n", "xbc\n"),
        ("\x1b[?25l\r\x1b[2Kcopy 0 %\r\x1b[2Kcopy 100 %\r\n\x1b[?25h\r\x1b[1A\x1b[2Krows 5\r\n", "rows 5\n"),
        ("a\r\nb\r\n\x1b[2A\x1b[2Kc", "c\nb\n"),
    ],
)
def test_what_is_drawn_over_is_not_seen(written: str, left: str) -> None:
    assert on_screen(written) == left


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("```python\n1 / 0\n```\n", "ZeroDivisionError"),
        ("```python\nprint(1)\n```\n\n```text\n2\n```\n", "this was printed"),
        ("```console\n$ pledger streams\nnothing of the kind\n```\n", "this came"),
        ("```console\n$ pledger no-such-command\n```\n", "ended with 2"),
        ("```console\n$ sh -c true\n```\n", "mark the block as not run"),
        ("```sql\nSELEKT\n```\n", "syntax error"),
    ],
)
def test_a_page_that_is_wrong_is_caught(
    reader: dict[str, str], tmp_path: Path, text: str, complaint: str
) -> None:
    page = tmp_path / "wrong.md"
    page.write_text(text, encoding="utf-8")
    command = [*python(), "-m", "tests.docs.play", str(page)]
    ways: dict[str, Any] = {"cwd": tmp_path, "env": reader | {"PYTHONPATH": str(ROOT)}, "text": True}
    done = subprocess.run(command, capture_output=True, timeout=300, check=False, **ways)
    assert done.returncode != 0
    assert complaint in done.stderr


def test_no_page_installs_what_is_not_to_be_had() -> None:
    """The package is on no index yet: it is installed from a checkout or from a wheel."""
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    found = re.compile(rf"pip install '?\"?(\./)?pipeline[-_]ledger\b(?!-{re.escape(version)}-py3)")
    rooms = ("ledger", "projections", "consumers", "gateway")
    sources = [path for room in rooms for path in (ROOT / room).rglob("*.py")]
    wrong = [
        f"{path.relative_to(ROOT)}: {line}"
        for path in [*PAGES.values(), *sources]
        for line in path.read_text(encoding="utf-8").splitlines()
        if found.search(line) and "finds nothing" not in line
    ]
    assert not wrong, "\n".join(wrong)
