"""The rules of the house hold in this project, and each rule catches a planted offender."""

from __future__ import annotations

import importlib
import subprocess
from pathlib import Path

import pytest

from tests.house import rules

HOME = "/" + "home/someone/data"


def plant(root: Path, name: str, text: str) -> Path:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return root


def listing(wrong: list[str], advice: str) -> str:
    return "\n".join([advice, *wrong])


# Who may import whom.


def test_imports_point_one_way_and_libraries_stay_at_home() -> None:
    wrong = rules.wrong_imports(rules.ROOT)
    assert not wrong, listing(wrong, "gateway -> consumers -> projections -> ledger, never back:")


@pytest.mark.parametrize(
    ("room", "line"),
    [
        ("ledger/jobs.py", "import projections.jobs"),
        ("ledger/jobs.py", "from gateway.cli.main import main"),
        ("ledger/jobs.py", "from eventsourcing.application import Application"),
        ("projections/follow.py", "def late():\n    from consumers import relay"),
        ("projections/follow.py", "import kafka"),
        ("consumers/relay.py", "import typer"),
        ("gateway/cli/main.py", "from psycopg import sql"),
        ("gateway/cli/main.py", "from psycopg_pool import ConnectionPool"),
        ("gateway/cli/main.py", "from tests.house import rules"),
    ],
)
def test_a_wrong_import_is_caught(tmp_path: Path, room: str, line: str) -> None:
    assert len(rules.wrong_imports(plant(tmp_path, room, line))) == 1


@pytest.mark.parametrize(
    ("room", "line"),
    [
        ("ledger/log/append.py", "import psycopg"),
        ("ledger/store/factory.py", "from eventsourcing.persistence import StoredEvent"),
        ("projections/follow.py", "from ledger import Event"),
        ("consumers/relay.py", "import kafka, psycopg, projections"),
        ("gateway/cli/main.py", "import typer\nfrom consumers import relay\nfrom . import serve"),
        ("docs/examples/run.py", "import typer, psycopg, gateway"),
    ],
)
def test_a_right_import_is_let_pass(tmp_path: Path, room: str, line: str) -> None:
    assert rules.wrong_imports(plant(tmp_path, room, line)) == []


def test_no_room_is_a_drawer() -> None:
    wrong = rules.drawers(rules.ROOT)
    assert not wrong, listing(wrong, "these names say nothing:")


@pytest.mark.parametrize("room", ["ledger/utils.py", "ledger/common/jobs.py", "tests/_helpers.py"])
def test_a_drawer_is_caught(tmp_path: Path, room: str) -> None:
    assert len(rules.drawers(plant(tmp_path, room, ""))) == 1


# The public names.


def test_public_names_are_listed() -> None:
    wrong = rules.stale_names(rules.ROOT)
    advice = "If it is meant, say so in CHANGELOG.md; `python3 -m tests.house.rules` writes the list anew:"
    assert not wrong, listing(wrong, advice)


def test_public_names_are_there() -> None:
    for dotted in rules.public_names(rules.ROOT)[0]:
        package, _, name = dotted.rpartition(".")
        assert hasattr(importlib.import_module(package), name), f"{dotted} is in __all__, but does not exist"


@pytest.mark.parametrize(
    ("package", "complaint"),
    [
        ("from .event import Event", "no __all__"),
        ("__all__ = names()", "no __all__"),
        ('__all__ = ["b", "a"]', "not sorted"),
        ('__all__ = ["a", "a", "b"]', "not sorted"),
        ('__all__ = ["a"]', "ledger.b is listed, but not public"),
        ('__all__ = ("a", "b", "c")', "ledger.c is public, but not listed"),
    ],
)
def test_a_wrong_public_name_is_caught(tmp_path: Path, package: str, complaint: str) -> None:
    plant(tmp_path, rules.PUBLIC_NAMES, "ledger.a\nledger.b\n")
    assert complaint in "\n".join(rules.stale_names(plant(tmp_path, "ledger/__init__.py", package)))


@pytest.mark.parametrize("package", ['"""Doc."""\n__all__ = ["a"]', '__all__: list[str] = ["a"]'])
def test_right_public_names_are_let_pass(tmp_path: Path, package: str) -> None:
    plant(tmp_path, "gateway/__init__.py", '"""A wing with nothing in it yet."""')
    plant(tmp_path, rules.PUBLIC_NAMES, "ledger.a\n")
    assert rules.stale_names(plant(tmp_path, "ledger/__init__.py", package)) == []


# Nothing of one machine.


def test_no_file_names_a_machine_or_a_registry() -> None:
    wrong = rules.machine_traces(rules.ROOT)
    assert not wrong, listing(wrong, "a path or host of one machine has no place in the project:")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("docs/how.md", f"look in {HOME}"),
        ("a.py", f'DATA = "{HOME}"'),
        ("a.toml", "path=" + "/" + "root/.cache"),
        ("a.sh", "cd " + "/" + "Users/someone"),
        ("a.sh", "cd " + "/" + "work/main"),
        ("a.cfg", "find-links = " + "/" + "opt/wheels"),
        ("a.cfg", "index = https://" + "pypi" + ".org/simple"),
        ("a.lock", "x @ https://files." + "pythonhosted" + ".org/x.whl"),
        ("pom.xml", "<url>https://repo." + "maven" + ".apache.org/maven2</url>"),
        ("pom.xml", "<url>https://repo1." + "maven" + ".org/maven2</url>"),
        ("package-lock.json", "https://registry." + "npmjs" + ".org/x"),
        ("requirements.lock", "--index-url http://somewhere"),
        ("requirements.lock", "--find-links wheels"),
        ("requirements-docs.txt", "-i mirror"),
    ],
)
def test_a_trace_of_a_machine_is_caught(tmp_path: Path, name: str, text: str) -> None:
    assert len(rules.machine_traces(plant(tmp_path, name, text))) == 1


