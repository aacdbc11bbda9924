"""Builds: stages declared in a file, run where something changed, recorded in the ledger."""

__all__: list[str] = []
