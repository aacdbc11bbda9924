-- refold.py: {schema} is the ledger's schema, {views} that of its views.

-- name: know_statuses
-- Record up to which declaration a copy is current.
UPDATE {schema}.view_copies SET announced = %(number)s
 WHERE view = %(view)s AND copy = %(copy)s;

-- name: unpark
-- Follow a stream again.
DELETE FROM {schema}.view_parked WHERE view = %(view)s AND copy = %(copy)s AND stream = %(stream)s;

-- name: parked_at
-- The position from which a stream is parked, and how often it was tried.
SELECT position, tries FROM {schema}.view_parked WHERE view = %(view)s AND copy = %(copy)s AND stream = %(stream)s;

-- name: tried
-- Set how often a parked stream was tried.
UPDATE {schema}.view_parked SET tries = %(tries)s WHERE view = %(view)s AND copy = %(copy)s AND stream = %(stream)s;

-- name: drop_refolded
-- Clear the list of streams to fold again.
DROP TABLE IF EXISTS pg_temp.refolded;

-- name: make_refolded
-- The streams to fold again, for the length of a transaction.
CREATE TEMPORARY TABLE refolded (stream text COLLATE "C" PRIMARY KEY) ON COMMIT DROP;

-- name: count_refolded
-- How many streams are folded again.
SELECT count(*) FROM pg_temp.refolded;

-- name: unpark_refolded
-- Unpark the streams that are folded again; they are parked again if they fail.
DELETE FROM {schema}.view_parked p USING pg_temp.refolded r
 WHERE p.view = %(view)s AND p.copy = %(copy)s AND p.stream = r.stream;

-- name: streams_of_new_statuses
-- The streams that have events of topics which were declared since the copy's last declaration; for a view
-- that counts sets also the streams of new sets: units, parents, and those that set how many are expected.
INSERT INTO pg_temp.refolded
SELECT DISTINCT e.stream FROM {schema}.events e
 WHERE e.topic IN (SELECT m.topic FROM {schema}.topic_statuses m WHERE m.number > (
       SELECT c.announced FROM {schema}.view_copies c WHERE c.view = %(view)s AND c.copy = %(copy)s))
    OR %(sets)s AND EXISTS (SELECT FROM {schema}.sets s
       WHERE (split_part(e.stream, '/', 1) IN (s.category, s.parent) OR e.topic IN (s.total_topic, s.total_reset))
         AND s.number > (
             SELECT c.announced FROM {schema}.view_copies c WHERE c.view = %(view)s AND c.copy = %(copy)s));

-- name: lock_to_refold
-- Lock a copy to fold streams again, and count that, so that followers of its changes begin again.
UPDATE {schema}.view_copies SET refolds = refolds + 1 WHERE view = %(view)s AND copy = %(copy)s RETURNING position;

-- name: streams_under
-- The streams whose names start with a prefix.
INSERT INTO pg_temp.refolded
SELECT DISTINCT stream FROM {schema}.events
 WHERE stream >= %(prefix)s::text COLLATE "C" AND stream < %(prefix)s::text || U&'\+10FFFF' COLLATE "C";

-- name: streams_passed
-- Whether a copy contains events of the streams that would be folded again.
SELECT stream FROM {schema}.events WHERE position <= %(upto)s AND stream IN (SELECT stream FROM pg_temp.refolded) LIMIT 1;

-- name: forget_ahead
-- Remove the record of events beyond the position: streams are folded again up to the copy's position only.
UPDATE {schema}.view_copies c
   SET ahead = ARRAY(SELECT a FROM unnest(c.ahead) a
                      WHERE NOT EXISTS (SELECT FROM {schema}.events e JOIN pg_temp.refolded r USING (stream)
                                         WHERE e.position = a))
 WHERE view = %(view)s AND copy = %(copy)s AND ahead <> '{{}}';
