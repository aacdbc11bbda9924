"""Reads an XES log element by element: what one event needs is in memory, and not the log.

A document type is refused before anything in it is looked at: XES has none, and entities are how XML that
means harm grows in memory or reads other files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import tzinfo
from typing import Any, Final, NoReturn
from xml.parsers import expat

from .. import canon
from ..errors import BadFile, BadInput
from ..names import stream_name
from ..store.declaring import Move
from .arriving import Arrival, Place, Source, aware, claimed, shown
from .xes import (
    ANY_TEXT,
    DECLARATIONS,
    NAME,
    RESOURCE,
    TIME,
    TYPES,
    UNNAMED,
    Attribute,
    Topics,
    attribute,
    body_of,
    values_of,
)  # fmt: skip

PIECE: Final = 1 << 16
LONGEST: Final = 4 * canon.MAX_BYTES
"""Bytes of one event, or of what stands before the first one, at most."""
DEEPEST: Final = 90
"""Levels of elements; each costs two of a body."""

Entry = list[Any]
_INSIDE: Final = {("", "log"), ("log", "trace"), ("trace", "event"), *(("log", tag) for tag in DECLARATIONS)}


class Xes:
    """Reads XES; traces become streams `category/NAME`.

    log: the name of the log in the ledger, such as that of the file. states: the attributes of an event that
    say its state, joined with " / "; one that an event lacks is left out, and an event without any of them
    leaves the state as it is. zone: of times that do not say their offset from UTC. Raises BadFile.
    """

    insists = True

    def __init__(
        self, category: str, log: str, states: Sequence[str] = (NAME,), zone: tzinfo | None = None
    ) -> None:
        self.topics, self.category, self.zone = Topics.of(category), category, zone
        self.log = stream_name(f"{category}.log", log)
        self.states = tuple(states)
        self.options: tuple[str, ...] = ("xes", category, self.log, str(zone), *states)
        self.moves = {self.topics.recorded: Move(field="state")}

    def arrivals(self, source: Source) -> Iterator[Arrival]:
        """The log's facts, and those of its traces, in the order of the file."""
        reading = _Reading(self)
        try:
            while piece := source.unpacked.read(PIECE):
                yield from reading.feed(piece)
            yield from reading.feed(b"", last=True)
        except (expat.ExpatError, BadInput) as error:
            yield from reading.take()  # what stands before it is right
            if isinstance(error, BadInput):
                raise BadFile(source.name, shown(reading.place()), str(error)) from error
            wrong = f"it is not XML, or it is cut off ({expat.errors.messages[error.code]})"
            raise BadFile(source.name, f"line {error.lineno}", wrong) from error


