"""Views by the names that were given: what the caller may have meant, where one is not known."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING

from .session import Session

if TYPE_CHECKING:
    from projections.views.view import View


def views_for(session: Session, names: Sequence[str]) -> list[View]:
    """The views of these names. Raises UnknownView, with names that are near."""
    session.know_views()
    from ledger import UnknownView
    from projections.views.projector import views_named
    from projections.views.view import VIEWS

    try:
        return views_named(names)
    except UnknownView as error:
        raise with_near(error, error.view, VIEWS) from None


def with_near(error: Exception, name: str, known: Iterable[str]) -> Exception:
    """The error, with a note of names that are near."""
    if found := get_close_matches(name, list(known), n=3, cutoff=0.6):
        error.add_note(f"did you mean {' or '.join(found)}?")
    return error
