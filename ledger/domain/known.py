"""What this process has imported: the classes of all domains, by their names in the log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from .domain import Domain
    from .event import Event
    from .stream import Stream


class Known:
    """The imported classes, each registered when it is defined, and the domains.

    events: by topic and by each former topic. streams: by category; a later class replaces an earlier one of
    the same category. machines, views, domains: by name.
    """

    def __init__(self) -> None:
        self.events: dict[str, type[Event]] = {}
        self.streams: dict[str, type[Stream[Any, Any]]] = {}
        self.machines: dict[str, Any] = {}
        self.views: dict[str, Any] = {}
        self.domains: dict[str, Domain] = {}

    def modules(self) -> list[str]:
        """The modules that define the streams and events; another process imports them to read them."""
        return sorted({kind.__module__ for kind in (*self.streams.values(), *self.events.values())})


KNOWN: Final = Known()