def test_other_paths_and_binary_files_are_let_pass(tmp_path: Path) -> None:
    plant(
        tmp_path,
        "a.py",
        "docs/root/a, ./home/b, ~/root/c, {root}/home/d, /workers/e, /var/lib, http://127.0.0.1/",
    )
    plant(tmp_path, "picture.bin", "\0" + HOME)
    plant(
        tmp_path,
        "requirements.lock",
        "x==1 ; python_version < '3.15' \\\n    --hash=sha256:0\n    # via -r y",
    )
    assert rules.machine_traces(tmp_path) == []


def test_what_git_ignores_is_let_pass(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    plant(tmp_path, ".gitignore", "/.venv/\n")
    plant(tmp_path, ".venv/pyvenv.cfg", f"home = {HOME}")
    plant(tmp_path, "not yet added.txt", f"home = {HOME}")
    assert [line.split(":")[0] for line in rules.machine_traces(tmp_path)] == ["not yet added.txt"]


# Nothing too long.


def test_nothing_is_long_without_a_reason() -> None:
    wrong = rules.too_long(rules.ROOT)
    advice = f"Split it, or give its reason in {rules.LONG} (`path[:function]  reason`):"
    assert not wrong, listing(wrong, advice)


def test_no_imports_go_in_a_circle() -> None:
    wrong = rules.circles(rules.ROOT)
    assert not wrong, listing(wrong, "Move what both need to a third module:")


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("from .b import x", "from .a import y"),
        ("from ledger import b", "import ledger.a"),
        ("import ledger.b", "try:\n    from . import a\nexcept ImportError:\n    pass"),
    ],
)
def test_a_circle_is_caught(tmp_path: Path, first: str, second: str) -> None:
    plant(tmp_path, "ledger/__init__.py", "")
    plant(tmp_path, "ledger/a.py", first)
    assert rules.circles(plant(tmp_path, "ledger/b.py", second)) == ["ledger.a -> ledger.b -> ledger.a"]


@pytest.mark.parametrize(
    "late",
    ["def f():\n    from .a import y", "if TYPE_CHECKING:\n    from .a import y", "from .c import z"],
)
def test_what_is_no_circle_is_let_pass(tmp_path: Path, late: str) -> None:
    plant(tmp_path, "ledger/a.py", "from .b import x")
    plant(tmp_path, "ledger/c.py", "")
    assert rules.circles(plant(tmp_path, "ledger/b.py", late)) == []


METHOD = 'class A:\n    def f(self):\n        """One.\n\n        Two."""\n'


@pytest.mark.parametrize(
    ("name", "text", "excuses", "complaint"),
    [
        ("ledger/a.py", METHOD + "        x = 1\n" * 25, "", "ledger/a.py:A.f has 26 lines"),
        ("ledger/a.py", METHOD, "ledger/a.py:A.f  was long once", "not long"),
        ("ledger/a.py", METHOD + "        x = 1\n" * 25, "ledger/a.py:A.f", "no reason"),
    ],
)
def test_a_long_place_is_caught(tmp_path: Path, name: str, text: str, excuses: str, complaint: str) -> None:
    plant(tmp_path, rules.LONG, excuses)
    assert complaint in "\n".join(rules.too_long(plant(tmp_path, name, text)))


def test_what_is_short_or_excused_is_let_pass(tmp_path: Path) -> None:
    plant(tmp_path, rules.LONG, "ledger/b.py:A.f  a table, generated\n")
    plant(tmp_path, "ledger/a.py", METHOD + "        x = 1\n" * 24)
    plant(tmp_path, "ledger/b.py", METHOD + "        x = 1\n" * 25)
    assert rules.too_long(plant(tmp_path, "tests/a.py", METHOD + "        x = 1\n" * 99)) == []


# The door is open to old interpreters.


def test_an_old_python_can_read_the_door() -> None:
    assert rules.too_new((rules.ROOT / "dev.py").read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    "line",
    [
        "f'{x}'",
        "x: int = 1",
        "def f(x: int): pass",
        "def f() -> int: pass",
        "def f(*, x): pass",
        "[*x]",
        "'×'",
        "try: pass\nexcept E: raise F from None",
        "(x := 1)",
        "async def f(): await x",
    ],
)
def test_what_an_old_python_cannot_read_is_caught(line: str) -> None:
    assert rules.too_new(line)


def test_the_log_names_no_domain() -> None:
    wrong = rules.domains_in_the_log(rules.ROOT)
    assert wrong == [], listing(wrong, "Put what knows a domain beside that domain")


@pytest.mark.parametrize("line", ["SELECT * FROM batches", "# for machines", "kind = 'lsm.strip'"])
def test_a_domain_in_the_log_is_caught(tmp_path: Path, line: str) -> None:
    plant(tmp_path, "ledger/log/append.py", f"x = d.items()\n{line}\n")
    assert len(rules.domains_in_the_log(tmp_path)) == 1
