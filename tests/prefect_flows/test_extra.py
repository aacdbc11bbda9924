"""Without the extra: importing works, using says what to install. With it: a block's words become a DSN."""

from __future__ import annotations

import subprocess
import sys

import pytest

from consumers.prefect_flows import PrefectLocks, ensure_limit
from consumers.prefect_flows.limits import limit_name
from ledger import BadInput
from tests.docs.pages import ROOT

WITHOUT = """
import sys
for library in ("prefect", "prefect_sqlalchemy", "sqlalchemy", "httpx"):
    sys.modules[library] = None  # importing it fails, as where it is not installed
import consumers.prefect_flows as flows
uses = [
    lambda: flows.ledger_from_block(),
    lambda: flows.blocks.dsn_from_block("other"),
    lambda: flows.ensure_limit("a", 1),
    lambda: flows.PrefectLocks("lsm").ensure_lock("p"),
    lambda: flows.acting_in_run().__enter__(),
    lambda: flows.PrefectLocks("lsm").exclusive(("lsm.project/p",), timeout_seconds=1).__enter__(),
    lambda: flows.PrefectLocks("lsm").shared(("lsm.project/p",), timeout_seconds=1).__enter__(),
]
for use in uses:
    try:
        use()
    except ModuleNotFoundError as error:
        print(error)
"""


def test_without_the_extra_using_it_says_what_to_install() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", WITHOUT], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")
    said = done.stdout.splitlines()
    assert len(said) == 7
    advice = (
        "is not installed, and consumers.prefect_flows needs it: "
        "install pipeline-ledger again with its extra [prefect]"
    )
    assert all(line.startswith("prefect") and line.endswith(advice) for line in said)


@pytest.mark.parametrize(
    ("project", "pipeline", "name"),
    [
        ("Brain_7", "lsm", "brain-7_lsm_state_lock"),
        ("p", "oct", "p_oct_state_lock"),
        ("a/b", "x", "a~2Fb_x_state_lock"),
    ],
)
def test_the_limit_has_the_name_that_the_spec_gives_it(project: str, pipeline: str, name: str) -> None:
    assert limit_name(project, pipeline) == name


@pytest.mark.parametrize("name", ["a/b", "a%2Fb", "a?b"])
def test_a_name_that_prefect_would_refuse_is_refused(name: str) -> None:
    with pytest.raises(BadInput, match="a character that Prefect refuses"):
        ensure_limit(name, 1)


@pytest.mark.parametrize("seconds", [59.9, 0, 86_401, float("nan")])
def test_a_lease_that_prefect_would_refuse_is_refused(seconds: float) -> None:
    with pytest.raises(BadInput, match="from 60 to 86400"):
        PrefectLocks("lsm", lease_seconds=seconds)


@pytest.mark.parametrize("seconds", [-1, float("nan"), "1"])
def test_a_timeout_that_is_none_is_refused(seconds: float) -> None:
    with pytest.raises(BadInput, match="timeout_seconds"):
        PrefectLocks("lsm").shared(("lsm.project/p",), timeout_seconds=seconds).__enter__()


@pytest.mark.usefixtures("told")
@pytest.mark.parametrize(
    ("url", "arguments", "dsn"),
    [
        ("postgresql+psycopg2://u:p%40s@h:5433/d?sslmode=require", None,
         "host=h dbname=d user=u password=p@s port=5433 sslmode=require"),
        ("postgresql://u@/d?host=/run/pg", None, "dbname=d user=u host=/run/pg"),
        ("postgresql+psycopg://u@/d?host=a:1&host=b:2", None, "dbname=d user=u host=a,b port=1,2"),
        ("postgresql+pg8000://u@h/d", {"ssl_context": True, "timeout": 5},
         "host=h dbname=d user=u sslmode=require connect_timeout=5"),
        ("postgresql+psycopg2://u@h/d?client_encoding=latin1", {"sslmode": "verify-full"},
         "host=h dbname=d user=u sslmode=verify-full"),
        ("postgresql://u@h/d", {"ssl": False}, "host=h dbname=d user=u sslmode=disable"),
        ("postgresql://", None, "postgresql://"),
    ],
)  # fmt: skip
def test_a_connector_in_the_words_of_libpq(url: str, arguments: dict[str, object] | None, dsn: str) -> None:
    from prefect_sqlalchemy import SqlAlchemyConnector

    from consumers.prefect_flows.blocks import dsn_of

    assert dsn_of(SqlAlchemyConnector(connection_info=url, connect_args=arguments)) == dsn


@pytest.mark.usefixtures("told")
@pytest.mark.parametrize(
    ("url", "arguments", "wrong"),
    [
        ("sqlite:///x", None, "leads to sqlite"),
        ("postgresql://u:s3cret@h/d?nonsense=s3cret", None, 'invalid connection option "nonsense"'),
        ("postgresql://u:s3cret@h/d", {"ssl": {"ca": "s3cret"}}, "sslmodes"),
    ],
)
def test_a_connector_that_is_none_for_the_ledger(
    url: str, arguments: dict[str, object] | None, wrong: str
) -> None:
    from prefect_sqlalchemy import SqlAlchemyConnector

    from consumers.prefect_flows.blocks import dsn_of

    with pytest.raises(BadInput, match=wrong) as caught:
        dsn_of(SqlAlchemyConnector(connection_info=url, connect_args=arguments))
    assert "s3cret" not in str(caught.value)
