-- Copies of views and how far they are, by name. {schema} is the ledger's schema, {views} that of its views.

-- name: all_views
-- What is known of the views and of their copies that are read, with the number of parked streams.
SELECT v.name, v.live, v.kept, v.inline, c.position, c.events, c.definition, c.updated_at,
       (SELECT count(*) FROM {schema}.view_parked p WHERE p.view = v.name AND p.copy = v.live),
       (SELECT array_agg(b.copy ORDER BY b.copy) FROM {schema}.view_copies b WHERE b.view = v.name AND b.building)
  FROM {schema}.views v LEFT JOIN {schema}.view_copies c ON c.view = v.name AND c.copy = v.live
 ORDER BY v.name;

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
-- A view of this name is there; made once. The row is locked until the transaction ends.
INSERT INTO {schema}.views AS v (name) VALUES (%(view)s)
ON CONFLICT (name) DO UPDATE SET name = excluded.name RETURNING live, kept, last_copy;

-- name: add_copy
-- A further copy, at the beginning of the log; it knows all moves that are declared, as nothing is behind it.
WITH numbered AS (UPDATE {schema}.views SET last_copy = last_copy + 1 WHERE name = %(view)s RETURNING last_copy)
INSERT INTO {schema}.view_copies (view, copy, definition, made_at, updated_at, moves)
SELECT %(view)s, last_copy, %(definition)s, clock_timestamp(), clock_timestamp(),
       {schema}.last_declared() FROM numbered
RETURNING copy;

-- name: remove_copy
-- Forget a copy, whose tables go with it.
DELETE FROM {schema}.view_copies WHERE view = %(view)s AND copy = %(copy)s;

-- name: is_wanted
-- A row where a copy is read or kept.
SELECT true FROM {schema}.views WHERE name = %(view)s AND %(copy)s IN (live, kept);

-- name: switch
-- Let readers see another copy; the one before is kept.
UPDATE {schema}.views SET kept = live, live = %(copy)s WHERE name = %(view)s AND live IS DISTINCT FROM %(copy)s;

-- name: finish_copy
-- The copy is being built no more.
UPDATE {schema}.view_copies SET building = false WHERE view = %(view)s AND copy = %(copy)s RETURNING copy;

-- name: index_copy
-- All indexes of the copy are made.
UPDATE {schema}.view_copies SET indexed = true WHERE view = %(view)s AND copy = %(copy)s;

-- name: kept_copy
-- The copy that was read before.
SELECT kept FROM {schema}.views WHERE name = %(view)s;

-- name: lock_copy
-- Hold a copy where it is: who wants to move it waits for the end of this transaction.
SELECT position FROM {schema}.view_copies WHERE view = %(view)s AND copy = %(copy)s FOR UPDATE;

-- name: next_batch
-- How far to go, and how far is safe.
SELECT last, many, safe FROM {schema}.next_batch(%(after)s::bigint, %(limit)s::integer, %(known)s::bigint);

-- name: advance_copy
-- Move a copy, in the transaction that applies what lies between.
SELECT {schema}.advance_copy(%(view)s::text, %(copy)s::integer, %(after)s::bigint, %(upto)s::bigint, %(many)s::bigint,
                             %(moves)s::boolean, %(live)s::boolean);

-- name: know_moves
-- A copy knows what was declared up to a number.
UPDATE {schema}.view_copies SET moves = %(number)s
 WHERE view = %(view)s AND copy = %(copy)s;

-- name: park_event
-- A stream is not followed any more from an event on that failed; the event as it is recorded is kept with it.
INSERT INTO {schema}.view_parked AS p (view, copy, stream, position, error, event, parked_at)
SELECT %(view)s, %(copy)s, %(stream)s, %(position)s, %(error)s,
       (SELECT to_jsonb(e) FROM {schema}.events e WHERE e.position = %(position)s), clock_timestamp()
ON CONFLICT (view, copy, stream) DO UPDATE
   SET position = excluded.position, error = excluded.error, event = excluded.event, tries = p.tries + 1,
       parked_at = excluded.parked_at;

