"""`pledger runs rotate-keys`: encrypt the values of blocks with a new key."""

from __future__ import annotations

import typer

from ..session import AsJson, session_of


def rotate_keys(context: typer.Context, as_json: AsJson = False) -> None:
    """Encrypt the values of all blocks with a new key.

    Where the keys are in a file (LEDGER_BLOCK_KEYS_FILE, else ~/.config/ledger/block-keys), a new key is
    made there first; where LEDGER_BLOCK_KEYS has them, the first one is used. Each block that changes is one
    event. Keep the older keys as long as the history shall be readable: only the present values are encrypted
    anew. Every server needs the new key before it can write blocks again.

    \b
    Examples:
      pledger runs rotate-keys

    JSON, one object: changed (how many blocks), key (the fingerprint of the newest key, from which nobody can
    make it).
    """
    session = session_of(context, as_json)
    with session.ledger() as log:
        from ledger.runs.blocks import Blocks

        blocks = Blocks(log)
        changed = blocks.rotate()
        newest = blocks.keys.newest().fingerprint
    session.print_fields({"changed": changed, "key": newest})
