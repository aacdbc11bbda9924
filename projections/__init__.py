"""Projections: the follower of the log and, later, the views built from it."""

from .follower import Follower

__all__ = ["Follower"]
