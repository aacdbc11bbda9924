-- Statements in the user's transaction, for appends that commit with it.

-- name: set_mark
-- Store a text until the end of the transaction; a rollback to a savepoint restores the former one.
SELECT set_config(%(setting)s::text, %(value)s::text, true);

-- name: mark
-- The stored text of the transaction.
SELECT current_setting(%(setting)s::text, true);

-- name: isolation
-- The isolation level of the transaction.
SELECT current_setting('transaction_isolation');
