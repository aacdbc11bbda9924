"""
Nothing that reads fails on what somebody could append: no body, meta, topic, stream or state.

A writer's login calls the functions of the append by hand. Every command then ends as it should, and says
what it could not read; what works on events goes on with all that it can read.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from consumers.jobs.cascade import cascade
from consumers.jobs.claim import LogOffers
from consumers.jobs.fan_in import fan_in
from consumers.jobs.reaper import Reaper
from consumers.jobs.scheduler import Scheduler
from consumers.pipelines import readiness
from gateway.cli.errors import Code
from ledger import Ledger
from ledger.domain.known import KNOWN
from ledger.jobs import Jobs, Schedules
from ledger.pipelines import LSM, OCT
from projections.engine.projector import Projector
from tests.forgery import forge, forge_many
from tests.gateway.conftest import Ended
from tests.gateway.moved import move_parcels
from tests.gateway.projects import fill

Pledger = Callable[..., Ended]
Connection = psycopg.Connection[Any]
WELL = (Code.FINE, Code.REFUSED, Code.MISUSE, Code.NOT_FOUND, Code.UNSUCCESSFUL)
"""How a command may end; not as a defect, and not for want of a server."""

DEEP, LONG = "[" * 3000 + "]" * 3000, "9" * 5000
"""What JSONB holds and Python does not read."""


# What is appended

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 10**20) | st.floats(-9, 9) | st.sampled_from(["", "\x1b"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=4,
)  # fmt: skip
TEXTS = st.one_of(
    VALUES.map(json.dumps), st.sampled_from([DEEP, LONG, f'{{"a": {LONG}}}', f'{{"a": {DEEP}}}'])
)
TIMES = ["0001-01-01T00:00:00+14:00", "2030-02-30T00:00:00Z", "9999-12-31T23:59:59-12:00", "2031-01-31"]
METAS = st.one_of(
    TEXTS,
    st.dictionaries(
        st.sampled_from(["actor", "correlation", "causation", "command", "claimed_at", "origin"]),
        VALUES | st.sampled_from(TIMES),
    ).map(json.dumps),
)  # fmt: skip
KEYS = st.sampled_from(
    ["x", "", "brain-7", "brain-7/1", "brain-7/1/1", "brain-7/1/1/1", "brain-7/x/1", "a/b/c/d/e"]
)
STREAMS = st.one_of(
    st.builds("{}/{}".format, st.sampled_from(sorted(KNOWN.streams)), KEYS),
    st.sampled_from(
        ["", "nothing", "x//y", "parcel/c", "machine/parcel", "schedule/nightly", "queue/default"]
    ),
).filter(bool)


@st.composite
def forgeries(draw: st.DrawFn) -> dict[str, Any]:
    """One append: mostly a topic of the stream's own category, with fields that hold anything."""
    stream = draw(STREAMS)
    category = stream.partition("/")[0].removesuffix(".ready")
    own = [topic for topic in sorted(KNOWN.events) if topic.startswith(f"{category}.")]
    topic = draw(
        st.sampled_from(own or sorted(KNOWN.events))
        | st.sampled_from([*sorted(KNOWN.events), "unknown.topic"])
    )
    names = sorted(KNOWN.events[topic].model_fields) if topic in KNOWN.events else []
    fields = st.dictionaries(st.sampled_from(names), VALUES).map(json.dumps) if names else TEXTS
    kind = KNOWN.streams.get(stream.partition("/")[0])
    return {
        "stream": stream, "topic": topic, "data": draw(TEXTS | fields), "meta": draw(METAS),
        "raw": draw(st.none() | st.none() | st.binary(min_size=1, max_size=3)),
        "status": draw(st.sampled_from([None, "queued", "running", "pending", "active", "paused", "\x1b"])),
        "state": draw(st.none() | TEXTS),
        "state_schema": draw(st.sampled_from([None, 1, kind.state_schema() if kind else 2])),
    }  # fmt: skip


