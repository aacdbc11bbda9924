-- travel.py: {schema} is the ledger's schema, {views} that of its views.

-- name: hold_past
-- Take the lock for making or dropping the schema of a position, for as long as this session lives; waits for
-- it.
SELECT pg_advisory_lock({schema}.lock_class()::integer + 262144, hashtext(%(position)s::bigint::text));

-- name: leave_past
-- Release that lock.
SELECT pg_advisory_unlock({schema}.lock_class()::integer + 262144, hashtext(%(position)s::bigint::text));
