"""The shipped views of states: each is one Python module and one SQL file."""

from typing import TYPE_CHECKING

from ledger.lazy import lazily

if TYPE_CHECKING:
    from .activity import Activity
    from .in_state import InState
    from .progress import Progress
else:
    __getattr__ = lazily(__name__, {"activity": "Activity", "in_state": "InState", "progress": "Progress"})

__all__ = ["Activity", "InState", "Progress"]
