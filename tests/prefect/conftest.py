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


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What uses a client needs `--prefect`, which dev.py gives when it has made the environments."""
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
def chosen(request: pytest.FixtureRequest) -> list[Scenario]:
    """The scenarios of the tests of this run."""
    letters = {
        item.callspec.params["letter"]
        for item in request.session.items
        if isinstance(item, pytest.Function)
        and "letter" in getattr(item, "callspec", item).__dict__.get("params", ())
    }
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
