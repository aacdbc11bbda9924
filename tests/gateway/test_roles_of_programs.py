"""Every program runs with exactly the roles that the documentation names, and says which one it lacks."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
from psycopg.conninfo import make_conninfo

import ledger
from consumers.jobs import Worker
from consumers.jobs.claim import LogOffers
from consumers.jobs.reaper import Reaper
from consumers.jobs.scheduler import Scheduler
from gateway.cli.errors import Code
from ledger import Ledger, NoPermission
from ledger.embedded import Embedded
from ledger.jobs import Jobs, Schedules
from ledger.pipelines import LSMStateService
from ledger.roles import KINDS, PROGRAMS, require_roles
from ledger.tokens import Role, Tokens
from projections import Projector
from tests.docs.pages import ROOT
from tests.gateway.conftest import Ended, eventually
from tests.gateway.timed import Loan
from tests.runs.given_prefect import Given

PAGE = ROOT / "docs/how-to/grant-roles.md"
OPERATIONS = ("--operations", "tests.gateway.operations")
_numbers = count(1)

Pledger = Callable[..., Ended]
LoginWith = Callable[..., str]

COMMANDS = {
    "pledger reaper run": [["reaper", "run", "--once"]],
    "pledger react": [["react", "--once"]],
    "pledger machines timeouts": [["machines", "timeouts", "--machines", "tests.gateway.timed", "--once"]],
    "pledger machines adopt": [
        ["machines", "adopt", "of_roles", "--table", "public.moves", "--parent", "book"],
    ],
    "pledger import": [["import", "exported.jsonl"]],
    "pledger runs import": [["runs", "import", "prefect.db"]],
    "pledger views follow": [["views", "follow", "--once"]],
    "pledger views retry": [["views", "retry", "in_state", "--all"]],
    "pledger rebuild": [["rebuild", "in_state"], ["rebuild", "heads", "commands"]],
    "pledger verify": [["verify"], ["verify", "--repair", "--also", "head differs", "--check", ""]],
    "pledger verify --check ''": [["verify", "--check", ""]],
    "pledger as-of make": [["as-of", "make", "--position", "1"]],
    "pledger as-of drop": [["as-of", "drop", "1"]],
}
"""Programs that come to an end, or can: as commands."""
WORKERS = {
    "pledger worker run": ["worker", "run", *OPERATIONS],
    "pledger worker run --no-views": ["worker", "run", *OPERATIONS, "--no-views"],
}

SERVERS = {
    "pledger serve": ["serve", "--port", "0"],
    "pledger serve --prefect": ["serve", "--prefect", "--port", "0"],
}
LONG = {**WORKERS, **SERVERS, "pledger runs services": ["runs", "services"]}
"""Programs that go on until they are stopped."""


@pytest.fixture
def login_with(postgres: Embedded, dsn: str) -> Iterator[LoginWith]:
    """Makes logins with these roles of the ledger and nothing else; the way in for each."""
    made: list[str] = []
    with psycopg.connect(postgres.admin_dsn(), autocommit=True) as admin:

        def make(*roles: str, how: str = "") -> str:
            made.append(f"login_{next(_numbers)}")
            admin.execute(f"CREATE ROLE {made[-1]} LOGIN PASSWORD 'x'")  # type: ignore[call-overload]
            for role in roles:
                admin.execute(f"GRANT ledger_{role} TO {made[-1]} {how}")  # type: ignore[call-overload]
            return make_conninfo(dsn, user=made[-1], password="x")

        yield make
        for name in made:
            admin.execute(f"DROP ROLE {name}")  # type: ignore[call-overload]


@pytest.fixture(scope="module")
def template(postgres: Embedded) -> Iterator[str]:
    """A database with a ledger in which every program finds something to do; each test gets a copy."""
    name = f"of_roles_{os.getpid()}"
    with psycopg.connect(postgres.dsn(), autocommit=True) as user:
        user.execute(f"CREATE DATABASE {name}")  # type: ignore[call-overload]
    with ledger.connect(postgres.dsn(name), actor="tester", create=True) as log:
        with LSMStateService(log).open_strip("mouse", slice_id=1, strip_id=1) as strip:
            strip.mark_completed()
        Loan(log, "book").move("lent")
        Jobs(log).submit("double", {"n": 1})
        Projector(log).catch_up()
        assert LogOffers(log, "vanished", None, 0.0).take(1), "a lease that is over, for the reaper"
    yield name
    with psycopg.connect(postgres.admin_dsn(), autocommit=True) as admin:
        admin.execute(f"DROP DATABASE {name} WITH (FORCE)")  # type: ignore[call-overload]


@pytest.fixture
def given(
    log: Ledger, admin_dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pledger: Pledger
) -> Ledger:
    """The ledger of `template`, a table of the user's, a wrong head and a file to import."""
    monkeypatch.chdir(tmp_path)
    with psycopg.connect(admin_dsn, autocommit=True) as admin:
        admin.execute(
            "CREATE TABLE public.moves (book text, to_state text, sort_key int, most_recent bool, "
            "created_at timestamptz);"
            "INSERT INTO public.moves VALUES ('a', 'lent', 10, true, now());"
            "GRANT SELECT ON public.moves TO PUBLIC;"
            f"GRANT CREATE ON DATABASE {admin.info.dbname} TO ledger_owner;"
            "UPDATE ledger.heads SET status = 'wrong' WHERE stream = 'lsm.project/mouse'"
        )
    (tmp_path / "exported.jsonl").write_text("")
    Given(tmp_path / "prefect.db")
    return log


