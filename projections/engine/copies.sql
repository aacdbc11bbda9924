-- copies.py: {schema} is the ledger's schema, {views} that of its views.

-- name: live_copy
-- The copy of a view that is read.
SELECT c.view, c.copy, c.position, c.events, c.definition, c.building, c.indexed, v.inline
  FROM {schema}.views v JOIN {schema}.view_copies c ON c.view = v.name AND c.copy = v.live
 WHERE v.name = %(view)s;

-- name: copy
-- One copy of a view.
SELECT c.view, c.copy, c.position, c.events, c.definition, c.building, c.indexed, v.inline AND v.live = c.copy
  FROM {schema}.views v JOIN {schema}.view_copies c ON c.view = v.name
 WHERE c.view = %(view)s AND c.copy = %(copy)s;

-- name: copies_of
-- All copies of a view, by number.
SELECT c.view, c.copy, c.position, c.events, c.definition, c.building, c.indexed, v.inline AND v.live IS NOT DISTINCT FROM c.copy
  FROM {schema}.views v JOIN {schema}.view_copies c ON c.view = v.name
 WHERE c.view = %(view)s ORDER BY c.copy;

-- name: know_view
-- Register a view of this name, once. The row is locked until the transaction ends.
INSERT INTO {schema}.views AS v (name) VALUES (%(view)s)
ON CONFLICT (name) DO UPDATE SET name = excluded.name RETURNING live, kept, last_copy;

-- name: add_copy
-- Add a copy, at the beginning of the log; it contains all that is announced, as it has passed no event.
WITH numbered AS (UPDATE {schema}.views SET last_copy = last_copy + 1 WHERE name = %(view)s RETURNING last_copy)
INSERT INTO {schema}.view_copies (view, copy, definition, made_at, updated_at, announced)
SELECT %(view)s, last_copy, %(definition)s, clock_timestamp(), clock_timestamp(),
       {schema}.last_announced() FROM numbered
RETURNING copy;

-- name: has_fed_from
-- Whether a view of this ledger was ever fed.
SELECT EXISTS (SELECT FROM pg_tables WHERE schemaname = %(views)s AND tablename = 'fed_from');

-- name: fed_elsewhere
-- The other ledger whose events a copy contains, if any.
SELECT f.ledger FROM {views}.fed_from f JOIN {schema}.identity i ON f.ledger <> i.ledger
 WHERE f.view = %(view)s AND f.copy = %(copy)s;

-- name: remove_copy
-- Delete the row of a copy, whose tables are dropped with it.
DELETE FROM {schema}.view_copies WHERE view = %(view)s AND copy = %(copy)s;

-- name: is_wanted
-- A row if a copy is live or kept.
SELECT true FROM {schema}.views WHERE name = %(view)s AND %(copy)s IN (live, kept);

-- name: switch
-- Make another copy live; the previous one is kept.
UPDATE {schema}.views SET kept = live, live = %(copy)s WHERE name = %(view)s AND live IS DISTINCT FROM %(copy)s;

-- name: finish_copy
-- Mark a copy as built.
UPDATE {schema}.view_copies SET building = false WHERE view = %(view)s AND copy = %(copy)s RETURNING copy;

-- name: index_copy
-- Mark all indexes of a copy as created.
UPDATE {schema}.view_copies SET indexed = true WHERE view = %(view)s AND copy = %(copy)s;

-- name: kept_copy
-- The copy that was read before.
SELECT kept FROM {schema}.views WHERE name = %(view)s;

-- name: lock_copy
-- Lock a copy at its position: other processes that move it wait for the end of this transaction.
SELECT position FROM {schema}.view_copies WHERE view = %(view)s AND copy = %(copy)s FOR UPDATE;

-- name: next_batch
-- How far to go, and how far is safe.
SELECT last, many, safe FROM {schema}.next_batch(%(after)s::bigint, %(limit)s::integer, %(known)s::bigint);

-- name: parked_in
-- How many streams of a copy are parked.
SELECT count(*) FROM {schema}.view_parked WHERE view = %(view)s AND copy = %(copy)s;

-- name: columns
-- The columns of a table: name, type, whether it is NOT NULL.
SELECT attname::text, format_type(atttypid, atttypmod), attnotnull
  FROM pg_attribute WHERE attrelid = %(table)s::regclass AND attnum > 0 AND NOT attisdropped ORDER BY attnum;

-- name: missing_tables
-- Those of the given tables of copies that are missing, or no longer a partition of the table of all copies.
SELECT t.name FROM unnest(%(tables)s::text[]) WITH ORDINALITY t (name, nth)
 WHERE NOT EXISTS (SELECT FROM pg_inherits WHERE inhrelid = to_regclass(t.name)) ORDER BY t.nth;

-- name: forget_kept
-- Stop keeping the copy that was read before.
UPDATE {schema}.views SET kept = NULL WHERE name = %(view)s AND kept = %(copy)s;

-- name: wholes
-- The tables that hold all copies of one shape of a view's table, the newest first.
SELECT c.relname::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
 WHERE n.nspname = %(views)s AND c.relkind = 'p' AND c.relname ~ ('^' || %(table)s || '_[0-9]+_copies$') ORDER BY c.oid DESC;

