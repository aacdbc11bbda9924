-- apply.py: {schema} is the ledger's schema, {views} that of its views.

-- name: advance_copy
-- Move a copy, in the transaction that applies the events between the two positions.
SELECT {schema}.advance_copy(%(view)s::text, %(copy)s::integer, %(after)s::bigint, %(upto)s::bigint, %(many)s::bigint,
                             %(statuses)s::boolean, %(live)s::boolean);

-- name: park_event
-- Park a stream from the event on that failed; the event is stored with it as it is recorded.
INSERT INTO {schema}.view_parked AS p (view, copy, stream, position, error, event, parked_at)
SELECT %(view)s, %(copy)s, %(stream)s, %(position)s, %(error)s,
       (SELECT to_jsonb(e) FROM {schema}.events e WHERE e.position = %(position)s), clock_timestamp()
ON CONFLICT (view, copy, stream) DO UPDATE
   SET position = excluded.position, error = excluded.error, event = excluded.event, tries = p.tries + 1,
       parked_at = excluded.parked_at;

-- name: batch
-- The events of a batch, as the relation that a view's statements read: from a source with the columns of the
-- log, without streams that are parked in the copy and events that it contains already. {only}: further
-- conditions.
(SELECT position, recorded_at, version, schema, stream, topic, data, raw, meta FROM {source}
  WHERE position > %(after)s AND position <= %(upto)s {only}
    AND stream <> ALL (ARRAY(SELECT stream FROM {ledger}.view_parked WHERE view = {view} AND copy = {copy}))
    AND position <> ALL ((SELECT ahead FROM {ledger}.view_copies WHERE view = {view} AND copy = {copy})::bigint[]));

-- name: of_topics
-- A condition: of the view's topics.
 AND topic = ANY (%(topics)s::text[]);

-- name: of_categories
-- A condition: of the view's categories, or of its topics.
 AND (split_part(stream, '/', 1) = ANY (%(categories)s::text[]) OR topic = ANY (%(topics)s::text[]));

-- name: of_stream
-- A condition: of one stream.
 AND stream = %(stream)s;

-- name: of_refolded
-- A condition: of the streams that are folded again.
 AND stream IN (SELECT stream FROM pg_temp.refolded);

-- name: events_of
-- The events of a batch, in order.
SELECT position, stream, version, topic, schema, data::text, raw, meta::text, recorded_at FROM {batch} b ORDER BY position;

-- name: places_of
-- Position and stream of the events of a batch, in order.
SELECT position, stream FROM {batch} b ORDER BY position;

-- name: place_beyond
-- The position of the first event of a batch after so many.
SELECT position FROM {batch} b ORDER BY position OFFSET %(many)s LIMIT 1;

-- name: check_at_once
-- Check deferred constraints after each statement, so that the event that fails is found.
SET CONSTRAINTS ALL IMMEDIATE;
