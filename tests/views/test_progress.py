"""Progress: sizes of sets, whatever the history, wherever batches are cut, however often they come."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from itertools import count
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ledger import Append, Body, Ledger
from ledger.domain.domain import Domain
from ledger.domain.known import KNOWN
from ledger.domain.sets import Total, UnitSet
from ledger.errors import BadInput
from ledger.pipelines import LSMStateService, OCTStateService
from projections.engine.apply import Applier
from projections.engine.copies import Copies, projecting
from projections.engine.projector import Projector
from projections.engine.refold import refold
from projections.views.progress import Progress
from tests.announcements import announce_sets
from tests.views.eggs import BATCHES, EGGS, append, appended, declare, facts, named

PROGRESS = KNOWN.views["progress"]
TABLES = Progress().table_names
Connection = psycopg.Connection[Any]
_numbers = count(1)
EXAMPLES = int(os.environ.get("LEDGER_TEST_EXAMPLES", "40")) // 2


@pytest.fixture
def copies(log: Ledger) -> Iterator[Copies]:
    with projecting(log) as connection:
        yield Copies(connection, log.schema)


@pytest.fixture(autouse=True)
def only_eggs(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """A projector declares what is imported, unless the test is about that."""
    if "project_state" not in request.node.name:
        monkeypatch.setattr("projections.engine.projector.announce", lambda ledger: [])


def shown(connection: Connection, parent: str = "") -> dict[str, tuple[Any, ...]]:
    """By parent: present, running, done, failed, total, position."""
    wanted = "SELECT parent, present, running, done, failed, total, position FROM ledger_views.progress"
    rows = connection.execute(f"{wanted} WHERE starts_with(parent, %s)", [parent]).fetchall()
    assert len(rows) == len({row[0] for row in rows})
    return {row[0]: row[1:] for row in rows}


def tables(connection: Connection, number: int) -> list[list[Any]]:
    """All rows of a copy."""
    wanted = "SELECT to_jsonb(t) - 'copy' FROM ledger_views.{}_{} t ORDER BY t::text"
    return [connection.execute(wanted.format(name, number)).fetchall() for name in TABLES]


def cut(copies: Copies, number: int, upto: int, cuts: Sequence[int], twice: bool) -> None:
    """Apply the log to a copy in pieces, some of them twice."""
    copy = copies.copy(PROGRESS, number)
    assert copy is not None
    applier, position, sizes = Applier(copies, PROGRESS, copy), copy.position, iter([*cuts, *[10**6] * 99])
    while position < upto:
        end = min(position + next(sizes), upto)
        applier.apply(position, end, 0)
        if twice:
            with copies.connection.transaction():
                applier.fill(max(position - 3, 0), end)
        position = end


@settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(st.data())
def test_any_history_in_any_pieces_makes_the_sets_of_a_plain_fold(
    log: Ledger, copies: Copies, connection: Connection, data: st.DataObject
) -> None:
    if copies.live(PROGRESS) is None:
        declare(log)
        copies.followed(PROGRESS)
        copies.begin(PROGRESS)
    name = f"n{next(_numbers)}_"
    farmer = appended(log, named(data.draw(facts()), name))

    Projector(log, [PROGRESS]).catch_up()
    cut(copies, 2, log.bound(), data.draw(st.lists(st.integers(1, 9), max_size=12)), data.draw(st.booleans()))

    found = shown(connection)
    assert {p: row for p, row in found.items() if p.split("/")[1].startswith(name)} == farmer.rows()
    whole = tables(connection, 1)
    assert tables(connection, 2) == whole
    prefix = data.draw(st.sampled_from(["egg/", "tray/", "farm/", "batch/", "job/", "egg/@1/a", "tray/@1"]))
    refold(copies, PROGRESS, 1, prefix=prefix.replace("@", name))
    assert tables(connection, 1) == whole, prefix


def test_a_unit_that_is_marked_twice_counts_once(log: Ledger, connection: Connection) -> None:
    declare(log)
    tray = "tray/f/a"
    append(
        log,
        [
            (tray, "tray.built", {}),
            ("egg/f/a/1", "egg.laid", {"under": 1}),
            ("egg/f/a/2", "egg.laid", {"under": 1}),
        ],
    )
    for _ in range(3):
        append(log, [("egg/f/a/1", "egg.hatched", {})])
        Projector(log, [PROGRESS]).catch_up()
        first = log.read("egg/f/a/1")[1].position
        assert shown(connection) == {tray: (2, 0, 1, 0, 2, first)}


def test_a_parent_that_is_built_again_begins_anew_and_what_is_left_over_does_not_count(
    log: Ledger, connection: Connection
) -> None:
    """Given units of a tray, when it is broken and built again, then only those of the present life count."""
    declare(log)
    laid = [(f"egg/f/a/{n}", "egg.laid", {"under": 1}) for n in range(3)]
    append(log, [("tray/f/a", "tray.built", {}), *laid, ("egg/f/a/0", "egg.hatched", {})])
    projector = Projector(log, [PROGRESS])
    projector.catch_up()
    assert shown(connection)["tray/f/a"][:4] == (3, 0, 1, 0)
    append(log, [("tray/f/a", "tray.broken", {}), ("egg/f/a/1", "egg.lost", {})])
    projector.catch_up()
    assert shown(connection)["tray/f/a"][:4] == (0, 0, 0, 0)
    append(log, [("tray/f/a", "tray.built", {}), ("egg/f/a/1", "egg.laid", {"under": 2})])
    projector.catch_up()
    assert shown(connection)["tray/f/a"] == (1, 0, 0, 0, 2, log.bound())


def test_nothing_counts_below_a_parent_that_was_never_born(log: Ledger, connection: Connection) -> None:
    declare(log)
    append(log, [("egg/f/a/1", "egg.laid", {"under": n}) for n in (0, 1)])
    Projector(log, [PROGRESS]).catch_up()
    assert shown(connection) == {}


def test_a_job_that_named_its_batches_has_none_of_them_done(log: Ledger, connection: Connection) -> None:
    """A total of the parent's own stream makes the set, before any unit is there; a list counts its items."""
    declare(log)
    append(log, [("job/x", "job.split", {"batches": ["b0", "b1", "b2"]})])
    projector = Projector(log, [PROGRESS])
    projector.catch_up()
    wanted = "SELECT category, present, done, total, percent FROM ledger_views.progress_of('job/x')"
    assert connection.execute(wanted).fetchall() == [("batch", 0, 0, 3, 0)]
    append(log, [(f"batch/x/{n}", "batch.became", {"how": "hatched"}) for n in (0, 1)])
    projector.catch_up()
    assert connection.execute(wanted).fetchall() == [("batch", 2, 2, 3, 66)]


