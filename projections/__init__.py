"""Projections: the follower of the log and, later, the views built from it."""
