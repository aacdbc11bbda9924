"""Import and export: JSON Lines, CSV and XES (IEEE 1849), streaming in both directions."""

from .export import Part, export_events
from .importer import import_file
from .source import Source
from .xes_read import Xes

__all__ = [
    "Part",
    "Source",
    "Xes",
    "export_events",
    "import_file",
]
