"""`pledger lsm …` and `pledger psoct …`: the same commands; declaration.py says what differs."""