def test_the_sets_of_project_state_are_counted(log: Ledger, connection: Connection) -> None:
    """Given projects of both pipelines, the children of each item are counted."""
    lsm, oct_ = LSMStateService(log), OCTStateService(log)
    with lsm.open_project("brain") as project:
        project.plan(strips_per_slice=4)
        for n in range(3):
            project.get_or_create_strip_by_parts(1, n)
        project.get_strip_by_parts(1, 0).mark_completed()
        project.get_strip_by_parts(1, 1).mark_failed("torn")
        project.get_strip_by_parts(1, 2).mark_started()
    with oct_.open_mosaic_by_parts("vessel", slice_id=1, mosaic_id=1) as mosaic:
        mosaic.mark_completed()
    projector = Projector(log, [PROGRESS])
    projector.catch_up()
    found = {parent: row[:5] for parent, row in shown(connection).items()}
    assert found == {
        "lsm.project/brain": (1, 0, 0, 0, None), "lsm.slice/brain/1": (1, 0, 0, 0, None),
        "lsm.channel/brain/1/1": (3, 1, 1, 1, 4), "psoct.project/vessel": (1, 0, 0, 0, None),
        "psoct.slice/vessel/1": (1, 0, 1, 0, 2), "psoct.mosaic/vessel/1/1": (0, 0, 0, 0, None),
    }  # fmt: skip
    with lsm.open_project("brain") as project:
        project.delete_channel(1, 1)
    with lsm.open_strip("brain", slice_id=1, strip_id=2, channel_id=1):
        pass
    projector.catch_up()
    assert shown(connection)["lsm.channel/brain/1/1"] == (
        1,
        0,
        0,
        0,
        4,
        shown(connection)["lsm.channel/brain/1/1"][5],
    )


def test_what_is_declared_late_is_counted_from_the_beginning(
    log: Ledger, copies: Copies, connection: Connection
) -> None:
    """Given a view that went past the events of a set, when the set is declared, then they count."""
    append(log, [("farm/f", "farm.planned", {"plan": {"eggs": 7}}), ("tray/f/a", "tray.built", {})])
    append(log, [("egg/f/a/1", "egg.laid", {"under": 1}), ("egg/f/a/1", "egg.hatched", {})])
    Projector(log, [PROGRESS]).catch_up()
    assert shown(connection) == {}
    declare(log)
    append(log, [("egg/f/a/2", "egg.laid", {"under": 1})])
    Projector(log, [PROGRESS]).catch_up()
    assert shown(connection) == {"tray/f/a": (2, 0, 1, 0, 7, log.bound())}
    assert announce_sets(log, [EGGS, BATCHES]) == []