class _Reading:
    """The parser's handlers: the elements that are open, each a list as in xes.py, and the facts ready.

    Handlers are called 25 times an event, so the two that see attributes only put lists into lists. Where
    attributes must not come any more, the list that would take them refuses them.
    """

    def __init__(self, format: Xes) -> None:
        self.format = format
        self.parser = expat.ParserCreate()
        self.parser.ordered_attributes = True
        self.parser.StartDoctypeDeclHandler = _refuse_doctype
        self._path: list[Entry] = [["", None, None, _Closed("XES begins with <log>")]]
        self.parser.StartElementHandler, self.parser.EndElementHandler = self._handlers()
        self._ready: list[Arrival] = []
        self._held = 0  # bytes of the file up to the last complete event
        self._began = False
        self._stream = ""
        self.trace = self.event = self.events = 0

    def feed(self, piece: bytes, *, last: bool = False) -> list[Arrival]:
        """The facts that are complete with this piece."""
        self.parser.Parse(piece, last)
        self._held = 0 if self._ready else self._held + len(piece)
        if self._held > LONGEST:
            raise BadInput(f"one event, or what stands before the first, has more than {LONGEST} bytes")
        return self.take()

    def take(self) -> list[Arrival]:
        """The facts that are complete."""
        ready, self._ready = self._ready, []
        return ready

    def place(self) -> Place:
        """Where the parser is: `trace 5, event 2, line 88`."""
        line = ("line", self.parser.CurrentLineNumber)
        if self._stream:
            return ("trace", self.trace, "event", self.event, *line)
        return ("trace", self.trace, *line) if self.trace else line

    def _handlers(self) -> tuple[Callable[[str, list[str]], None], Callable[[str], None]]:
        path, begin, finish, push, pop = (
            self._path,
            self._begin,
            self._finish,
            self._path.append,
            self._path.pop,
        )
        into: list[Entry] = path[-1][3]
        is_leaf = False  # whether the last of `into` is an attribute that is still open

        def start(tag: str, pairs: list[str]) -> None:
            nonlocal into, is_leaf
            if is_leaf:
                push(into[-1])
                into = _nest(path)
            if tag in ANY_TEXT and len(pairs) == 4 and pairs[0] == "key" and pairs[2] == "value":
                into.append([tag, pairs[1], pairs[3]])
                is_leaf = True
            elif tag in TYPES:
                into.append(attribute(tag, pairs))
                is_leaf = True
            else:
                is_leaf = False
                push(begin(tag, pairs))
                into = path[-1][3]

        def end(tag: str) -> None:
            nonlocal into, is_leaf
            if is_leaf:
                is_leaf = False
                return
            entry = pop()
            if tag not in TYPES:
                finish(tag, entry)
            into = path[-1][3]

        return start, end

    def _begin(self, tag: str, pairs: list[str]) -> Entry:
        """An element that is no attribute begins."""
        outer = self._path[-1]
        if (outer[0], tag) not in _INSIDE:
            place = f"in <{outer[0]}>" if outer[0] else "at the beginning"
            raise BadInput(f"<{tag}> {place} is not XES (IEEE 1849)")
        if pairs and tag in ("trace", "event"):
            raise BadInput(
                f"<{tag} {pairs[0]}=…> is not XES: what is known of it stands in elements below it"
            )
        entry: Entry = [tag, [pairs[i : i + 2] for i in range(0, len(pairs), 2)], None, []]
        if tag == "trace":
            self._begin_log(outer)
            self.trace, self.event, self._stream = self.trace + 1, 0, ""
        elif tag == "event":
            self._begin_trace(outer)
            self.event += 1
        elif tag in DECLARATIONS:
            outer[3].append(entry)
        return entry

    def _finish(self, tag: str, entry: Entry) -> None:
        """An element that is no attribute ends."""
        if tag == "event":
            self.events += 1
            self._ready.append(self._recorded(entry[3]))
        elif tag == "trace":
            self._begin_trace(entry)
            self._stream = ""
        elif tag == "log":
            self._begin_log(entry)
            ended = {"traces": self.trace, "events": self.events}
            self._ready.append(self._arrival(self.format.log, 2, self.format.topics.ended, ended))

    # Facts

    def _begin_log(self, log: Entry) -> None:
        """The log's own fact, once, when all that stands before its traces was read."""
        if self._began:
            return
        self._began = True
        body = {
            "xml": log[1],
            "declarations": [[entry[0], entry[1], entry[3]] for entry in log[3] if entry[0] in DECLARATIONS],
            "attributes": [entry for entry in log[3] if entry[0] not in DECLARATIONS],
        }
        log[3] = _Closed("XES puts the attributes and declarations of a log before its traces")
        self._ready.append(self._arrival(self.format.log, 1, self.format.topics.began, body))

    def _begin_trace(self, trace: Entry) -> None:
        """The trace's own fact, once, when its name is known."""
        if self._stream:
            return
        name = values_of(trace[3]).get(NAME)
        stream = stream_name(self.format.category, *((name,) if name else (UNNAMED, self.trace)))
        body = {"log": self.format.log, "nth": self.trace, "attributes": trace[3]}
        trace[3] = _Closed("XES puts the attributes of a trace before its events")
        self._ready.append(self._arrival(stream, 1, self.format.topics.trace, body))
        self._stream = stream

    def _recorded(self, attributes: list[Attribute]) -> Arrival:
        values = values_of(attributes)
        body: dict[str, Any] = {"attributes": attributes}
        status = None
        if named := [value for key in self.format.states if (value := values.get(key)) is not None]:
            status = body["state"] = " / ".join(named)
        fields: dict[str, Any] = {}
        if (resource := values.get(RESOURCE)) is not None:
            fields["actor"] = resource
        if (time := values.get(TIME)) is not None:
            fields["claimed_at"] = claimed(aware(time, self.format.zone, TIME))
        topic = self.format.topics.recorded
        return self._arrival(self._stream, self.event + 1, topic, body, fields, status)

    def _arrival(
        self, stream: str, version: int, topic: str, body: dict[str, Any],
        fields: dict[str, Any] | None = None, status: str | None = None,
    ) -> Arrival:  # fmt: skip
        data, trace = body_of(body), 0 if stream == self.format.log else self.trace
        return Arrival(self.place(), stream, version, topic, 1, data, None, fields or {}, status, trace)


class _Closed(list[Entry]):
    """Attributes that are complete."""

    def __init__(self, right: str) -> None:
        self._right = right

    def append(self, entry: Entry) -> None:
        raise BadInput(f"<{entry[0]}> comes too late or too early: {self._right}")


def _nest(path: list[Entry]) -> list[Entry]:
    """The list of the attributes in the innermost attribute, made now."""
    if len(path) > DEEPEST:
        raise BadInput(f"elements are nested deeper than {DEEPEST} levels")
    path[-1].append([])
    inside: list[Entry] = path[-1][3]
    return inside


def _refuse_doctype(*_: object) -> NoReturn:
    raise BadInput(
        "it declares a document type (<!DOCTYPE …>), which XES does not have and which can be used to do "
        "harm: remove it"
    )