def append(connection: Connection, what: dict[str, Any], at_once: int) -> None:
    """By the one function or by the other; what PostgreSQL refuses is not there to be read."""
    try:
        if at_once and what["raw"] is None:
            kept = {name: what[name] for name in ("meta", "status", "state")}
            forge_many(connection, what["stream"], what["topic"], [what["data"]] * at_once, **kept)
        else:
            forge(connection, **what)
    except psycopg.Error:
        return


# What reads

COMMANDS = (
    "tail", "tail --json", "streams", "streams --json", "machines list", "machines list --json",
    "verify --check=", "doctor", "states", "dwell", "states --axis claimed", "dwell --axis claimed",
    "export {file}.jsonl", "export {file}.csv",
    "jobs list", "jobs list --json", "dead list", "queues list", "schedules list", "schedules list --json",
    "operations list", "worker list", "views --over 0", "views parked", "views metrics", "reactors list",
    "reactors parked --json", "reaper run --once", "react --once", "lsm show brain_7", "psoct show brain_7",
    "lsm report brain_7 --strips-per-slice 3", "lsm plan brain_7", "machines show parcel",
    "machines check parcel",
    "machines diagram parcel", "schedules show nightly", "schedules next nightly", "jobs show {job}",
    "jobs events {job}", "dead show {job}", "changes in_state", "as-of list",
)  # fmt: skip
OF_A_STREAM = (
    "why {stream}", "history {stream}", "history {stream} --json", "show {stream}", "show {stream} --json",
    "blame {stream}", "diff {stream} --from version:1", "states {stream}",
)  # fmt: skip


class House:
    """A ledger with a bit of everything, of which somebody forges more and more."""

    def __init__(self, log: Ledger, dsn: str, pledger: Pledger, folder: Path) -> None:
        self.log, self.pledger, self.folder = log, pledger, folder
        self.connection = psycopg.connect(dsn, autocommit=True)
        for pipeline in (LSM, OCT):
            fill(log, pipeline)
            fill(log, pipeline, "untouched")
        move_parcels(log)
        self.jobs = Jobs(log)
        self.job = self.jobs.submit("op", {"n": 1})
        Schedules(log).set("nightly", "0 0 * * *", "op")
        self.look()

    def look(self) -> None:
        """What follows the log does so."""
        projector = Projector(self.log)
        projector.catch_up()
        assert projector.stopped == {}
        for make in (fan_in, cascade, readiness):
            make(self.log).catch_up()
        Reaper(self.log).run_once()
        Scheduler(self.log).run_once()

    def run(self, command: str, stream: str) -> None:
        """A command ends well."""
        given = {"file": str(self.folder / "all"), "job": self.job, "position": str(self.log.bound())}
        words = [word.format(**given, stream=stream) for word in command.split(" ")]
        ended = self.pledger(*words)
        assert ended.code in WELL, f"{words}: {ended.code}: {ended.err[-1000:]}"
        assert "defect" not in ended.err

    def works(self) -> None:
        """What nobody touched is there, and goes on."""
        assert self.pledger("lsm", "show", "untouched").code == 0
        job = self.jobs.submit("op", {"n": 2})
        self.look()
        taken = LogOffers(self.log, "w", None, 60.0).take(1000)
        assert job in {one.work.key[0] for one in taken}
        assert job in self.pledger("jobs", "list", "--json", "--limit", "500").out


@pytest.fixture
def house(log: Ledger, dsn: str, pledger: Pledger, tmp_path: Path) -> Iterator[House]:
    made = House(log, dsn, pledger, tmp_path)
    yield made
    made.connection.close()


@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    forged=st.lists(forgeries(), min_size=1, max_size=8),
    at_once=st.integers(0, 2),
    commands=st.lists(st.sampled_from(COMMANDS + OF_A_STREAM), min_size=3, max_size=6),
)
def test_nothing_that_reads_fails(
    house: House, forged: list[dict[str, Any]], at_once: int, commands: list[str]
) -> None:
    """The ledger is one for all examples, so that each adds to what the ones before have left there."""
    for what in forged:
        append(house.connection, what, at_once)
    house.look()
    for command in commands:
        house.run(command, forged[-1]["stream"])


