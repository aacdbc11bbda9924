"""The configuration file: found above, overruled by variables and options, refused where it is wrong."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from gateway.cli.config import Config, load
from gateway.cli.errors import Misuse
from ledger import Ledger
from tests.gateway.conftest import Ended

Pledger = Callable[..., Ended]
BOOKS = """
from dataclasses import dataclass, replace
from enum import StrEnum

from ledger import Event, Moves, Stream


class Status(StrEnum):
    BOUGHT = "bought"


class Bought(Event, topic="{topic}.bought", to=Status.BOUGHT):
    title: str = ""


@dataclass(frozen=True, slots=True)
class Book:
    status: Status | None = None


class OpenBook(Stream[Book, Event]):
    CATEGORY, STATE, MOVES = "{topic}", Book, Moves({{None: {{Status.BOUGHT}}}})
    evolve = staticmethod(lambda book, event, at: replace(book, status=event.to or book.status))
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with a folder in it, which is the current one."""
    (tmp_path / "inside" / "deep").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "inside" / "deep")
    return tmp_path


def test_without_a_file_nothing_is_said(project: Path) -> None:
    assert load() == Config()


def test_the_nearest_file_above_counts(project: Path) -> None:
    (project / "pledger.toml").write_text('schema = "far"')
    (project / "inside" / "pyproject.toml").write_text('[project]\nname = "x"\n')
    assert load().schema == "far"
    (project / "inside" / "pyproject.toml").write_text('[tool.pledger]\nschema = "near"\n')
    found = load()
    assert (found.schema, found.file) == ("near", project / "inside" / "pyproject.toml")
    (project / "inside" / "pledger.toml").write_text('schema = "own"')
    assert load().schema == "own"


def test_paths_are_relative_to_the_file(project: Path) -> None:
    (project / "pledger.toml").write_text('dsn = "embedded:kept/here"\npath = ["src", "/abs"]')
    found = load()
    assert found.dsn == f"embedded:{project}/kept/here"
    assert found.path == (str(project / "src"), "/abs")
    (project / "pledger.toml").write_text('dsn = "embedded:"')
    assert load().dsn == "embedded:"


def test_a_file_can_be_named(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (project / "other.toml").write_text('actor = "named"')
    (project / "pledger.toml").write_text('actor = "found"')
    assert load(str(project / "other.toml")).actor == "named"
    monkeypatch.setenv("LEDGER_CONFIG", str(project / "other.toml"))
    assert load().actor == "named"
    with pytest.raises(Misuse, match="cannot be read: No such file"):
        load("missing.toml")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("dns = 'x'", "unknown setting 'dns'; the settings are actor, domains, dsn, path, schema, views"),
        ("dsn = 7", "dsn must be a text"),
        ("dsn = ''", "dsn must be a text"),
        ("domains = 'books'", "domains must be a list of texts"),
        ("domains = [1]", "domains must be a list of texts"),
        ("dsn = ", "is not TOML"),
        ("file = 'x'", "unknown setting 'file'"),
    ],
)
def test_what_is_wrong_is_said_with_its_file(project: Path, text: str, said: str) -> None:
    (project / "pledger.toml").write_text(text)
    with pytest.raises(Misuse, match=r"pledger\.toml") as caught:
        load()
    assert said in str(caught.value)


def test_a_broken_pyproject_is_left_to_others(project: Path) -> None:
    (project / "pyproject.toml").write_text("[tool.pledger")
    assert load() == Config()
    (project / "pyproject.toml").write_text("tool = {pledger = 7}")
    with pytest.raises(Misuse, match="must be a table"):
        load()


def test_domains_need_no_option_and_no_pythonpath(
    project: Path, process: Callable[..., Ended], dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "src").mkdir()
    (project / "src" / "books_of_a_file.py").write_text(BOOKS.format(topic="book"))
    (project / "pledger.toml").write_text(
        f'dsn = "{dsn}"\nactor = "night shift"\ndomains = ["books_of_a_file"]\npath = ["src"]\n'
    )
    done = process("append", "book/1", "book.bought", '{"title": "Emma"}', "--json", LEDGER_DSN="")
    assert (done.code, done.objects[0]["version"]) == (0, 1), done.err
    assert process("append", "book/1", "book.bought", '{"tilte": "Emma"}', LEDGER_DSN="").code == 2
    shown = process("show", "book/1", "--json", LEDGER_DSN="").objects[0]
    assert shown["state"] == {"status": "bought"}
    assert shown["last_event"]["actor"] == "night shift"


def test_variables_and_options_say_more_than_the_file(project: Path, pledger: Pledger, log: Ledger) -> None:
    (project / "pledger.toml").write_text(
        'dsn = "postgresql://nobody@127.0.0.1:1/none"\nschema = "ledger"\nactor = "file"\n'
    )
    pledger("append", "scan/1", "scan.started")  # LEDGER_DSN is set
    pledger("append", "scan/1", "scan.started", "--actor", "option")
    assert [event.meta.actor for event in log.read("scan/1")] == ["file", "option"]


def test_a_module_that_is_not_there_is_told_how_it_is_found(project: Path, pledger: Pledger) -> None:
    (project / "pledger.toml").write_text('domains = ["not_there"]')
    done = pledger("show", "scan/1")
    assert done.code == 2
    assert "`path` in pledger.toml" in done.err
