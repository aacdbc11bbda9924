"""
A domain: streams, events, sets, machines and views that belong together, and are announced together.

    PAYMENTS = Domain("payments", __name__, sets=[LINES], views=["payments_views"])

One object in the module that defines the classes is enough: classes belong to the domain because they are
defined in its packages. The whole domain is announced to a ledger before this process appends the domain's
first event (`ledger.log.announce`), and each follower announces all domains that it has imported. So views
have the statuses and sets of a domain that only another program has imported. Classes outside every domain
belong to OTHERS, which needs no object and announces each topic when it is first used.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TypeVar

from .known import KNOWN
from .names import checked_topic
from .sets import UnitSet
from .stream import Stream
from .topics import TopicStatus, topic_status

if TYPE_CHECKING:
    from .event import Event

K = TypeVar("K")


class Domain:
    """What a domain announces, in process and to a ledger.

    packages: the modules and packages that define its classes; by default none. sets: the sets that are
    counted. views: the names of the modules that define its views, because these may be in another wing,
    which imports this one; `load_views` imports them.
    Raises TypeError where another domain has the name, or counts a category otherwise.
    """

    def __init__(
        self, name: str, *packages: str, sets: Iterable[UnitSet] = (), views: Iterable[str] = ()
    ) -> None:
        self.name, self.packages, self.views = name, packages, tuple(views)
        self.sets: dict[str, UnitSet] = {}
        other = KNOWN.domains.get(name, self)
        if other.packages != packages:
            raise TypeError(f"a domain is named {name!r} already, in {', '.join(other.packages)}")
        self.count(*sets)
        KNOWN.domains[name] = self

    def __repr__(self) -> str:
        return f"<Domain {self.name or 'of what names none'}>"

    def count(self, *sets: UnitSet) -> None:
        """Add sets. Raises TypeError where the units of a category are already counted differently."""
        others = [domain for name, domain in KNOWN.domains.items() if name != self.name]
        for one in sets:
            if any(domain.sets.get(one.category, one) != one for domain in (self, *others)):
                raise TypeError(f"the units of category {one.category!r} are counted by another set already")
            self.sets[one.category] = one

    def owns(self, kind: type[Any]) -> bool:
        """Whether a class belongs to this domain."""
        return domain_of(kind) is self

    @property
    def is_shipped(self) -> bool:
        """Whether this package contains it: every follower imports and announces it."""
        return any(_within(package, _PACKAGE) for package in self.packages)

    @property
    def events(self) -> dict[str, type[Event]]:
        """Its event classes, by topic and by each former one."""
        return self._own(KNOWN.events)

    @property
    def streams(self) -> dict[str, type[Stream[Any, Any]]]:
        """Its stream classes, by category."""
        return self._own(KNOWN.streams)

    @property
    def machines(self) -> dict[str, Any]:
        """Its state machines, by name."""
        return self._own(KNOWN.machines)

    def _own(self, kinds: Mapping[str, type[K]]) -> dict[str, type[K]]:
        """Those of the classes that belong to this domain."""
        owners = _owners()
        return {name: kind for name, kind in kinds.items() if _owner(kind, owners) is self}

    @property
    def statuses(self) -> dict[str, TopicStatus]:
        """The status that each of its topics leads to, of those that lead to one."""
        return {topic: status for topic, kind in self.events.items() if (status := topic_status(kind))}

    def load_views(self) -> None:
        """Import the modules that define its views."""
        for module in self.views:
            importlib.import_module(module)


def announcement(
    domains: Iterable[Domain], statuses: Mapping[str, TopicStatus] = MappingProxyType({})
) -> dict[str, list[Any]]:
    """The announcement of domains and further topics, in the form that the SQL function `announce` reads.

    Raises BadName.
    """
    sets: dict[str, UnitSet] = {}
    for domain in domains:
        statuses = {**domain.statuses, **statuses}
        sets |= domain.sets
    return {
        "topics": [[checked_topic(topic), *status] for topic, status in sorted(statuses.items())],
        "sets": [one.row() for _, one in sorted(sets.items())],
    }


def domain_of(kind: type[Any]) -> Domain:
    """The domain that a class belongs to: that of the innermost package around it, else OTHERS."""
    return _owner(kind, _owners())


def _owners() -> dict[str, Domain]:
    """The domain of each package that one names; the first of two that name the same."""
    domains = reversed(KNOWN.domains.values())
    return {package: domain for domain in domains for package in domain.packages}


def _owner(kind: type[Any], owners: Mapping[str, Domain]) -> Domain:
    """The domain of the innermost package around a class: its module, and the packages around that."""
    package = kind.__module__
    while package and package not in owners:
        package = package.rpartition(".")[0]
    return owners.get(package, OTHERS)


def _within(module: str, package: str) -> bool:
    return module == package or module.startswith(f"{package}.")


_PACKAGE: Final = __package__.partition(".")[0]
OTHERS: Final = Domain("")
"""The domain of all classes that belong to no other domain."""