def without(program: str, lacking: str) -> list[str]:
    """Roles with which the program lacks one of those that it needs."""
    replaced = {"reader": ("writer",), "projector": ("writer", "reader"), "writer": ("reader", "projector")}
    kept = [role for role in PROGRAMS[program].roles if role != lacking]
    return sorted({*kept, *replaced[lacking]})


def grants(said: str) -> list[str]:
    """The statements that a sentence names."""
    return re.findall(r"GRANT [^;]*;", said)


def names(roles: tuple[str, ...]) -> str:
    return " and ".join(f"ledger_{role}" for role in roles)


LACKING = [(program, role) for program in PROGRAMS for role in PROGRAMS[program].roles]


@pytest.mark.parametrize(("program", "role"), [case for case in LACKING if case[0] in COMMANDS])
def test_a_program_says_which_role_its_login_lacks_and_runs_once_it_has_it(
    program: str, role: str, given: Ledger, login_with: LoginWith, pledger: Pledger, admin_dsn: str
) -> None:
    way = login_with(*without(program, role))
    for command in COMMANDS[program]:
        ended = pledger("--dsn", way, *command)
        assert (ended.code, ended.out) == (Code.UNREACHABLE, ""), ended.err
        assert ended.err.startswith(f"pledger: {program} needs the role"), ended.err
        assert len(ended.err.splitlines()) == 1
        (grant,) = grants(ended.err)
        assert f'"ledger_{role}"' in grant
    with psycopg.connect(admin_dsn, autocommit=True) as admin:
        admin.execute(grant.encode())
    for command in COMMANDS[program]:
        ended = pledger("--dsn", way, *command)
        assert "ermission" not in ended.err


@pytest.mark.parametrize("program", COMMANDS)
def test_a_program_runs_with_exactly_its_roles(
    program: str, given: Ledger, login_with: LoginWith, pledger: Pledger
) -> None:
    way = login_with(*PROGRAMS[program].roles)
    if program == "pledger as-of drop":
        assert pledger("as-of", "make", "--position", "1").code == 0
    for command in COMMANDS[program]:
        ended = pledger("--dsn", way, *command)
        found_wrong = command[0] == "verify" and "--repair" not in command
        assert ended.code == (Code.REFUSED if found_wrong else Code.FINE), ended.err
        assert "ermission" not in ended.err


@pytest.mark.parametrize("program", WORKERS)
def test_a_worker_runs_with_exactly_its_roles(
    program: str, given: Ledger, login_with: LoginWith, started: Callable[..., Any]
) -> None:
    jobs = Jobs(given)
    job = jobs.submit("double", {"n": 2})
    Schedules(given).set("yearly", "0 0 1 1 *", "double", {"n": 3})
    with Projector(given):
        worker = started("--dsn", login_with(*PROGRAMS[program].roles), *WORKERS[program])
        eventually(lambda: jobs.get(job).status == "succeeded", 60)
        worker.send_signal(signal.SIGTERM)
        _, said = worker.communicate(timeout=60)
    assert (worker.returncode, "ermission" in said, "tries again" in said) == (0, False, False), said


@pytest.mark.parametrize("program", SERVERS)
def test_a_server_runs_with_exactly_its_roles(
    program: str, given: Ledger, login_with: LoginWith, started: Callable[..., Any]
) -> None:
    token, _ = Tokens(given).add("x", Role.OPERATOR)
    server = started("--dsn", login_with(*PROGRAMS[program].roles), *SERVERS[program])
    url, headers = server.stdout.readline().strip(), {"Authorization": f"Bearer {token}"}
    with httpx.Client(base_url=url, headers=headers, timeout=60) as client:
        new = {"operation": "double", "queue_name": "default", "payload": {"n": 7}}
        id = client.post("/jobs", json=new).json()["id"]
        answers = [client.get(path) for path in (f"/jobs/{id}/events", "/jobs", "/log", "/metrics", "/views")]
        if program == "pledger serve --prefect":
            answers += [client.post(f"/api/{path}", json={}) for path in ("flow_runs/filter", "flows/filter")]
    assert [one.status_code for one in answers] == [200] * len(answers)
    server.send_signal(signal.SIGTERM)
    _, said = server.communicate(timeout=60)
    assert (server.returncode, "ermission" in said) == (0, False), said


