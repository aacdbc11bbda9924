"""Verify: each kind of damage is found, named, and repaired where it can be; what is whole is left."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from ledger import BadInput, Body, Event, GuardFailed, Ledger
from ledger.domain.topics import TopicStatus
from ledger.log.announce import announce_statuses
from ledger.log.append import Guard
from projections.fold import Which
from projections.verify import Summary, rebuild_commands, rebuild_heads, verify
from projections.verify.difference import Difference, Kind
from tests.lamp import Lamp, LampBroke, LampRead, OpenLamp
from tests.verify.damage import as_owner, commands, heads, tamper, use

Connection = psycopg.Connection[Any]
HEADS = "UPDATE ledger.heads SET"
HEAD_DAMAGE = {
    "DELETE FROM ledger.heads WHERE stream = 'lamp/a'": (Kind.HEAD_MISSING, ()),
    f"{HEADS} version = 1 WHERE stream = 'lamp/a'": (Kind.HEAD_BEHIND, ("version",)),
    f"{HEADS} version = 7 WHERE stream = 'lamp/a'": (Kind.HEAD_AHEAD, ("version",)),
    f"{HEADS} status = 'made' WHERE stream = 'lamp/a'": (Kind.HEAD_DIFFERS, ("status",)),
    f"{HEADS} status = NULL WHERE stream = 'lsm.strip/brain-7/1/0/1'": (Kind.HEAD_DIFFERS, ("status",)),
    f"{HEADS} state_version = 9 WHERE stream = 'lamp/a'": (Kind.HEAD_DIFFERS, ("state_version",)),
    f"{HEADS} state = NULL WHERE stream = 'lamp/a'": (Kind.HEAD_DIFFERS, ("state_version",)),
    f"{HEADS} state = jsonb_set(state, '{{read}}', '1.0') WHERE stream = 'lamp/a'": (
        Kind.HEAD_DIFFERS, ("state.read",)),
    f"{HEADS} state = state - 'watts' || '{{\"more\": true}}' WHERE stream = 'lamp/b'": (
        Kind.HEAD_DIFFERS, ("state.more", "state.watts")),
    f"{HEADS} state_version = 2 WHERE stream = 'lamp/a'": (Kind.HEAD_DIFFERS, ("state.status",)),
    f"{HEADS} state = jsonb_set(state, '{{under_way}}', '[]') WHERE stream = 'lsm.channel/brain-7/1/0'": (
        Kind.HEAD_DIFFERS, ("state.under_way",)),
    "INSERT INTO ledger.heads (stream, version) VALUES ('lamp/zz', 2)": (Kind.HEAD_ALONE, ()),
    "INSERT INTO ledger.heads (stream, version) VALUES ('zz', 2)": (Kind.HEAD_ALONE, ()),
}  # fmt: skip
COMMAND_DAMAGE = {
    "DELETE FROM ledger.commands WHERE command = 'both'": Kind.COMMAND_MISSING,
    "UPDATE ledger.commands SET first_position = first_position - 1 WHERE command = 'make b'": (
        Kind.COMMAND_DIFFERS),
    "UPDATE ledger.commands SET recorded_at = recorded_at - interval '1 ms' WHERE command = 'both'": (
        Kind.COMMAND_DIFFERS),
    "INSERT INTO ledger.commands VALUES (4, 4, now(), 'nobody', 'x')": Kind.COMMAND_ALONE,
}  # fmt: skip


def run(log: Ledger, which: Which = Which(), **options: Any) -> tuple[list[Difference], Summary]:  # noqa: B008
    found: list[Difference] = []
    return found, verify(log, which, processes=1, found=found.append, **options)


@pytest.fixture
def used(log: Ledger) -> Ledger:
    use(log)
    return log


def test_a_whole_ledger_has_no_difference(used: Ledger, connection: Connection) -> None:
    before = heads(connection), commands(connection)
    found, summary = run(used, repair=True)
    assert found == []
    assert summary.equal
    assert (summary.streams, summary.heads, summary.commands, summary.lagging) == (12, 11, 4, 1)
    assert summary.events == connection.execute("SELECT count(*) FROM ledger.events").fetchone()[0]  # type: ignore[index]
    assert (heads(connection), commands(connection)) == before


def test_damage_of_a_head_is_found_named_and_mended(used: Ledger, connection: Connection) -> None:
    rebuild_heads(used, processes=1)  # that of lamp/b lagged
    before = heads(connection)
    for damage, (kind, fields) in HEAD_DAMAGE.items():
        as_owner(connection, damage)
        ((difference,), summary) = run(used)
        assert (difference.kind, tuple(f.name for f in difference.fields)) == (kind, fields), damage
        assert f"'{difference.about}'" in damage
        assert (difference.repaired, summary.equal) == (None, False)
        if difference.evidence:
            left = heads(connection)
            ((difference,), summary) = run(used, repair=True)
            assert (difference.repaired, summary.equal, summary.evidence) == (None, False, {kind: 1}), damage
            assert heads(connection) == left, damage
        ((difference,), summary) = run(used, repair=True, also=[kind])
        assert difference.is_repaired, damage
        assert summary.equal
        assert heads(connection) == before, damage
    assert run(used)[0] == []


def test_damage_of_a_command_is_found_named_and_mended(used: Ledger, connection: Connection) -> None:
    before = commands(connection)
    for damage, kind in COMMAND_DAMAGE.items():
        as_owner(connection, damage)
        ((difference,), _) = run(used)
        assert difference.kind is kind, damage
        assert f"'{difference.about}'" in damage
        if kind is not Kind.COMMAND_MISSING:
            left = commands(connection)
            ((difference,), summary) = run(used, repair=True)
            assert (difference.repaired, difference.evidence, summary.equal) == (None, True, False), damage
            assert commands(connection) == left, damage
        ((difference,), summary) = run(used, repair=True, also=[kind])
        assert difference.is_repaired, damage
        assert summary.equal
        assert commands(connection) == before, damage
    assert run(used)[0] == []


def test_a_command_that_was_recorded_twice_is_named_and_its_row_stays_the_first(
    used: Ledger, connection: Connection
) -> None:
    as_owner(connection, "DELETE FROM ledger.commands WHERE command = 'make a'")
    used.append("lamp/q", LampRead(), command="make a")
    kinds = {difference.kind for difference in run(used)[0]}
    assert kinds == {Kind.COMMAND_DIFFERS}  # the row names the second
    run(used, repair=True, also=[Kind.COMMAND_DIFFERS])
    assert [d.kind for d in run(used)[0]] == [Kind.COMMAND_TWICE]
    first = connection.execute("SELECT first_position FROM ledger.commands WHERE command = 'make a'")
    assert first.fetchone() == (1,)


def test_events_that_are_wrong_are_named_and_stay(used: Ledger, connection: Connection) -> None:
    tamper(
        connection,
        "DELETE FROM ledger.events WHERE stream = 'lamp/a' AND version = 2",
        "UPDATE ledger.events SET version = 2 WHERE stream = 'lamp/c' AND version = 3",
        "UPDATE ledger.events SET position = position + 1000 WHERE stream = 'lamp/b' AND version = 1",
        """UPDATE ledger.events SET data = '{"watts": "many"}' WHERE stream = 'lamp/d' AND version = 1""",
    )
    found, summary = run(used, repair=True)
    named = {(d.kind, d.about, d.version) for d in found}
    assert {(Kind.GAP, "lamp/a", 3), (Kind.DUPLICATE, "lamp/c", 2), (Kind.ORDER, "lamp/b", 2),
            (Kind.UNREADABLE, "lamp/d", 1)} <= named  # fmt: skip
    (unreadable,) = [d for d in found if d.kind is Kind.UNREADABLE]
    assert "lamp.made cannot be read: " in unreadable.says
    assert not summary.equal
    again = {(d.kind, d.about) for d in run(used)[0]}
    assert {(Kind.GAP, "lamp/a"), (Kind.DUPLICATE, "lamp/c"), (Kind.UNREADABLE, "lamp/d")} <= again


def test_a_state_of_other_code_is_old_and_not_wrong(
    used: Ledger, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema = OpenLamp.state_schema()
    as_owner(connection, f"{HEADS} state_schema = {schema + 1}, state = '{{}}' WHERE stream = 'lamp/a'")
    before = heads(connection)
    found, summary = run(used, repair=True)
    assert (found, summary.old, summary.equal) == ([], 1, True)
    assert heads(connection) == before
    rebuild_heads(used, processes=1)
    assert run(used)[1].old == 0


def test_of_a_topic_that_nobody_here_knows_only_that_is_told(used: Ledger, connection: Connection) -> None:
    used.append("lamp/a", Body("lamp.of_newer_code", 1, "{}"))
    as_owner(
        connection, f"{HEADS} state_version = 4, state = state || '{{\"read\": 5}}' WHERE stream = 'lamp/a'"
    )
    found, summary = run(used)
    assert ([difference.kind for difference in found], summary.unsure) == ([Kind.UNKNOWN_TOPIC], 1)
    as_owner(connection, f"{HEADS} status = 'odd' WHERE stream = 'lamp/a'")
    assert run(used)[0] == found, "it may lead there"
    announce_statuses(used, {"lamp.of_newer_code": TopicStatus("new")})
    assert [f for d in run(used)[0] for f in d.fields] == [("status", '"odd"', '"new"')]


def test_the_status_of_a_category_that_nobody_here_knows_is_that_of_the_declared_moves(
    used: Ledger, connection: Connection
) -> None:
    announce_statuses(used, {"nobody.knows": TopicStatus(field="status")})
    ((difference,), _) = run(used)
    assert difference.fields == (("status", "null", '"odd"'),)
    assert run(used, repair=True)[1].equal
    head = used.head("plain/1")
    assert head is not None
    assert (head.status, head.state) == ("odd", None)


def test_an_evolve_that_fails_is_named(used: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(lamp: Lamp, event: Event, at: Any) -> Lamp:
        raise KeyError("no such lamp")

    monkeypatch.setattr(OpenLamp, "evolve", staticmethod(failing))
    found, _ = run(used, Which("lamp/a"))
    assert [(d.kind, d.version) for d in found] == [(Kind.UNREADABLE, 1)]
    assert "could not be applied: KeyError" in found[0].says


def test_a_name_that_is_no_key_of_its_category_is_folded_without_a_class(used: Ledger) -> None:
    used.append("lsm.strip/brain-7", LampRead(), LampBroke())
    found, summary = run(used)
    assert found == []
    assert summary.streams == 13


def test_a_part_is_what_is_asked_for(used: Ledger, connection: Connection) -> None:
    as_owner(connection, "TRUNCATE ledger.heads", "TRUNCATE ledger.commands")
    assert {d.about for d in run(used, Which.of("lamp/"))[0]} == {f"lamp/{name}" for name in "abcde"}
    assert len(run(used, Which.of(category="lsm.strip"))[0]) == 2
    assert run(used, Which.of(sample=3))[1].streams == 3
    assert run(used, Which.of("nothing"))[1].streams == 0
    assert Kind.COMMAND_MISSING in {d.kind for d in run(used)[0]}
    with pytest.raises(BadInput, match="or a category, not both"):
        Which.of("a", "b")


def test_a_lost_lease_is_not_in_the_events_and_its_holder_is_refused(
    used: Ledger, connection: Connection
) -> None:
    as_owner(connection, f"{HEADS} status = 'off' WHERE stream = 'lamp/e'")
    assert run(used, repair=True, also=[Kind.HEAD_DIFFERS])[1].equal
    used.append("lamp/e", LampRead(), expected=Guard({"made"}, 9))  # repaired, the lease stays
    as_owner(connection, "TRUNCATE ledger.heads")
    rebuild_heads(used, processes=1)
    with pytest.raises(GuardFailed):
        used.append("lamp/e", LampRead(), expected=Guard({"made"}, 9))


def test_all_that_is_derived_comes_back_as_it_was(used: Ledger, connection: Connection) -> None:
    rebuild_heads(used, processes=1)
    as_owner(connection, f"{HEADS} token = NULL")
    before = heads(connection), commands(connection)
    as_owner(connection, "TRUNCATE ledger.heads", "TRUNCATE ledger.commands")
    assert rebuild_heads(used, processes=1).changed == {"inserted": 11}
    assert rebuild_commands(used, processes=1).changed == {"inserted": 4}
    assert (heads(connection), commands(connection)) == before
    assert rebuild_heads(used, processes=1).changed == {}
    assert used.append("lamp/q", LampRead(), command="new").repeated is False


def test_a_repeated_call_of_a_restored_command_is_answered_as_before(
    used: Ledger, connection: Connection
) -> None:
    first = used.append("lamp/q", LampRead(value={"b": [1e16, 2**70], "a": "ü"}), command="again")
    as_owner(connection, "TRUNCATE ledger.commands")
    rebuild_commands(used, processes=1)
    again = used.append("lamp/q", LampRead(value={"a": "ü", "b": [1e16, 2**70]}), command="again")
    assert again.repeated
    assert again.first_position == first.first_position


def test_a_head_that_an_append_holds_is_left_and_said(
    used: Ledger, connection: Connection, connect: Any
) -> None:
    as_owner(connection, f"{HEADS} status = 'off' WHERE stream IN ('lamp/a', 'lamp/b')")
    other = connect()
    with other.transaction(), used.join(other) as joined:
        joined.append("lamp/c", LampRead())
    holder = connect()
    holder.execute("SET ROLE ledger_owner")
    holder.execute("SELECT FROM ledger.heads WHERE stream = 'lamp/a' FOR UPDATE")
    found, summary = run(used, Which("lamp/"), repair=True, also=[Kind.HEAD_DIFFERS])
    assert {d.about: d.repaired for d in found} == {"lamp/a": "busy", "lamp/b": "repaired"}
    assert not summary.equal
    holder.rollback()
    assert run(used, repair=True, also=[Kind.HEAD_DIFFERS])[1].equal


def test_who_may_only_append_and_read_may_not_repair(used: Ledger, admin_dsn: str) -> None:
    with psycopg.connect(admin_dsn, autocommit=True) as admin:
        told = admin.execute(
            "SELECT r, p.proname, has_function_privilege(r, p.oid, 'EXECUTE') FROM pg_proc p, "
            "unnest(ARRAY['ledger_writer', 'ledger_reader', 'ledger_projector']) r "
            "WHERE p.pronamespace = 'ledger'::regnamespace AND p.proname ~ '^(repair|restore|remove|hold_head)'"  # noqa: E501
        ).fetchall()
    may = {(role, name) for role, name, allowed in told if allowed}
    names = ("repair_heads", "hold_head", "restore_commands", "remove_commands")
    assert may == {("ledger_projector", name) for name in names}
    assert len(told) == 18


def test_claims_outlive_the_append_that_recorded_them(log: Ledger) -> None:
    """A named tuple in a state stayed none when its times were set."""
    from ledger.pipelines import Claim, LSMChannelState

    with log.open(LSMChannelState, "p", 1, 0) as channel:
        channel.create()
        channel.enter("mip_stitched")
    assert channel.state.under_way == (Claim("mip_stitched", 1),)
    assert isinstance(channel.state.under_way[0], Claim)
