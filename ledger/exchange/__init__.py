"""Import and export: JSON Lines, CSV and XES (IEEE 1849), streaming in both directions."""

from .arriving import Arrival, Format, Source
from .csv_files import Dialect, EnvelopeCsv, Mapped, MappedCsv
from .exporting import Exported, Part, export_events, format_of
from .importing import Imported, import_file, told_moves, zone_named
from .json_lines import JsonLines
from .xes_reading import Xes

__all__ = [
    "Arrival",
    "Dialect",
    "EnvelopeCsv",
    "Exported",
    "Format",
    "Imported",
    "JsonLines",
    "Mapped",
    "MappedCsv",
    "Part",
    "Source",
    "Xes",
    "export_events",
    "format_of",
    "import_file",
    "told_moves",
    "zone_named",
]
