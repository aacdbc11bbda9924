"""`pledger runs`: flow runs and task runs from a shell; the import of a Prefect database."""
