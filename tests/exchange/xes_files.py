"""XES logs for tests: one by hand, and any by chance; what a log says, read by another parser than ours."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from hypothesis import strategies as st

SMALL = """<?xml version="1.0" encoding="UTF-8" ?>
<!-- a comment -->
<log xes.version="1.0" xes.features="nested-attributes" xmlns="http://www.xes-standard.org/">
  <extension name="Concept" prefix="concept" uri="http://www.xes-standard.org/concept.xesext"/>
  <global scope="event"><string key="concept:name" value="UNKNOWN"/></global>
  <classifier name="Activity" keys="concept:name lifecycle:transition"/>
  <string key="source" value="by &quot;hand&quot; &amp; &#10; Börje"/>
  <float key="mean" value="7.50"><int key="least" value="007"/></float>
  <trace>
    <string key="concept:name" value="a/1"/>
    <boolean key="paid" value="true"/>
    <event>
      <string key="concept:name" value="Queued"/>
      <date key="time:timestamp" value="2010-03-31T16:59:42+02:00"/>
      <string key="org:resource" value="Frederic"/>
      <string key="lifecycle:transition" value="Awaiting"/>
    </event>
    <event>
      <string key="concept:name" value="Accepted"/>
      <date key="time:timestamp" value="2010-03-31T14:00:00.250Z"/>
      <list key="parts"><values><id key="p" value="x"/><float key="p" value="NaN"/></values></list>
      <container key="box"><container key="inner"><int key="n" value="1"/></container></container>
    </event>
  </trace>
  <trace>
    <string key="concept:name" value="a/1"/>
    <event><string key="note" value="nameless and timeless"/></event>
  </trace>
  <trace>
    <event><string value="first" key="concept:name"/></event>
  </trace>
  <trace/>
</log>
"""


def content(path: Path) -> Any:
    """What a log says: nested tuples of tag, attributes and children; nothing of how it is written."""
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rb") as file:
        return _of(ElementTree.parse(file).getroot())


def _of(element: ElementTree.Element) -> Any:
    return (element.tag, tuple(sorted(element.attrib.items())), tuple(map(_of, element)))


_TEXTS = st.text(
    st.one_of(
        st.sampled_from("<>&'\"\t\n\r é\U0001f600"),
        st.characters(codec="utf-8", exclude_categories=["Cc", "Cs", "Cn", "Co"]),
    ),
    max_size=8,
)
_LEAVES = st.one_of(
    st.tuples(st.sampled_from(["string", "id"]), _TEXTS),
    st.tuples(st.just("int"), st.sampled_from(["0", "-7", "+3", "007", str(2**70)])),
    st.tuples(st.just("float"), st.sampled_from(["1", "7.50", "1e-3", "-0.0", "NaN", "INF", "-INF"])),
    st.tuples(st.just("boolean"), st.sampled_from(["true", "false", "1"])),
    st.tuples(st.just("date"), st.sampled_from(["2010-03-31T16:59:42+02:00", "2010-03-31T14:59:42.5Z"])),
)
_KEYS = st.sampled_from(["a", "b b", "org:group", "Ü"])


def _element(
    kind: str, key: str, value: str | None, inside: list[ElementTree.Element]
) -> ElementTree.Element:
    element = ElementTree.Element(kind, {"key": key} | ({} if value is None else {"value": value}))
    element.extend(inside)
    return element


ATTRIBUTES = st.recursive(
    st.builds(lambda leaf, key: _element(leaf[0], key, leaf[1], []), _LEAVES, _KEYS),
    lambda inner: st.builds(
        lambda leaf, key, inside: _element(leaf[0], key, leaf[1], inside),
        st.one_of(_LEAVES, st.just(("list", None)), st.just(("container", None))),
        _KEYS,
        st.lists(inner, max_size=3),
    ),
    max_leaves=6,
)


@st.composite
def logs(draw: st.DrawFn) -> bytes:
    """A whole log."""
    log = ElementTree.Element("log", {"xes.version": "1.0", "xmlns": "http://www.xes-standard.org/"})
    ElementTree.SubElement(log, "extension", {"name": "Time", "prefix": "time", "uri": "x"})
    log.extend(draw(st.lists(ATTRIBUTES, max_size=2)))
    for _ in range(draw(st.integers(0, 4))):
        trace = ElementTree.SubElement(log, "trace")
        if draw(st.booleans()):
            name = draw(st.sampled_from(["", "1", "2", "a/b", "unnamed"]))
            trace.append(_element("string", "concept:name", name, []))
        trace.extend(draw(st.lists(ATTRIBUTES, max_size=2)))
        for _ in range(draw(st.integers(0, 3))):
            ElementTree.SubElement(trace, "event").extend(draw(st.lists(ATTRIBUTES, max_size=3)))
    return ElementTree.tostring(log, encoding="utf-8")
