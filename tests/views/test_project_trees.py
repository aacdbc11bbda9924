"""Project trees in SQL are those of the services, whatever was done; and who is shown in them."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ledger import Ledger
from ledger.domain.known import KNOWN
from projections.engine.projector import Projector
from tests.pipelines.pipelines import LSM_PIPELINE, Pipeline, each_pipeline

Connection = psycopg.Connection[Any]


@pytest.fixture
def projector(log: Ledger) -> Projector:
    return Projector(log, [KNOWN.views["lsm_items"], KNOWN.views["psoct_items"]])


def column(connection: Connection, text: str, *parameters: Any) -> list[Any]:
    return [value for (value,) in connection.execute(text, parameters)]


# The tree: what the service shows.

parts = st.integers(1, 2)
paths = st.lists(parts, max_size=3).map(tuple)


def commands() -> st.SearchStrategy[list[tuple[str, tuple[int, ...], int]]]:
    words = [
        "started",
        "completed",
        "failed",
        "pending",
        "flag",
        "reset",
        "enter",
        "leave",
        "delete",
        "delete",
        "plan",
    ]
    return st.lists(st.tuples(st.sampled_from(words), paths, st.integers(0, 9)), max_size=10)


def command(pipeline: Pipeline, project: Any, word: str, path: tuple[int, ...], number: int) -> None:
    """Give a command to the item of a path, which is created if need be."""
    ident = pipeline.ident(len(path), project.ident.project_name, *path)
    if word == "delete":
        if path:
            project.delete(ident)
        return
    item, flags = project.find_or_create(ident), sorted(pipeline.flags[len(path)])
    if word == "plan":
        project.plan(**{pipeline.totals[number % len(pipeline.totals)]: number or None})
    elif word in ("flag", "reset", "enter", "leave"):
        if flags:
            name = flags[number % len(flags)]
            does = {"flag": item.set_flag, "reset": item.reset_flag, "enter": item.enter}
            does[word](name) if word in does else item.leave(name, item.state.claims, "no")
    else:
        getattr(item, f"mark_{word}")(*([f"for {number}"] if word == "failed" and number else []))


@each_pipeline
def test_a_tree_is_what_the_service_shows(
    log: Ledger, connection: Connection, projector: Projector, pipeline: Pipeline
) -> None:
    service = pipeline.service(log)
    numbers = iter(range(1_000_000))
    rounds = st.lists(commands(), min_size=1, max_size=4)

    @settings(max_examples=10, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow])
    @given(drawn=rounds)
    def law(drawn: list[list[tuple[str, tuple[int, ...], int]]]) -> None:
        name = f"Mouse_{next(numbers)} of /50%"
        for scope in drawn:
            with service.store.locked(name) as project:
                for one in scope:
                    command(pipeline, project, *one)
            projector.catch_up()
        view = service.store.peek(name, lambda view: view)
        for spelling in (name, name.lower().replace("_", "-")):
            tree = column(connection, f"SELECT ledger_views.{pipeline.name}_tree(%s)", spelling)
            assert tree == [view.to_dict()]

    law()


def test_what_another_created_below_a_deleted_parent_is_not_shown(
    log: Ledger, connection: Connection, projector: Projector
) -> None:
    pipeline = LSM_PIPELINE
    service: Any = pipeline.service(log)
    with service.open_strip("p", slice_id=1, channel_id=1, strip_id=1) as strip:
        strip.mark_completed()
    with service.open_project("p") as project:
        project.delete_slice(1)
    log.append("lsm.channel/p/1/2", pipeline.kinds[2].FACTS.created(under=1))
    log.append("lsm.strip/p/1/1/2", pipeline.kinds[3].FACTS.created(under=1))
    with service.open_slice("p", slice_id=1):
        pass
    projector.catch_up()

    everything = "SELECT stream FROM ledger_views.lsm_items ORDER BY stream"
    assert len(column(connection, everything)) == 6
    assert column(connection, everything.replace("items", "shown_items")) == [
        "lsm.project/p",
        "lsm.slice/p/1",
    ]
    tree = column(connection, "SELECT ledger_views.lsm_tree('p')")
    assert tree == [service.peek_project("p").to_dict()]


def test_claims_are_in_the_order_in_which_they_were_made_until_their_flag_is_set(
    log: Ledger, connection: Connection, projector: Projector
) -> None:
    service: Any = LSM_PIPELINE.service(log)
    seen: list[Any] = []
    for change in (
        lambda strip: strip.enter("uploaded"),
        lambda strip: strip.enter("archived"),
        lambda strip: strip.set_uploaded(),
        lambda strip: strip.mark_pending(),
    ):
        with service.open_strip("p", slice_id=1, channel_id=1, strip_id=1) as strip:
            change(strip)
        projector.catch_up()
        ((tree, now),) = connection.execute(
            "SELECT ledger_views.lsm_tree('p'), state -> 'under_way' FROM ledger_views.lsm_items"
            " WHERE category = 'lsm.strip'"
        ).fetchall()
        assert tree == service.peek_project("p").to_dict()
        seen.append(now)
    assert seen == [[["uploaded", 1]], [["uploaded", 1], ["archived", 2]], [["archived", 2]], []]


def test_of_no_project_there_is_no_tree(connection: Connection, projector: Projector) -> None:
    projector.catch_up()
    assert column(connection, "SELECT ledger_views.lsm_tree('nobody')") == [None]