-- name: unpark
-- Follow a stream again.
DELETE FROM {schema}.view_parked WHERE view = %(view)s AND copy = %(copy)s AND stream = %(stream)s;

-- name: parked
-- The parked streams of the copies that are read, of one view or of all, the first event first.
SELECT p.view, p.copy, p.stream, p.position, p.error, p.event, p.parked_at, p.tries
  FROM {schema}.view_parked p JOIN {schema}.views v ON v.name = p.view AND v.live = p.copy
 WHERE %(view)s::text IS NULL OR p.view = %(view)s
 ORDER BY p.view, p.position;

-- name: parked_in
-- How many streams of a copy are parked.
SELECT count(*) FROM {schema}.view_parked WHERE view = %(view)s AND copy = %(copy)s;

-- name: log_end
-- The last position that was handed out, and the time of the last event.
SELECT coalesce(pg_sequence_last_value({sequence}), 0),
       (SELECT recorded_at FROM {schema}.events ORDER BY position DESC LIMIT 1);

-- name: try_builder
-- Become the only builder of a view, for as long as this session lives.
SELECT pg_try_advisory_lock({schema}.lock_class()::integer + 65536, hashtext(%(view)s));

-- name: end_builder
-- Be its builder no more.
SELECT pg_advisory_unlock({schema}.lock_class()::integer + 65536, hashtext(%(view)s));

-- name: columns
-- The columns of a table: name, type, whether it must be filled.
SELECT attname::text, format_type(atttypid, atttypmod), attnotnull
  FROM pg_attribute WHERE attrelid = %(table)s::regclass AND attnum > 0 AND NOT attisdropped ORDER BY attnum;

-- name: table_there
-- Whether there is a table of this name.
SELECT to_regclass(%(table)s) IS NOT NULL;

-- name: wholes
-- The tables that hold all copies of one shape of a view's table, the newest first.
SELECT c.relname::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
 WHERE n.nspname = %(views)s AND c.relkind = 'p' AND c.relname ~ ('^' || %(table)s || '_[0-9]+_copies$') ORDER BY c.oid DESC;

-- name: shown
-- What is noted on the view that readers see, and the table of all copies that a copy's table is part of.
SELECT obj_description(to_regclass(%(shown)s), 'pg_class'), w.relname::text
  FROM pg_inherits i JOIN pg_class w ON w.oid = i.inhparent WHERE i.inhrelid = %(leaf)s::regclass;

-- name: analyze
-- Learn what a table holds.
ANALYZE {table};

-- name: parked_at
-- From where on a stream is parked, and how often it was tried.
SELECT position, tries FROM {schema}.view_parked WHERE view = %(view)s AND copy = %(copy)s AND stream = %(stream)s;

-- name: tried
-- How often a parked stream was tried.
UPDATE {schema}.view_parked SET tries = %(tries)s WHERE view = %(view)s AND copy = %(copy)s AND stream = %(stream)s;

-- name: drop_refolded
-- Forget which streams were folded anew.
DROP TABLE IF EXISTS pg_temp.refolded;

-- name: make_refolded
-- The streams that are folded anew, for the length of a transaction.
CREATE TEMPORARY TABLE refolded (stream text COLLATE "C" PRIMARY KEY) ON COMMIT DROP;

-- name: count_refolded
-- How many streams are folded anew.
SELECT count(*) FROM pg_temp.refolded;

-- name: unpark_refolded
-- What is folded anew is parked no more, unless it fails again.
DELETE FROM {schema}.view_parked p USING pg_temp.refolded r
 WHERE p.view = %(view)s AND p.copy = %(copy)s AND p.stream = r.stream;

-- name: last_declared
-- The number of the last declaration.
SELECT {schema}.last_declared();

-- name: streams_of_new_moves
-- The streams that have events of topics which were declared after the copy last looked; for a view that counts sets
-- also those of new sets: of their units and parents, and where it is said how many are expected.
INSERT INTO pg_temp.refolded
SELECT DISTINCT e.stream FROM {schema}.events e
 WHERE e.topic IN (SELECT m.topic FROM {schema}.moves m WHERE m.number > (
       SELECT c.moves FROM {schema}.view_copies c WHERE c.view = %(view)s AND c.copy = %(copy)s))
    OR %(sets)s AND EXISTS (SELECT FROM {schema}.sets s
       WHERE (split_part(e.stream, '/', 1) IN (s.category, s.parent) OR e.topic IN (s.total_topic, s.total_reset))
         AND s.number > (
             SELECT c.moves FROM {schema}.view_copies c WHERE c.view = %(view)s AND c.copy = %(copy)s));

