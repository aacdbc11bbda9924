"""Real clients of Prefect, each version in an environment of its own, on a server of the ledger."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from ledger.embedded import Embedded
from tests.prefect import servers
from tests.prefect.clients import VERSIONS, python_of
from tests.prefect.playing import Played, Stage
from tests.prefect.scenarios import SCENARIOS, Scenario

Results = dict[str, Callable[[], Played]]
LONG = {"c", "d", "g", "h"}
"""Scenarios that start dozens of processes: `--slow` plays them with older clients, too."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What uses a client needs `--prefect`, which dev.py gives when it has made the environments.

    Long scenarios are played with the newest client only; with others they are slow.
    """
    for item in items:
        given = item.callspec.params if hasattr(item, "callspec") else {}
        if given.get("letter") in LONG and given.get("version") in VERSIONS[1:]:
            item.add_marker(pytest.mark.slow)
    if config.getoption("--prefect"):
        return
    for item in items:
        if "version" in getattr(item, "fixturenames", ()) and "tests/prefect/" in item.path.as_posix():
            item.add_marker(pytest.mark.skip(reason="`python3 dev.py test --prefect` runs it"))


@pytest.fixture(
    scope="session", params=[pytest.param(one, marks=pytest.mark.xdist_group(one)) for one in VERSIONS]
)
def version(request: pytest.FixtureRequest) -> str:
    """A version of Prefect's client, which is there."""
    found = str(request.param)
    assert python_of(found).exists(), f"`python3 dev.py test --prefect` makes .prefect/{found}"
    return found


@pytest.fixture(scope="session")
def chosen(request: pytest.FixtureRequest, version: str) -> list[Scenario]:
    """The scenarios of the tests of this run with this version."""
    given = [item.callspec.params for item in request.session.items if hasattr(item, "callspec")]
    letters = {params.get("letter") for params in given if params.get("version") == version}
    return [one for one in SCENARIOS if one.letter in letters]


@pytest.fixture(scope="session")
def on_the_ledger(
    version: str,
    chosen: list[Scenario],
    postgres: Embedded,
    template: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Results]:
    """The scenarios as they are played on the ledger's server."""
    folder = tmp_path_factory.mktemp("ledger")
    with servers.database(postgres, template) as dsn, servers.ours(dsn, folder / "server") as server:
        stage = Stage(version, server.url, folder, settling=False)
        yield stage.begin(chosen)
        stage.close()


@pytest.fixture(scope="session")
def on_prefect(
    version: str, chosen: list[Scenario], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Results]:
    """The scenarios as they are played on Prefect's own server, of the newest version."""
    folder = tmp_path_factory.mktemp("own")
    with (
        servers.postgres_for_prefect() as postgres,
        servers.database(postgres) as dsn,
        servers.own(VERSIONS[0], dsn, folder / "server") as server,
    ):
        stage = Stage(version, server.url, folder, settling=True)
        yield stage.begin(chosen)
        stage.close()
