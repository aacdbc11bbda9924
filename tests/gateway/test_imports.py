"""What a short command may import: a look at the log loads no domain, and a domain's look loads no other."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable

import pytest

from ledger import Ledger
from tests.gateway.conftest import Ended, environment
from tests.lamp import LampMade

LOG = {
    "gateway.cli", "ledger.domain", "ledger.embedded", "ledger.errors", "ledger.lazy", "ledger.log",
    "ledger.roles", "projections.engine",
}  # fmt: skip
"""Packages and modules of ours, to the second part of their names, that a look at the log may import."""
OTHERS = {
    "psycopg", "psycopg_binary", "psycopg_pool", "typer", "shellingham", "typing_extensions", "annotated_doc",
    "cython_runtime",
}  # fmt: skip
"""The packages of others that it may import."""
HEAVY = {"rich", "eventsourcing", "numpy", "prometheus_client", "prefect", "kafka", "ledger.exchange"}
"""What no look at anything imports."""
DOMAINS = {"ledger.builds", "ledger.jobs", "ledger.machines", "ledger.pipelines", "ledger.runs"}


def loaded(dsn: str, *commands: str) -> set[str]:
    """The modules that these commands load."""
    code = (
        "import json, sys\nfrom gateway.cli.main import main\n"
        f"for words in {[words.split() for words in commands]!r}: main(words)\n"
        "print(json.dumps(sorted(sys.modules)), file=sys.stderr)\n"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(
        command, env=environment(LEDGER_DSN=dsn), capture_output=True, text=True, check=True, timeout=60
    )
    return set(json.loads(done.stderr.splitlines()[-1]))


def ours(modules: set[str]) -> set[str]:
    """Those of this project, to the second part of their names."""
    wings = ("ledger.", "projections.", "consumers.", "gateway.")
    return {".".join(name.split(".")[:2]) for name in modules if name.startswith(wings)}


def test_a_look_at_the_log_loads_no_domain(log: Ledger, dsn: str) -> None:
    log.append("lamp/hall", LampMade())
    modules = loaded(dsn, "log", "log --json --limit 1", "tail -n 1", "streams lamp", "history lamp/hall")
    assert ours(modules) <= LOG
    strange = {name.split(".")[0] for name in modules} - sys.stdlib_module_names - OTHERS
    assert {name for name in strange if not name.startswith("_")} <= {"gateway", "ledger", "projections"}


@pytest.mark.parametrize(
    ("words", "domain"),
    [
        ("jobs list", "ledger.jobs"),
        ("dead list", "ledger.jobs"),
        ("queues list", "ledger.jobs"),
        ("machines list", "ledger.machines"),
        ("runs list", "ledger.jobs ledger.runs"),  # schedules of deployments use the cron of jobs
        ("lsm show 1", "ledger.pipelines"),
    ],
)
def test_a_look_at_one_domain_loads_no_other(
    log: Ledger, dsn: str, process: Callable[..., Ended], words: str, domain: str
) -> None:
    process(*words.split())  # the first look may make the view that it reads
    modules = loaded(dsn, words)
    assert ours(modules) & DOMAINS == set(domain.split())
    assert not modules & {*HEAVY, "ledger.pipelines.psoct"}


def test_the_status_loads_nothing_heavy(log: Ledger, dsn: str) -> None:
    modules = loaded(dsn, "jobs list", "status")  # to list the jobs makes the view of which it reads
    assert "projections.jobs.dead_letters" in modules
    assert not modules & HEAVY


def test_the_packages_load_neither_pydantic_nor_a_domain() -> None:
    code = "import json, sys, ledger, projections\nprint(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], env=environment(), capture_output=True, check=True)
    assert not set(json.loads(done.stdout)) & {"pydantic", *HEAVY, *DOMAINS}
