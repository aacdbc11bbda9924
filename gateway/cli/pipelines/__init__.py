"""`pledger lsm …`, `pledger psoct …` and your own pipelines: the same commands, from the declaration."""
