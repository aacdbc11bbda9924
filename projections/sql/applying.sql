-- Where the events of a batch come from, and following a view, by name. {schema} is the ledger's schema.

-- name: batch
-- The events of a batch, as the relation that a view's statements read: of a source with the columns of the log, without
-- streams that are parked in the copy, and what is in it already. {only} are further conditions.
(SELECT position, recorded_at, version, schema, stream, topic, data, raw, meta FROM {source}
  WHERE position > %(after)s AND position <= %(upto)s {only}
    AND stream <> ALL (ARRAY(SELECT stream FROM {ledger}.view_parked WHERE view = {view} AND copy = {copy}))
    AND position <> ALL ((SELECT ahead FROM {ledger}.view_copies WHERE view = {view} AND copy = {copy})::bigint[]));

-- name: of_topics
-- A condition: of the view's topics.
 AND topic = ANY (%(topics)s::text[]);

-- name: of_stream
-- A condition: of one stream.
 AND stream = %(stream)s;

-- name: of_refolded
-- A condition: of the streams that are folded anew.
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
-- Check what a table checks at the end of the transaction after each statement, so that it is known which event fails.
SET CONSTRAINTS ALL IMMEDIATE;

-- name: batch_upto
-- The last event after a position up to another that is safe, and how many there are.
SELECT max(position), count(*)
  FROM (SELECT position FROM {schema}.events WHERE position > %(after)s AND position <= %(upto)s
         ORDER BY position LIMIT %(limit)s) e;

-- name: streams_passed
-- Whether events of a copy are of the streams that would be folded anew.
SELECT stream FROM {schema}.events WHERE position <= %(upto)s AND stream IN (SELECT stream FROM pg_temp.refolded) LIMIT 1;

-- name: begin_following
-- Let others see that this session follows a view, for as long as it lives.
SELECT pg_advisory_lock_shared({schema}.lock_class()::integer + 131072, hashtext(%(view)s));

-- name: end_following
-- Follow a view no more.
SELECT pg_advisory_unlock_shared({schema}.lock_class()::integer + 131072, hashtext(%(view)s));

-- name: note_failure
-- Why the copy that is read cannot be followed; gone as soon as it is followed again.
UPDATE {schema}.view_copies c SET error = %(error)s
  FROM {schema}.views v
 WHERE v.name = %(view)s AND c.view = v.name AND c.copy = v.live AND c.error IS DISTINCT FROM %(error)s;

-- name: make_fed
-- Where events wait that another source handed in, for the length of a session.
CREATE TEMPORARY TABLE IF NOT EXISTS fed (LIKE {schema}.events);

-- name: empty_fed
-- What was handed in before is done with.
TRUNCATE pg_temp.fed;

-- name: fill_fed
-- Events that another source handed in.
COPY pg_temp.fed (position, stream, version, topic, schema, data, raw, meta, recorded_at) FROM STDIN;
