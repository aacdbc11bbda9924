"""Appends of several events: our short way to the server and a user's connection say and hear the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import count
from typing import Any

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger import ANY, EXISTS, NEW, Append, Appended, BadInput, Body, Exact, Expected, Guard, Ledger, Refused
from tests.log.test_laws import SOME

_numbers = count(1)
Send = Callable[[Sequence[Append]], Appended]

HOSTILE = [
    '"',
    "\\",
    '\\"',
    "NULL",
    "null",
    "",
    " ",
    "{}",
    "{a,b}",
    "'",
    "%s",
    "$1",
    "\x01\x02\n\t",
    "é\U0010ffff",
    ",",
]
TEXTS = st.one_of(st.sampled_from(HOSTILE), st.text(st.characters(codec="utf-8", exclude_characters="\x00")))
TOPICS = TEXTS.filter(bool)
JSONS = TEXTS.map(lambda text: _json(text))
METAS = st.one_of(st.none(), JSONS)
BODIES = st.one_of(
    st.builds(Body, TOPICS, st.integers(1, 2**15 - 1), JSONS, st.none(), METAS),
    st.builds(Body, TOPICS, st.just(1), st.none(), st.binary(), METAS),
)


def _json(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '{"t":"' + "".join(c if c >= " " else f"\\u{ord(c):04x}" for c in escaped) + '"}'


@pytest.fixture
def ways(log: Ledger, dsn: str) -> Iterator[tuple[Send, Send]]:
    """Our own connection, and a transaction of a user's."""

    with psycopg.connect(dsn, autocommit=True) as connection:

        def joined(appends: Sequence[Append]) -> Appended:
            with log.transaction(connection) as block:
                for append in appends:
                    block.add(append)
            assert block.appended is not None
            return block.appended

        yield log.append_all, joined


def _stored(log: Ledger, stream: str) -> list[tuple[Any, ...]]:
    return [(e.version, e.topic, e.schema, e.data, e.raw) for e in log.read(stream)]


@SOME
@given(bodies=st.lists(st.lists(BODIES, min_size=1, max_size=3), min_size=2, max_size=4), state=TEXTS)
def test_any_text_and_any_bytes_are_stored_as_they_are(
    log: Ledger, ways: tuple[Send, Send], bodies: list[list[Body]], state: str
) -> None:
    found = []
    for send in ways:
        names = [f"any/{next(_numbers)}" for _ in bodies]
        appends = [
            Append(name, events, NEW, status=state, state=_json(state), state_schema=7)
            for name, events in zip(names, bodies, strict=True)
        ]
        appended = send(appends)
        assert appended.versions == {name: len(events) for name, events in zip(names, bodies, strict=True)}
        assert appended.last_position - appended.first_position + 1 == sum(map(len, bodies))
        heads = [log.head(name) for name in names]
        assert all(head is not None and head.status == state for head in heads)
        found.append([_stored(log, name) for name in names])
    assert found[0] == found[1]
    assert [[(e.topic, e.schema, e.raw) for e in events] for events in bodies] == [
        [(topic, schema, raw) for _, topic, schema, _, raw in events] for events in found[0]
    ]


@pytest.mark.parametrize("nth", [0, 1])
@pytest.mark.parametrize(
    "body",
    [Body("a\0b", 1, "{}"), Body("a", 1, '"\0"'), Body("a", 1, None, b"x", '"\0"'), Body("a", 1, 5)],  # type: ignore[arg-type]
)
def test_nul_and_what_is_no_text_is_refused(
    log: Ledger, ways: tuple[Send, Send], nth: int, body: Body
) -> None:
    with pytest.raises(BadInput, match="must be text without NUL"):
        ways[nth]([Append("one", [Body("t", 1, "{}")]), Append("two", [body])])
    assert log.bound() == 0


@pytest.mark.parametrize(
    "expected", [NEW, Exact(3), Guard(frozenset({"off", 'a"b'})), Guard(token=8), Guard(frozenset())]
)
def test_a_refusal_says_the_same_both_ways(log: Ledger, ways: tuple[Send, Send], expected: Expected) -> None:
    some = [Body("t", 1, "{}")]
    log.append_all([Append('a"\\', [*some, *some], NEW, status="on", set_token=7), Append("b", some)])
    refused = []
    for send in ways:
        with pytest.raises(Refused) as caught:
            send([Append("b", some, EXISTS), Append('a"\\', some, expected)])
        refused.append((type(caught.value), str(caught.value)))
    assert refused[0] == refused[1]
    assert len(log.read("b")) == 1


def test_a_command_is_repeated_on_either_way(log: Ledger, dsn: str) -> None:
    appends = [Append("a", [Body("t", 1, "{}")] * 2, ANY), Append("b", [Body("t", 1, "{}")], ANY)]
    first = log.append_all(appends, command="c1")
    with psycopg.connect(dsn) as connection:
        with log.join(connection) as joined:
            for append in appends:
                joined.add(append)
            joined.carry(command="c1")
        connection.commit()
    again = log.append_all(appends, command="c1")
    assert again == joined.appended == first._replace(repeated=True)