def test_every_command_reads_the_worst(house: House) -> None:
    """One of each kind, and then every command."""
    odd = {"meta": '{"actor": [1], "claimed_at": 5, "causation": {}}', "status": "running", "state": "[]"}
    for category in sorted(KNOWN.streams):
        topics = [topic for topic in sorted(KNOWN.events) if topic.startswith(f"{category}.")] or [
            "job.created"
        ]
        for nth, body in enumerate(("[1]", "{}", DEEP, LONG)):
            topic = topics[nth % len(topics)]
            forge(house.connection, f"{category}/x{nth}", topic, body, **odd)
        forge(house.connection, f"{category}/brain-7/1/1/1", topics[0], "[1]", meta="[1]")
    for stream in ("machine/parcel", "parcel/a", "schedule/nightly", f"job/{house.job}"):
        forge(house.connection, stream, TOPICS_OF[stream.partition("/")[0]], "[1]", meta='"x"')
    house.look()
    for command in COMMANDS:
        house.run(command, "machine/x0")
    for stream in ("machine/x0", "job/x0", "lsm.strip/brain-7/1/1/1", "parcel/a", "schedule/nightly"):
        for command in OF_A_STREAM:
            house.run(command, stream)
    house.works()


TOPICS_OF = {
    "machine": "machine.defined",
    "parcel": "parcel.moved",
    "schedule": "schedule.set",
    "job": "job.created",
}


def test_it_is_said_what_could_not_be_read(house: House) -> None:
    position = forge(house.connection, "machine/x", "machine.defined", "[1, 2]")
    listed = house.pledger("machines", "list")
    assert "parcel" in [row[0] for row in listed.rows]
    assert f"'machine/x', version 1, position {position}: machine.defined cannot be read" in listed.err
    shown = house.pledger("show", "machine/x", "--json")
    assert (shown.code, shown.error["error"]) == (Code.REFUSED, "UnreadableEvent")
    assert shown.error["parts"]["position"] == position
    assert house.pledger("history", "machine/x", "--json").objects[0]["data"] == [1, 2]
    assert house.pledger("machines", "show", "x").code == Code.REFUSED
    forge(house.connection, "lsm.strip/brain-7/1/1/1", "lsm.strip.completed", "[1]")
    seen = house.pledger("lsm", "show", "brain_7")
    assert seen.code == 0
    assert "'lsm.strip/brain-7/1/1/1', version" in seen.err


@pytest.mark.parametrize(
    "command", ["tail", "history lamp/\x9b", "show lamp/\x9b", "streams lamp/", "why lamp/\x9b"]
)
def test_json_acts_on_no_terminal(
    pledger: Pledger, connection: Connection, log: Ledger, command: str
) -> None:
    acting = "\x9b2J \x85 \x7f \u2028 \u202e"
    text = json.dumps(acting, ensure_ascii=False)
    body, meta = f'{{"notes": {{"x": {text}}}}}', f'{{"actor": {text}}}'
    forge(connection, "lamp/\x9b", "lamp.made", body, meta=meta)
    ended = pledger(*command.split(), "--json")
    assert ended.code == 0
    assert not set(acting) & set(ended.out) - {"2", "J", " "}
    assert "lamp/\x9b" in json.dumps(ended.objects, ensure_ascii=False), "it is the same JSON"


def test_a_forged_state_is_left_aside_and_the_events_are_folded(house: House) -> None:
    stream = f"job/{house.job}"
    house.connection.execute("SET ROLE ledger_owner")
    for state in ("[]", '{"status": 5}', '"x"', LONG, DEEP):
        house.connection.execute(
            "UPDATE ledger.heads SET state = %s::jsonb WHERE stream = %s", [state, stream]
        )
        assert house.jobs.get(house.job).operation == "op"
        assert [one.state.operation for one in house.log.load_each([_opened(house.job)])] == ["op"]
    house.connection.execute("RESET ROLE")


def _opened(job: str) -> Any:
    from ledger.jobs import OpenJob

    return OpenJob(job)