def test_a_set_that_is_declared_otherwise_is_counted_anew(
    log: Ledger, copies: Copies, connection: Connection
) -> None:
    declare(log)
    append(log, [("job/x", "job.split", {"batches": 5}), ("batch/x/1", "batch.became", {"how": "hatched"})])
    Projector(log, [PROGRESS]).catch_up()
    assert shown(connection)["job/x"][:5] == (1, 0, 1, 0, 5)
    other = UnitSet("batch", "task", done=frozenset({"odd"}), running=frozenset({"hatched"}))
    assert announce_sets(log, [other]) == ["batch"]
    append(log, [("batch/x/2", "batch.became", {"how": "odd"})])
    Projector(log, [PROGRESS]).catch_up()
    assert shown(connection)["task/x"] == (2, 1, 1, 0, None, log.bound())


def test_a_part_that_was_spoilt_is_healed_by_folding_it_anew(
    log: Ledger, copies: Copies, admin_dsn: str
) -> None:
    declare(log)
    append(
        log,
        [
            ("tray/f/a", "tray.built", {}),
            ("tray/f/b", "tray.built", {}),
            ("egg/f/b/1", "egg.laid", {"under": 1}),
        ],
    )
    append(log, [(f"egg/f/a/{n}", "egg.laid", {"under": 1}) for n in range(4)])
    Projector(log, [PROGRESS]).catch_up()
    with psycopg.connect(admin_dsn, autocommit=True) as admin:
        before = tables(admin, 1)
        admin.execute(
            "UPDATE ledger_views.progress_sets_1 SET done = 99, position = 1 WHERE parent = 'tray/f/a'"
        )
        admin.execute("UPDATE ledger_views.progress_units_1 SET state = 4 WHERE stream = 'egg/f/a/1'")
        admin.execute("DELETE FROM ledger_views.progress_units_1 WHERE stream = 'egg/f/a/2'")
        refold(copies, PROGRESS, 1, prefix="egg/f/a/")
        assert tables(admin, 1) == before


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"done": "completed"}, "must be statuses"),
        ({"failed": frozenset({"done"})}, "not two of them"),
        ({"life": "a.born"}, "both `life` and `born`"),
        ({"death": "a.died"}, "`death` needs both"),
        ({"parent": "No Name"}, "category"),
        ({"total": Total("No Topic", ())}, "topic"),
    ],
)  # fmt: skip
def test_a_set_that_cannot_be_is_refused(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(BadInput, match=said):
        UnitSet(**{"category": "a", "parent": "b", "done": frozenset({"done"}), **wrong})


def test_one_category_is_counted_in_one_way() -> None:
    with pytest.raises(TypeError, match="another set already"):
        Domain("otherwise", sets=[UnitSet("lsm.strip", "lsm.project", done=frozenset({"completed"}))])


def test_a_small_batch_does_not_read_a_large_set(log: Ledger, copies: Copies) -> None:
    """50 units of a set of 4,000: the units are looked up by name, and no other is read."""
    declare(log)
    append(log, [("tray/f/a", "tray.built", {})])
    laid, warmed = Body("egg.laid", 1, '{"under": 1}'), Body("egg.warmed", 1, "{}")
    for k in range(2):
        log.append_all([Append(f"egg/f/a/{k * 2000 + n}", [laid]) for n in range(2000)])
    Projector(log, [PROGRESS]).catch_up()
    log.append_all([Append(f"egg/f/a/{n * 70}", [warmed]) for n in range(50)])
    read = "SELECT seq_tup_read, idx_tup_fetch FROM pg_stat_user_tables WHERE relname = 'progress_units_1'"

    def reads() -> tuple[int, int]:
        copies.connection.execute("SELECT pg_stat_force_next_flush()")
        ((in_order, by_name),) = copies.connection.execute(read).fetchall()
        return in_order, by_name

    before = reads()
    cut(copies, 1, log.bound(), [], twice=False)
    after = reads()
    assert after[0] == before[0]
    assert 50 <= after[1] - before[1] <= 150
    shown_now = copies.connection.execute("SELECT present, running FROM ledger_views.progress").fetchall()
    assert shown_now == [(4000, 50)]