-- name: shown
-- The comment on the view that readers see, and the table of all copies that a copy's table is a partition
-- of.
SELECT obj_description(to_regclass(%(shown)s), 'pg_class'), w.relname::text
  FROM pg_inherits i JOIN pg_class w ON w.oid = i.inhparent WHERE i.inhrelid = %(leaf)s::regclass;

-- name: analyze
-- Analyze columns of a table.
ANALYZE {table} ({columns});

-- name: last_announced
-- The number of the last declaration.
SELECT {schema}.last_announced();

-- name: projecting_session
-- Prepare a session for writing views. Its commits need not wait for the disk: what a crash removes from a
-- view it removes together with its position. Each statement sees what was committed before it. The end of a
-- client is noticed also while a statement runs, if the server's system supports it, so that its locks are
-- released soon.
SELECT set_config('synchronous_commit', 'off', false), set_config('timezone', 'UTC', false),
       set_config('default_transaction_isolation', 'read committed', false),
       set_config('statement_timeout', '0', false),
       set_config('client_connection_check_interval', CASE WHEN version() ~ 'linux|darwin|bsd' THEN '1s' ELSE '0' END,
                  false);

-- name: act_as_projector
-- Make the projector's role the owner of what this session creates, for any connected login.
SET ROLE {projector};

-- name: short_lock
-- Set the lock timeout of this transaction, in milliseconds, and make its commit durable.
SELECT set_config('lock_timeout', %(ms)s::text || 'ms', true), set_config('synchronous_commit', 'on', true);

-- name: drop_table
-- Drop a table of a copy.
DROP TABLE IF EXISTS {table};

-- name: number_copy
-- Mark each row of a copy's table with its copy; only the column's default is stored.
ALTER TABLE {leaf} ADD COLUMN copy integer NOT NULL DEFAULT {number};

-- name: check_copy
-- Declare it to the planner, and for attaching the table, as a constraint.
ALTER TABLE {leaf} ADD CONSTRAINT {check} CHECK (copy = {number});

-- name: make_whole
-- The table that holds all copies of one shape.
CREATE TABLE IF NOT EXISTS {whole} (LIKE {leaf}) PARTITION BY LIST (copy);

-- name: take_in
-- Attach a copy; readers of the other copies do not wait.
ALTER TABLE {whole} ATTACH PARTITION {leaf} FOR VALUES IN ({number});

-- name: open_copy
-- Readers may look at it.
GRANT SELECT ON {leaf}, {whole} TO {reader};

-- name: show
-- The view that readers see by name: the rows of the live copy. The other partitions are pruned at run time.
CREATE OR REPLACE VIEW {shown} AS
SELECT {names} FROM {whole} WHERE copy = (SELECT live FROM {ledger}.views WHERE name = {view});

-- name: unshow
-- Drop the view of this name, so that it can get other columns, with what depends on it, which is created
-- anew.
DROP VIEW {shown} CASCADE;

-- name: shown_elsewhere
-- The views outside the schema of views that depend on a view, directly or not.
WITH RECURSIVE above AS (
    SELECT to_regclass(%(shown)s)::oid AS view
    UNION
    SELECT r.ev_class FROM above
      JOIN pg_depend d ON d.refclassid = 'pg_class'::regclass AND d.refobjid = above.view
      JOIN pg_rewrite r ON d.classid = 'pg_rewrite'::regclass AND r.oid = d.objid)
SELECT above.view::regclass::text FROM above JOIN pg_class c ON c.oid = above.view
 WHERE c.relnamespace <> to_regnamespace(quote_ident(%(views)s)) ORDER BY 1;

-- name: open_shown
-- Readers may look at it.
GRANT SELECT ON {shown} TO {reader};

-- name: note_shown
-- Record in its comment what it shows and by which definition.
COMMENT ON VIEW {shown} IS {note};

-- name: batch_upto
-- The last event between a position and another that is safe to read, and how many there are.
SELECT max(position), count(*)
  FROM (SELECT position FROM {schema}.events WHERE position > %(after)s AND position <= %(upto)s
         ORDER BY position LIMIT %(limit)s) e;

-- name: wait_shortly
-- Wait for locks no longer than this, until the transaction ends.
SELECT set_config('lock_timeout', %(ms)s::text || 'ms', true);

-- name: inline_of
-- Whether appends keep a view, and which copy is read.
SELECT inline, live FROM {schema}.views WHERE name = %(view)s;

-- name: set_inline
-- Let appends keep a view, or stop that. The row is written even if nothing changes, so that a transaction
-- with an older snapshot is refused instead of acting on the old row.
UPDATE {schema}.views SET inline = %(inline)s WHERE name = %(view)s;

-- name: news_of_statuses
-- Whether something was announced that the live copy does not contain.
SELECT c.announced < {schema}.last_announced()
  FROM {schema}.views v JOIN {schema}.view_copies c ON c.view = v.name AND c.copy = v.live WHERE v.name = %(view)s;
