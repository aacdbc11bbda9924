"""Builds that run: build files, their graphs, what is in files, and the content cache."""

__all__: list[str] = []
