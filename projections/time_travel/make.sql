-- make.py: {schema} is the ledger's schema, {views} that of its views.

-- name: make_past
-- Make the schema of a position.
SELECT {schema}.make_as_of(%(position)s::bigint);

-- name: make_past_tables
-- What every past contains beside the views: the events up to its position, the heads, and the parked streams
-- of views.
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
  FROM {schema}.events e LEFT JOIN {schema}.topic_statuses m ON m.topic = e.topic
 WHERE e.position > %(after)s AND e.position <= %(upto)s
 GROUP BY e.stream
ON CONFLICT (stream) DO UPDATE SET version = excluded.version, status = coalesce(excluded.status, h.status);

-- name: past_states
-- The states of streams without later events: those of their heads, if the same code folded them.
UPDATE {past}.heads p SET state = h.state, state_version = h.state_version, state_schema = h.state_schema
  FROM {schema}.heads h
  JOIN unnest(%(categories)s::text[], %(state_schemas)s::integer[]) k (category, state_schema)
       ON k.category = split_part(h.stream, '/', 1) AND k.state_schema = h.state_schema
 WHERE h.stream = p.stream AND h.state_version = p.version AND h.state IS NOT NULL;

-- name: past_unfolded
-- Some streams whose state is still to be folded, after a name, with a limited number of events: the state of
-- the head, unless it is later, and the events after it.
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
-- Park a stream of a view from the event on that failed.
INSERT INTO {past}.parked (position, view, stream, error) VALUES (%(position)s, %(view)s, %(stream)s, %(error)s);

-- name: past_analyse
-- Collect statistics for the planner.
ANALYZE {past}.heads;

-- name: finish_past
-- Record what the past is, and grant readers access: from here on it is complete.
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
