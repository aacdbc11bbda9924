-- The tables of consumers in their own database, in a schema of their own: offsets, and events that are parked.
-- A transaction that concerns a partition first locks the partition's row in offsets, so two never work on one at once.

-- name: number
-- The number of the newest migration that was applied; no row where the schema has none of these tables.
SELECT max(number) FROM {schema}.consumer_migrations;

-- name: is_there
-- Whether the schema has these tables.
SELECT to_regclass(%(table)s) IS NOT NULL;

-- name: migration_lock
-- One process at a time makes tables.
SELECT pg_advisory_xact_lock(hashtextextended('pledger consumer ' || %(schema)s, 0));

-- name: make_schema
-- The schema, where the role may make one.
CREATE SCHEMA IF NOT EXISTS {schema};

-- name: begin_migrations
-- The list of the migrations that were applied.
CREATE TABLE IF NOT EXISTS {schema}.consumer_migrations (
    number     int PRIMARY KEY,
    applied_at timestamptz NOT NULL DEFAULT now());

-- name: applied
-- Note a migration.
INSERT INTO {schema}.consumer_migrations (number) VALUES (%(number)s);

-- name: migration_1
-- Offsets, the events of a round that are done before the others, and parked events.
CREATE TABLE {schema}.offsets (
    consumer_group text NOT NULL,
    topic          text NOT NULL,
    partition      int NOT NULL,
    topic_id       text NOT NULL,
    next_offset    bigint NOT NULL,
    last_position  bigint,
    recorded_at    timestamptz,
    PRIMARY KEY (consumer_group, topic, partition)) WITH (fillfactor = 50);
COMMENT ON COLUMN {schema}.offsets.last_position IS 'of the last event applied; NULL: the next record may follow any';
CREATE TABLE {schema}.done (
    consumer_group text NOT NULL,
    topic          text NOT NULL,
    partition      int NOT NULL,
    "offset"       bigint NOT NULL,
    PRIMARY KEY (consumer_group, topic, partition, "offset"));
CREATE TABLE {schema}.parked (
    consumer_group text NOT NULL,
    topic          text NOT NULL,
    partition      int NOT NULL,
    "offset"       bigint NOT NULL,
    ordering       bytea NOT NULL,
    key            bytea,
    value          bytea,
    header_names   text[] NOT NULL,
    header_values  bytea[] NOT NULL,
    position       bigint,
    event_topic    text,
    state          text NOT NULL CHECK (state IN ('waiting', 'behind', 'dead')),
    attempts       int NOT NULL DEFAULT 0,
    error          text,
    message        text,
    trace          text,
    parked_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    due_at         timestamptz,
    published_at   timestamptz,
    PRIMARY KEY (consumer_group, topic, partition, "offset"));
CREATE INDEX parked_ordering ON {schema}.parked (consumer_group, topic, partition, ordering, "offset");
CREATE INDEX parked_due ON {schema}.parked (consumer_group, due_at) WHERE state = 'waiting';
CREATE INDEX parked_unpublished ON {schema}.parked (consumer_group) WHERE state = 'dead' AND published_at IS NULL;

-- name: begin
-- The row of a partition that the group never read.
INSERT INTO {schema}.offsets (consumer_group, topic, partition, topic_id, next_offset, last_position)
VALUES (%(group)s, %(topic)s, %(partition)s, %(topic_id)s, %(next_offset)s, %(last_position)s) ON CONFLICT DO NOTHING;

-- name: read
-- Where a group goes on in a partition.
SELECT topic_id, next_offset, last_position FROM {schema}.offsets
 WHERE consumer_group = %(group)s AND topic = %(topic)s AND partition = %(partition)s;

-- name: all_of_group
-- Where a group goes on, in all partitions.
SELECT topic, partition, topic_id, next_offset, last_position, recorded_at FROM {schema}.offsets
 WHERE consumer_group = %(group)s ORDER BY topic, partition;