def test_services_run_with_exactly_their_roles(
    given: Ledger, login_with: LoginWith, started: Callable[..., Any]
) -> None:
    program = "pledger runs services"
    services = started("--dsn", login_with(*PROGRAMS[program].roles), *LONG[program], "--json")
    assert "late_runs" in json.loads(services.stdout.readline())["services"]
    services.send_signal(signal.SIGTERM)
    _, said = services.communicate(timeout=60)
    assert (services.returncode, "ermission" in said) == (0, False), said


@pytest.mark.parametrize(("program", "role"), [case for case in LACKING if case[0] in LONG])
def test_a_worker_that_lacks_a_role_ends_at_once(
    program: str, role: str, given: Ledger, login_with: LoginWith, pledger: Pledger
) -> None:
    """It looped for ever: `function take_work does not exist`."""
    ended = pledger("--dsn", login_with(*without(program, role)), *LONG[program])
    assert ended.code == Code.UNREACHABLE
    assert ended.err.startswith(
        f"pledger: {program} needs the roles {names(PROGRAMS[program].roles)}, and login_"
    )
    assert (ended.out, len(ended.err.splitlines()), len(grants(ended.err))) == ("", 1, 1)


def test_programs_without_a_command_say_it_too(given: Ledger, login_with: LoginWith) -> None:
    with ledger.connect(login_with("reader")) as log:
        for run in (Scheduler(log).run_once, Reaper(log).run, Worker(log, OPERATIONS[1]).run):
            with pytest.raises(NoPermission, match='GRANT "ledger_writer"'):
                run()
    with ledger.connect(login_with(*PROGRAMS["Scheduler"].roles)) as log:
        assert Scheduler(log).run_once().failed == 0


def test_who_has_no_role_at_all_is_told_what_to_grant(
    log: Ledger, login_with: LoginWith, pledger: Pledger, admin_dsn: str
) -> None:
    way = login_with()
    ended = pledger("--dsn", way, "streams")
    assert (ended.code, len(ended.err.splitlines())) == (Code.UNREACHABLE, 1)
    looks, appends = grants(ended.err)
    for grant, command in ((looks, ["streams"]), (appends, ["lsm", "create", "mouse"])):
        with psycopg.connect(admin_dsn, autocommit=True) as admin:
            admin.execute(grant.encode())
        assert pledger("--dsn", way, *command).code != Code.UNREACHABLE


def test_a_member_that_does_not_inherit_is_told_how(
    postgres: Embedded,
    log: Ledger,
    login_with: LoginWith,
    admin_dsn: str,
    connection: psycopg.Connection[Any],
) -> None:
    new = connection.info.server_version >= 160000
    way = login_with("writer", "reader", "projector", how="WITH INHERIT FALSE" if new else "")
    user = psycopg.conninfo.conninfo_to_dict(way)["user"]
    with psycopg.connect(admin_dsn, autocommit=True) as admin:
        if not new:
            admin.execute(f"ALTER ROLE {user} NOINHERIT")  # type: ignore[call-overload]
        admin.execute(f"GRANT ledger_writer TO {user}" + " WITH INHERIT TRUE" * new)  # type: ignore[call-overload]
        with ledger.connect(way) as opened:
            with pytest.raises(NoPermission, match="INHERIT") as caught:
                require_roles(opened, "pledger worker run")
            admin.execute(str(caught.value).rpartition(": ")[2].encode())
            require_roles(opened, "pledger worker run")


def test_every_program_is_run_here() -> None:
    elsewhere = {"Scheduler", "pledger relay run"}  # the relay: tests/kafka/test_relay_command.py
    assert {*COMMANDS, *LONG, *elsewhere} == {*PROGRAMS}
    assert {role for program in PROGRAMS.values() for role in program.roles} <= {*KINDS}


def test_the_page_shows_the_table_that_the_programs_check() -> None:
    shown = re.findall(r"^\| `(.+?)` \| (.+?) \| (.+?) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    table = [(name, ", ".join(roles), why) for name, (roles, why) in PROGRAMS.items()]
    assert [row for row in shown if row[0] in PROGRAMS] == table
