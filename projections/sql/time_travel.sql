-- The whole ledger as of a position, by name. {schema} is the ledger's schema, {past} the schema of the position.

-- name: hold_past
-- Be the only one who makes or drops the schema of a position, for as long as this session lives; waits for others.
SELECT pg_advisory_lock({schema}.lock_class()::integer + 262144, hashtext(%(position)s::bigint::text));

-- name: leave_past
-- Let others make or drop it.
SELECT pg_advisory_unlock({schema}.lock_class()::integer + 262144, hashtext(%(position)s::bigint::text));

-- name: make_past
-- Make the schema of a position.
SELECT {schema}.make_as_of(%(position)s::bigint);

-- name: drop_past
-- Drop the schema of a position; whether it was there.
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
-- What a whole one says of itself.
SELECT position, asked_for, made_at, events, streams, unfolded, declared, definitions,
       (SELECT count(*) FROM {past}.parked) FROM {past}.as_of;

-- name: make_past_tables
-- What every past holds beside the views: the events up to its position, what each stream was, and which streams a
-- view leaves out, since an event of theirs fails.
CREATE VIEW {past}.events AS
SELECT position, recorded_at, version, schema, stream, topic, data, raw, meta FROM {schema}.events
 WHERE position <= {position};
CREATE TABLE {past}.heads (
    version       bigint  NOT NULL,
    state_version bigint  NOT NULL DEFAULT 0,
    state_schema  integer,
    stream        text    COLLATE "C" PRIMARY KEY,
    status        text    COLLATE "C",
    state         jsonb
) WITH (fillfactor = 70);
CREATE TABLE {past}.parked (
    position bigint NOT NULL,
    view     text   COLLATE "C" NOT NULL,
    stream   text   COLLATE "C" NOT NULL,
    error    text   NOT NULL,
    PRIMARY KEY (view, stream)
);

-- name: past_batch
-- The events of a batch, as the relation that a view's statements read: without streams that are parked.
(SELECT position, recorded_at, version, schema, stream, topic, data, raw, meta FROM {ledger}.events
  WHERE position > %(after)s AND position <= %(upto)s {only}
    AND stream <> ALL (ARRAY(SELECT stream FROM {past}.parked WHERE view = {view})));

-- name: past_next
-- The last of the next events up to the position, and how many they are.
SELECT max(position), count(*)
  FROM (SELECT position FROM {schema}.events WHERE position > %(after)s AND position <= %(upto)s
         ORDER BY position LIMIT %(limit)s) e;

-- name: past_heads
-- Version and status of the streams of a batch, after it.
INSERT INTO {past}.heads AS h (stream, version, status)
SELECT e.stream, max(e.version),
       (array_agg(coalesce(m.status, e.data ->> m.field) ORDER BY e.version DESC)
        FILTER (WHERE coalesce(m.status, e.data ->> m.field) IS NOT NULL))[1]
  FROM {schema}.events e LEFT JOIN {schema}.moves m ON m.topic = e.topic
 WHERE e.position > %(after)s AND e.position <= %(upto)s
 GROUP BY e.stream
ON CONFLICT (stream) DO UPDATE SET version = excluded.version, status = coalesce(excluded.status, h.status);

-- name: past_states
-- The states of streams to which nothing came since: those of their heads, where this code folds the same.
UPDATE {past}.heads p SET state = h.state, state_version = h.state_version, state_schema = h.state_schema
  FROM {schema}.heads h
  JOIN unnest(%(categories)s::text[], %(state_schemas)s::integer[]) k (category, state_schema)
       ON k.category = split_part(h.stream, '/', 1) AND k.state_schema = h.state_schema
 WHERE h.stream = p.stream AND h.state_version = p.version AND h.state IS NOT NULL;

-- name: past_unfolded
-- Some streams whose state is still to be folded, by name after a name, not too many events at once: the state of
-- the head where it is not later, and the events after it.
SELECT w.stream, coalesce(h.state_version, 0), h.state::text, e.tail::text
  FROM (SELECT s.*, sum(s.version) OVER (ORDER BY s.stream) - s.version AS before
          FROM (SELECT p.stream, p.version, k.state_schema FROM {past}.heads p
                  JOIN unnest(%(categories)s::text[], %(state_schemas)s::integer[]) k (category, state_schema)
                       ON k.category = split_part(p.stream, '/', 1)
                 WHERE p.state_version < p.version AND p.stream > %(after)s::text COLLATE "C"
                 ORDER BY p.stream LIMIT 500) s) w
  LEFT JOIN LATERAL (
       SELECT state_version, state FROM {schema}.heads
        WHERE stream = w.stream AND state_schema = w.state_schema AND state_version <= w.version
          AND state IS NOT NULL) h ON true
 CROSS JOIN LATERAL (
       SELECT json_agg(json_build_array(t.topic, t.schema, t.data::text, t.recorded_at) ORDER BY t.version) AS tail
         FROM (SELECT version, topic, schema, data, recorded_at FROM {schema}.events
                WHERE stream = w.stream AND version > coalesce(h.state_version, 0) AND version <= w.version
                ORDER BY version) t) e
 WHERE w.before < 20000 ORDER BY w.stream;

-- name: past_fold
-- Set the states that were folded.
UPDATE {past}.heads p SET state = f.state::jsonb, state_version = p.version, state_schema = f.state_schema
  FROM unnest(%(streams)s::text[], %(states)s::text[], %(folded_by)s::integer[]) f (stream, state, state_schema)
 WHERE p.stream = f.stream COLLATE "C";

-- name: past_parked_in
-- How many streams of a view are parked.
SELECT count(*) FROM {past}.parked WHERE view = %(view)s;

-- name: past_park_event
-- Leave a stream out of a view from an event on that failed.
INSERT INTO {past}.parked (position, view, stream, error) VALUES (%(position)s, %(view)s, %(stream)s, %(error)s);

-- name: past_analyse
-- Let the planner know what is there.
ANALYZE {past}.heads;

-- name: finish_past
-- Say what it is, and open it to readers: from here on it is whole.
CREATE TABLE {past}.as_of (
    single      boolean     PRIMARY KEY DEFAULT true CHECK (single),
    ledger      uuid        NOT NULL,
    schema      text        NOT NULL,
    position    bigint      NOT NULL,
    asked_for   timestamptz,
    made_at     timestamptz NOT NULL,
    events      bigint      NOT NULL,
    streams     bigint      NOT NULL,
    unfolded    bigint      NOT NULL,
    declared    integer     NOT NULL,
    definitions jsonb       NOT NULL
);
INSERT INTO {past}.as_of
SELECT true, i.ledger, {log}, {position}, {asked_for}, clock_timestamp(), {events},
       (SELECT count(*) FROM {past}.heads), {unfolded}, {declared}, {definitions}
  FROM {schema}.identity i;
GRANT SELECT ON ALL TABLES IN SCHEMA {past} TO {reader};
GRANT USAGE ON SCHEMA {past} TO {reader};
