"""How users reach the ledger: the command line."""
