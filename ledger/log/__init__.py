"""The log: append, read, open, join; the locks of scopes; and what a ledger is in its database."""
