"""The Prefect-compatible API: `pledger serve --prefect`. Unmodified Prefect clients work on the ledger."""