-- name: lock_to_refold
-- The same for who fills a part of it in again; it is counted, so that who follows what changes begins again.
UPDATE {schema}.view_copies SET refolds = refolds + 1 WHERE view = %(view)s AND copy = %(copy)s RETURNING position;

-- name: streams_under
-- The streams whose names start with a prefix.
INSERT INTO pg_temp.refolded
SELECT DISTINCT stream FROM {schema}.events
 WHERE stream >= %(prefix)s::text COLLATE "C" AND stream < %(prefix)s::text || U&'\+10FFFF' COLLATE "C";

-- name: projecting_session
-- Make a session fit to write views. Its commits need not wait for the disk: what a crash takes from a view it takes
-- together with its position. Each statement sees what was committed before it. The end of a client is noticed also
-- while a statement runs, where the server's system can tell, so that its locks are free soon.
SELECT set_config('synchronous_commit', 'off', false), set_config('timezone', 'UTC', false),
       set_config('default_transaction_isolation', 'read committed', false),
       set_config('statement_timeout', '0', false),
       set_config('client_connection_check_interval', CASE WHEN version() ~ 'linux|darwin|bsd' THEN '1s' ELSE '0' END,
                  false);

-- name: act_as_projector
-- What this session makes belongs to the projector, whoever is connected.
SET ROLE {projector};

-- name: short_lock
-- Wait for no lock longer than so many milliseconds, in this transaction; and let its commit be durable.
SELECT set_config('lock_timeout', %(ms)s::text || 'ms', true), set_config('synchronous_commit', 'on', true);

-- name: one_snapshot
-- See one moment from the next statement on, and write nothing.
SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY;

-- name: this_moment
-- The first statement of a transaction with one snapshot, which takes it.
SELECT pg_current_snapshot()::text;

-- name: drop_table
-- Drop a table of a copy.
DROP TABLE IF EXISTS {table};

-- name: number_copy
-- Let each row of a copy's table say of which copy it is, without anything to store but the column's default.
ALTER TABLE {leaf} ADD COLUMN copy integer NOT NULL DEFAULT {number};

-- name: check_copy
-- Say so to the planner, and to who attaches the table.
ALTER TABLE {leaf} ADD CONSTRAINT {check} CHECK (copy = {number});

-- name: make_whole
-- The table that holds all copies of one shape.
CREATE TABLE IF NOT EXISTS {whole} (LIKE {leaf}) PARTITION BY LIST (copy);

-- name: take_in
-- Attach a copy; nobody who reads the others waits for that.
ALTER TABLE {whole} ATTACH PARTITION {leaf} FOR VALUES IN ({number});

-- name: open_copy
-- Readers may look at it.
GRANT SELECT ON {leaf}, {whole} TO {reader};

-- name: show
-- What readers see by name: the rows of the copy that is live. The planner leaves out the others when it runs.
CREATE OR REPLACE VIEW {shown} AS
SELECT {names} FROM {whole} WHERE copy = (SELECT live FROM {ledger}.views WHERE name = {view});

-- name: unshow
-- Take the name away, so that it can be given to other columns; and what is read by it, which is made anew.
DROP VIEW {shown} CASCADE;

-- name: shown_elsewhere
-- The views outside the schema of views that show a view, or what is made of it.
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
-- Note on it what it shows and by which definition.
COMMENT ON VIEW {shown} IS {note};

-- name: only_one_has
-- Rows that one copy has and the other has not, some of them, with how many there are.
SELECT to_jsonb(d)::text, count(*) OVER ()
  FROM (SELECT {columns} FROM {here} EXCEPT ALL SELECT {columns} FROM {there}) d
 ORDER BY d::text COLLATE "C" LIMIT %(shown)s;
