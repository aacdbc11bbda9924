"""The envelope: what is read equals what was recorded, and others' parsers of CloudEvents read it too."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import pytest
from cloudevents.core.bindings.kafka import KafkaMessage, from_binary, to_binary
from cloudevents.core.formats.json import JSONFormat
from cloudevents.core.v1.event import CloudEvent
from hypothesis import given
from hypothesis import strategies as st

from consumers.kafka.envelope import MAX_BODY, MAX_META, Outgoing, envelope_of, record_of, source_of
from ledger import Recorded, stream_name
from ledger.domain import canonical_json

LEDGER = UUID("0198c0de-0000-7000-8000-000000000001")
TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0\U0010ffff"), min_size=1, max_size=60)
BODIES = st.dictionaries(TEXT, TEXT | st.integers(-(2**70), 2**70) | st.none()).map(canonical_json.body)
TIMES = st.datetimes(datetime(2, 1, 1), datetime(9998, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001


@st.composite
def events(draw: st.DrawFn) -> Recorded:
    data, raw = draw(st.tuples(BODIES, st.none()) | st.tuples(st.none(), st.binary()))
    return Recorded(
        position=draw(st.integers(1, 2**63 - 1)),
        stream=draw(TEXT | st.builds(stream_name, st.just("job"), TEXT)),
        version=draw(st.integers(1, 2**31)),
        topic=draw(st.sampled_from(["job.started", "strip.completed", "a_b.c1"])),
        schema=draw(st.integers(0, 30)),
        data=data,
        raw=raw,
        meta_data=draw(st.none() | BODIES),
        recorded_at=draw(TIMES),
    )


def event(**fields: object) -> Recorded:
    """An event of a job, with some fields of its own."""
    at = datetime(2026, 3, 1, 12, 0, 0, 250, tzinfo=UTC)
    given = dict(
        position=7, stream="job/a", version=3, topic="job.started", schema=1, data='{"n":1}', raw=None,
        meta_data='{"actor":"mina"}', recorded_at=at,
    )  # fmt: skip
    return Recorded(**(given | fields))  # type: ignore[arg-type]


def sent(of: Recorded, previous: int = 0) -> Outgoing:
    return record_of(of, previous, source_of(LEDGER), "ledger.jobs", 0)


@given(events(), st.integers(0, 2**63 - 1), st.uuids())
def test_what_is_read_equals_what_was_recorded(of: Recorded, previous: int, ledger: UUID) -> None:
    record = record_of(of, previous, source_of(ledger), "ledger.jobs", 0)
    found = envelope_of(record.key, record.value, record.headers)
    assert found.event == of
    assert (found.previous, found.ledger, found.by_reference) == (previous, ledger, False)


@given(events())
def test_the_parser_of_cloudevents_reads_it(of: Recorded) -> None:
    record = sent(of)
    headers = dict(record.headers)
    assert len(headers) == len(record.headers)
    read = from_binary(KafkaMessage(headers, record.key, record.value or b""), JSONFormat())
    assert isinstance(read, CloudEvent)
    assert (read.get_id(), read.get_source(), read.get_type()) == (
        str(of.position), f"urn:ledger:{LEDGER}", of.topic,
    )  # fmt: skip
    assert read.get_time() == of.recorded_at
    assert read.get_subject() == of.stream
    assert read.get_extension("ledgerversion") == str(of.version)
    if of.data is not None:
        assert read.get_data() == json.loads(of.data)


def test_the_package_writes_the_same_headers() -> None:
    record = sent(event())
    read = from_binary(KafkaMessage(dict(record.headers), record.key, record.value or b""), JSONFormat())
    written = to_binary(read, JSONFormat())
    assert written.headers.pop("ce_partitionkey") == b"job/a"
    assert written.headers == dict(record.headers)


def test_the_time_has_six_decimals_in_each_year() -> None:
    for at in (datetime(2, 1, 1, tzinfo=UTC), datetime(2026, 3, 1, tzinfo=UTC)):
        assert dict(sent(event(recorded_at=at)).headers)["ce_time"].endswith(b"-01T00:00:00.000000Z")
        assert len(dict(sent(event(recorded_at=at)).headers)["ce_time"]) == 27


@pytest.mark.parametrize("over", [0, 1])
def test_a_body_that_is_too_large_is_sent_by_reference(over: int) -> None:
    wanted = event(data="x" * (MAX_BODY - len('{"actor":"mina"}') + over))
    record = sent(wanted)
    found = envelope_of(record.key, record.value, record.headers)
    assert found.by_reference is bool(over)
    assert len(record.value or b"") + sum(len(value) for _, value in record.headers) < MAX_BODY + 4096
    if over:
        assert dict(record.headers)["ce_dataref"] == b"ledger:7"
        assert (found.event.data, found.event.raw, found.event.meta) == (None, None, wanted.meta)
        assert found.with_body(wanted).event == wanted


def test_metadata_that_is_too_large_is_left_out_with_the_body() -> None:
    wanted = event(raw=b"1", data=None, meta_data=json.dumps({"actor": "é" * (MAX_BODY // 2)}))
    record = sent(wanted)
    found = envelope_of(record.key, record.value, record.headers)
    assert found.by_reference
    assert found.event.meta_data is None
    assert sum(len(value) for _, value in record.headers) < MAX_META


@pytest.mark.parametrize(
    ("meta", "traceparent"),
    [
        ('{"traceparent":"00-4bf9-00f0-01"}', "00-4bf9-00f0-01"),
        ('{"traceparent":7}', None),
        ('["traceparent"]', None),
        ('{"actor":"traceparent"}', None),
    ],
)
def test_the_context_of_a_trace_is_carried(meta: str, traceparent: str | None) -> None:
    record = sent(event(meta_data=meta))
    assert envelope_of(record.key, record.value, record.headers).traceparent == traceparent


@pytest.mark.parametrize("missing", ["ce_source", "ce_ledgerprev", "content-type", "ce_time"])
def test_a_record_of_another_kind_is_refused(missing: str) -> None:
    record = sent(event())
    with pytest.raises(ValueError, match=missing):
        envelope_of(record.key, record.value, [one for one in record.headers if one[0] != missing])


@pytest.mark.parametrize(
    ("header", "value"),
    [
        ("ce_source", b"urn:uuid:1"),
        ("ce_source", b"urn:ledger:1"),
        ("ce_ledgerposition", b"x"),
        ("ce_time", b"noon"),
        ("ce_type", b"\xff"),
    ],
)
def test_headers_that_make_no_sense_are_refused(header: str, value: bytes) -> None:
    record = sent(event())
    with pytest.raises(ValueError):
        envelope_of(record.key, record.value, list((dict(record.headers) | {header: value}).items()))


def test_a_moment_in_another_zone_is_the_same_moment() -> None:
    record = sent(event())
    at = event().recorded_at + timedelta(hours=2)
    other = dict(record.headers) | {"ce_time": at.isoformat().replace("+00:00", "+02:00").encode()}
    assert envelope_of(record.key, record.value, other.items()).event == event()


def test_each_ledger_is_another_source() -> None:
    assert len({source_of(uuid4()) for _ in range(3)}) == 3
