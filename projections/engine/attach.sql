-- attach.py: {schema} is the ledger's schema, {views} that of its views.

-- name: act_as_owner
-- Effects are attached and detached by the ledger's owner.
SET ROLE {owner};

-- name: try_attacher
-- Take the lock for attaching or detaching a view, for as long as this session lives.
SELECT pg_try_advisory_lock({schema}.lock_class()::integer + 196608, hashtext(%(view)s));

-- name: open_writers
-- The transactions that have marked themselves as writers.
SELECT coalesce(array_agg(DISTINCT virtualtransaction), '{{}}') FROM pg_locks
 WHERE locktype = 'advisory' AND granted AND objsubid = 1 AND classid::bigint >> 16 = {schema}.lock_class()
   AND database = (SELECT oid FROM pg_database WHERE datname = current_database());

-- name: attach_view
-- Make every append call the function of a view.
SELECT {schema}.attach_effect(%(effect)s, %(routine)s);

-- name: detach_view
-- Stop appends from calling it; returns whether they did.
SELECT {schema}.detach_effect(%(effect)s);
