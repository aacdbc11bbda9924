-- rebuild.py: {schema} is the ledger's schema, {views} that of its views.

-- name: log_end
-- The last position that was handed out, and the time of the last event.
SELECT coalesce(pg_sequence_last_value({sequence}), 0),
       (SELECT recorded_at FROM {schema}.events ORDER BY position DESC LIMIT 1);

-- name: try_builder
-- Take the lock of a view's only builder, for as long as this session lives.
SELECT pg_try_advisory_lock({schema}.lock_class()::integer + 65536, hashtext(%(view)s));

-- name: end_builder
-- Release the builder's lock.
SELECT pg_advisory_unlock({schema}.lock_class()::integer + 65536, hashtext(%(view)s));

-- name: one_snapshot
-- Make the transaction read only, with one snapshot from the next statement on.
SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY;

-- name: this_moment
-- The first statement of a transaction with one snapshot: it takes the snapshot.
SELECT pg_current_snapshot()::text;
