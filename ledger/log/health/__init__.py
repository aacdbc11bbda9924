"""The checks of `pledger doctor`: each returns a sentence, and a remedy where something is wrong."""

from .checks import Check, Verdict
from .examine import examine

__all__ = ["Check", "Verdict", "examine"]