-- name: move
-- Compare-and-set: move the offsets that are still where they are expected, and return those that were moved.
WITH moves AS (
    SELECT * FROM unnest(%(topics)s::text[], %(partitions)s::int[], %(expected)s::bigint[], %(nexts)s::bigint[],
                         %(lasts)s::bigint[], %(times)s::timestamptz[]) m (topic, partition, expected, next, last, at)),
locked AS (
    SELECT o.topic, o.partition, m.next, m.last, m.at
      FROM {schema}.offsets o JOIN moves m USING (topic, partition)
     WHERE o.consumer_group = %(group)s AND o.next_offset = m.expected
     ORDER BY o.topic, o.partition FOR UPDATE OF o)
UPDATE {schema}.offsets o
   SET next_offset = l.next, last_position = l.last, recorded_at = coalesce(l.at, o.recorded_at)
  FROM locked l
 WHERE o.consumer_group = %(group)s AND o.topic = l.topic AND o.partition = l.partition
RETURNING o.topic, o.partition;

-- name: share
-- The offsets that are where they are expected, and stay there until this transaction ends; several may share them.
SELECT o.topic, o.partition
  FROM {schema}.offsets o
  JOIN unnest(%(topics)s::text[], %(partitions)s::int[], %(expected)s::bigint[]) m (topic, partition, expected)
 USING (topic, partition)
 WHERE o.consumer_group = %(group)s AND o.next_offset = m.expected
 ORDER BY o.topic, o.partition FOR SHARE OF o;

-- name: lock
-- Lock the row of a partition; none where the group never read it.
SELECT next_offset FROM {schema}.offsets
 WHERE consumer_group = %(group)s AND topic = %(topic)s AND partition = %(partition)s FOR UPDATE;

-- name: mark_done
-- Note events that are done while others of their round are not. Fails where another did so first.
INSERT INTO {schema}.done (consumer_group, topic, partition, "offset")
SELECT %(group)s, * FROM unnest(%(topics)s::text[], %(partitions)s::int[], %(offsets)s::bigint[]);

-- name: done
-- The events of a partition that are done though the offset is before them.
SELECT "offset" FROM {schema}.done
 WHERE consumer_group = %(group)s AND topic = %(topic)s AND partition = %(partition)s;

-- name: clear_done
-- Forget the events that the offsets have passed.
DELETE FROM {schema}.done d USING {schema}.offsets o
 WHERE d.consumer_group = %(group)s AND o.consumer_group = d.consumer_group AND o.topic = d.topic
   AND o.partition = d.partition AND d."offset" < o.next_offset;

-- name: rewind
-- Set the offset of a partition, and return what it was.
UPDATE {schema}.offsets o SET next_offset = %(next_offset)s, last_position = %(last_position)s, topic_id = %(topic_id)s
  FROM (SELECT next_offset FROM {schema}.offsets
         WHERE consumer_group = %(group)s AND topic = %(topic)s AND partition = %(partition)s FOR UPDATE) old
 WHERE o.consumer_group = %(group)s AND o.topic = %(topic)s AND o.partition = %(partition)s
RETURNING old.next_offset;

-- name: drop_from
-- Forget the parked and done events of a partition from an offset on: they will be read again.
WITH gone AS (
    DELETE FROM {schema}.done
     WHERE consumer_group = %(group)s AND topic = %(topic)s AND partition = %(partition)s AND "offset" >= %(offset)s)
DELETE FROM {schema}.parked
 WHERE consumer_group = %(group)s AND topic = %(topic)s AND partition = %(partition)s AND "offset" >= %(offset)s
RETURNING "offset";

-- name: positions
-- Where each group goes on, with how many events it has parked.
SELECT o.consumer_group, o.topic, o.partition, o.next_offset, o.last_position, o.recorded_at,
       count(*) FILTER (WHERE p.state = 'waiting'), count(*) FILTER (WHERE p.state = 'behind'),
       count(*) FILTER (WHERE p.state = 'dead')
  FROM {schema}.offsets o LEFT JOIN {schema}.parked p USING (consumer_group, topic, partition)
 GROUP BY o.consumer_group, o.topic, o.partition ORDER BY 1, 2, 3;
