"""What `pledger doctor` finds: each check a sentence, and a cure where something is wrong."""

from .checks import Check, Verdict
from .examination import examine

__all__ = ["Check", "Verdict", "examine"]
