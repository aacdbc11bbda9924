-- past.py: {schema} is the ledger's schema, {views} that of its views.

-- name: drop_past
-- Drop the schema of a position; returns whether it existed.
SELECT {schema}.drop_as_of(%(position)s::bigint);

-- name: pasts
-- The schemas of positions that this ledger's owner has, and whether each is whole.
SELECT n.nspname::text, substring(n.nspname FROM '[0-9]+$')::bigint, c.oid IS NOT NULL
  FROM pg_namespace n LEFT JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = 'as_of' AND c.relkind = 'r'
 WHERE n.nspowner = (SELECT oid FROM pg_roles WHERE rolname = %(owner)s)
   AND n.nspname ~ ('^' || %(log)s || '_as_of_[0-9]+$')
   AND (%(position)s::bigint IS NULL OR n.nspname = %(log)s || '_as_of_' || %(position)s::bigint)
 ORDER BY 2;

-- name: past_row
-- The description of a complete past.
SELECT position, asked_for, made_at, events, streams, unfolded, declared, definitions,
       (SELECT count(*) FROM {past}.parked) FROM {past}.as_of;
