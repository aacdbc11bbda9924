"""
Reads an XES log element by element: only one event is in memory, not the log.

A document type is refused before it is read: XES has none, and entities are how malicious XML grows in memory
or reads other files. Elements that are not XES are kept whole, each like an attribute, with what else its tag
holds as a fifth item; the text in it is an item of its own:

    ["remark", null, null, [["#text", null, "see "], ["b", null, null, [["#text", null, "below"]], []]],
     [["author", "mina"]]]

Attributes come before what their log or trace holds; late ones are kept and reported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import tzinfo
from typing import Any, Final, NamedTuple, NoReturn
from xml.parsers import expat

from ..domain import canonical_json
from ..domain.names import stream_name
from ..domain.topics import TopicStatus
from ..errors import BadFile, BadInput
from .source import Arrival, Faults, Place, Source, aware, claimed, shown
from .xes import (
    ANY_TEXT,
    DECLARATIONS,
    NAME,
    RESOURCE,
    STRUCTURE,
    TEXT,
    TIME,
    TYPES,
    UNNAMED,
    Attribute,
    Topics,
    attribute,
    body_of,
    is_time,
    values_of,
)  # fmt: skip

Entry = list[Any]
MAX_LATE: Final = 1000
"""Maximum late attributes of a log or trace: those of a log are held in memory until its end."""


class Closed(list[Entry]):
    """Where no attribute can be."""

    def __init__(self, right: str) -> None:
        self._right = right

    def append(self, entry: Entry) -> None:
        """Refuse it. Raises BadInput."""
        raise BadInput(f"<{entry[0]}> comes too early: {self._right}")


class Late(list[Entry]):
    """Attributes that come after what they should come before."""

    def __init__(self, tell: Callable[[str], None], what: str, of: str) -> None:
        self._tell, self._what, self._of = tell, what, of

    def append(self, entry: Entry) -> None:
        """Accept it, and report that it is late. Raises BadInput if there are too many."""
        if len(self) >= MAX_LATE:
            raise BadInput(f"a {self._of} has more than {MAX_LATE} attributes after its {self._what}")
        self._tell(f"<{entry[0]}> comes after the {self._what} of its {self._of}")
        super().append(entry)


DEEPEST: Final = 90
"""Levels of elements; each costs two of a body."""


def foreign(tag: str, pairs: Sequence[str]) -> Attribute:
    """The element with what its tag says, and nothing in it yet."""
    given = dict(zip(pairs[::2], pairs[1::2], strict=True))
    return [
        tag, given.pop("key", None), given.pop("value", None), [], list(map(list, given.items())),
    ]  # fmt: skip


def read_within(parser: expat.XMLParserType, element: Attribute, depth: int) -> None:
    """Let the parser read all that is in an element into it, and go on as before when it ends."""
    before = parser.StartElementHandler, parser.EndElementHandler
    path = [element]

    def start(tag: str, pairs: Any) -> None:
        if depth + len(path) > DEEPEST:
            raise BadInput(f"elements are nested deeper than {DEEPEST} levels")
        inner = foreign(tag, pairs)
        path[-1][3].append(inner)
        path.append(inner)

    def end(_tag: str) -> None:
        path.pop()
        if not path:
            parser.StartElementHandler, parser.EndElementHandler = before
            parser.CharacterDataHandler = None

    def text(piece: str) -> None:
        inside = path[-1][3]
        if inside and inside[-1][0] == TEXT:
            inside[-1][2] += piece
        else:
            inside.append([TEXT, None, piece])

    parser.StartElementHandler, parser.EndElementHandler, parser.CharacterDataHandler = start, end, text


class Claims(NamedTuple):
    """The status, None if the event does not change it; and fields of Meta."""

    status: str | None
    fields: dict[str, Any]


def claims_of(
    attributes: Sequence[Attribute], states: Sequence[str], zone: tzinfo | None, tell: Callable[[str], None]
) -> Claims:
    """The claims in these attributes. tell: called with what cannot be used.

    Raises BadInput for a time that does not say its offset from UTC, where no zone is named.
    """
    values = values_of(attributes)
    named = [value for key in states if (value := values.get(key)) is not None]
    fields: dict[str, Any] = {}
    if (resource := values.get(RESOURCE)) is not None:
        fields["actor"] = resource
    if (time := values.get(TIME)) is not None and (at := _time(time, attributes, zone, tell)) is not None:
        fields["claimed_at"] = at
    return Claims(" / ".join(named) if named else None, fields)


def _time(
    time: str, attributes: Sequence[Attribute], zone: tzinfo | None, tell: Callable[[str], None]
) -> str | None:
    """The claimed time; None if it cannot be read or stored."""
    if not is_time(time):
        kind = next(attribute[0] for attribute in attributes if attribute[1] == TIME)
        if kind != "date":  # of a date it was reported already
            tell(f"{TIME} {time[:60]!r} is not a time: it must look like 2030-01-31T14:00:00+01:00")
        return None
    at = aware(time, zone, TIME)
    try:
        return claimed(at)
    except BadInput as error:
        tell(str(error))
        return None


PIECE: Final = 1 << 16
LONGEST: Final = 4 * canonical_json.MAX_BYTES
"""Maximum bytes of one event, or of everything before the first one."""

_INSIDE: Final = {("", "log"), ("log", "trace"), ("trace", "event"), *(("log", tag) for tag in DECLARATIONS)}


class Xes:
    """Reads XES; traces become streams `category/NAME`.

    log: the name of the log in the ledger, such as that of the file. states: the attributes of an event that
    say its state, joined with " / "; one that an event lacks is left out, and an event without any of them
    leaves the state as it is. zone: of times that do not say their offset from UTC. strict: refuse what is
    not XES. Otherwise it is kept as it was found, and `faults` counts it and names its places: an attribute
    without its key, with a wrong value or too late, an element of another kind. Raises BadFile.
    """

    insists = True

    def __init__(
        self, category: str, log: str, states: Sequence[str] = (NAME,), zone: tzinfo | None = None,
        *, strict: bool = False,
    ) -> None:  # fmt: skip
        self.topics, self.category, self.zone = Topics.of(category), category, zone
        self.log = stream_name(f"{category}.log", log)
        self.states = tuple(states)
        self.strict, self.faults = strict, Faults(strict=strict)
        self.statuses = {self.topics.recorded: TopicStatus(field="state")}

    def arrivals(self, source: Source) -> Iterator[Arrival]:
        """The facts of the log and its traces, in file order."""
        self.faults = Faults(strict=self.strict)
        reading = _Reading(self)
        try:
            while piece := source.unpacked.read(PIECE):
                yield from reading.feed(piece)
            yield from reading.feed(b"", last=True)
        except (expat.ExpatError, BadInput) as error:
            yield from reading.take()  # everything before it is valid
            if isinstance(error, BadInput):
                raise BadFile(source.name, shown(reading.place()), str(error)) from error
            wrong = f"it is not XML, or it is truncated ({expat.errors.messages[error.code]})"
            raise BadFile(source.name, f"line {error.lineno}", wrong) from error


class _Reading:
    """The parser's handlers: the elements that are open, each a list as in xes.py, and the facts ready.

    Handlers are called 25 times an event, so the two that see attributes only put lists into lists. Where
    attributes should not come any more, the list that takes them tells it.
    """

    def __init__(self, format: Xes) -> None:
        self.format = format
        self.parser = expat.ParserCreate()
        self.parser.ordered_attributes = True
        self.parser.StartDoctypeDeclHandler = _refuse_doctype
        self._path: list[Entry] = [["", None, None, Closed("XES begins with <log>")]]
        self.parser.StartElementHandler, self.parser.EndElementHandler = self._handlers()
        self._ready: list[Arrival] = []
        self._held = 0  # bytes of the file up to the last complete event
        self._began = False
        self._stream = ""
        self._late = Late(self._tell, "traces", "log")
        self.trace = self.event = self.events = self.version = 0

    def feed(self, piece: bytes, *, last: bool = False) -> list[Arrival]:
        """The facts that are complete with this piece."""
        self.parser.Parse(piece, last)
        self._held = 0 if self._ready else self._held + len(piece)
        if self._held > LONGEST:
            raise BadInput(f"one event, or the part before the first one, has more than {LONGEST} bytes")
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
        tell = self._tell
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
                into.append(attribute(tag, pairs, tell))
                is_leaf = True
            elif tag not in STRUCTURE and len(path) > 1:
                is_leaf = False
                into.append(self._foreign(tag, pairs))
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

    def _tell(self, wrong: str) -> None:
        self.format.faults.tell(self.place(), wrong)

    def _foreign(self, tag: str, pairs: list[str]) -> Entry:
        """An element that XES does not have begins."""
        self._tell(f"<{tag}> is not an element of XES")
        element = foreign(tag, pairs)
        read_within(self.parser, element, len(self._path))
        return element

    def _begin(self, tag: str, pairs: list[str]) -> Entry:
        """An element that is no attribute begins."""
        outer = self._path[-1]
        if (outer[0], tag) not in _INSIDE:
            place = f"in <{outer[0]}>" if outer[0] else "at the beginning"
            raise BadInput(f"<{tag}> {place} is not XES (IEEE 1849)")
        entry: Entry = [tag, [pairs[i : i + 2] for i in range(0, len(pairs), 2)], None, []]
        if tag == "trace":
            self._begin_log(outer)
            self.trace, self.event, self.version, self._stream = self.trace + 1, 0, 0, ""
        elif tag == "event":
            self._begin_trace(outer)
            self.event += 1
        elif tag in DECLARATIONS:
            if self._began:
                raise BadInput(
                    f"<{tag}> comes too late: XES puts the declarations of a log before its traces"
                )
            outer[3].append(entry)
        if pairs and tag in ("trace", "event"):
            self._tell(f"<{tag}> has {pairs[0]!r}: its attributes must be child elements")
        return entry

    def _finish(self, tag: str, entry: Entry) -> None:
        """An element that is no attribute ends."""
        if tag == "event":
            self.events += 1
            self._ready.append(self._recorded(entry[1], entry[3]))
        elif tag == "trace":
            self._begin_trace(entry)
            self._stream = ""
        elif tag == "log":
            self._begin_log(entry)
            ended: dict[str, Any] = {"traces": self.trace, "events": self.events}
            if self.format.faults.count:
                ended["faults"] = self.format.faults.count
            if self._late:
                ended["attributes"] = self._late
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
        log[3] = self._late
        self._ready.append(self._arrival(self.format.log, 1, self.format.topics.began, body))

    def _begin_trace(self, trace: Entry) -> None:
        """The trace's own fact, once, when its name is known; and what of it came after that."""
        if self._stream:
            if late := trace[3][:]:
                trace[3].clear()
                topic = self.format.topics.added
                self._ready.append(self._of_trace(topic, {"attributes": late}))
            return
        name = values_of(trace[3]).get(NAME)
        stream = stream_name(self.format.category, *((name,) if name else (UNNAMED, self.trace)))
        body = {"log": self.format.log, "nth": self.trace, "attributes": trace[3]}
        if trace[1]:
            body["xml"] = trace[1]
        trace[3] = Late(self._tell, "events", "trace")
        self._stream = stream
        self._ready.append(self._of_trace(self.format.topics.trace, body))

    def _recorded(self, said: list[list[str]], attributes: list[Attribute]) -> Arrival:
        claims = claims_of(attributes, self.format.states, self.format.zone, self._tell)
        body: dict[str, Any] = {"attributes": attributes}
        if said:
            body["xml"] = said
        if claims.status is not None:
            body["state"] = claims.status
        return self._of_trace(self.format.topics.recorded, body, claims.fields, claims.status)

    def _of_trace(
        self,
        topic: str,
        body: dict[str, Any],
        fields: dict[str, Any] | None = None,
        status: str | None = None,
    ) -> Arrival:
        """The next event of the trace's stream."""
        self.version += 1
        return self._arrival(self._stream, self.version, topic, body, fields, status)

    def _arrival(
        self, stream: str, version: int, topic: str, body: dict[str, Any],
        fields: dict[str, Any] | None = None, status: str | None = None,
    ) -> Arrival:  # fmt: skip
        data, trace = body_of(body), 0 if stream == self.format.log else self.trace
        return Arrival(self.place(), stream, version, topic, 1, data, None, fields or {}, status, trace)


def _nest(path: list[Entry]) -> list[Entry]:
    """The list of the attributes in the innermost attribute, made now."""
    if len(path) > DEEPEST:
        raise BadInput(f"elements are nested deeper than {DEEPEST} levels")
    if len(path[-1]) == 3:
        path[-1].append([])
    inside: list[Entry] = path[-1][3]
    return inside


def _refuse_doctype(*_: object) -> NoReturn:
    raise BadInput(
        "it declares a document type (<!DOCTYPE …>), which XES does not allow because it can do harm: "
        "remove it"
    )
