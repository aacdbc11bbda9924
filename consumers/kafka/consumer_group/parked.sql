-- Events that a consumer could not handle, and those of the same key that wait behind them.

-- name: blocked
-- The keys of partitions of which an event is parked: later events of theirs wait behind it.
SELECT DISTINCT p.topic, p.partition, p.ordering
  FROM {schema}.parked p JOIN unnest(%(topics)s::text[], %(partitions)s::int[]) w (topic, partition) USING (topic, partition)
 WHERE p.consumer_group = %(group)s;

-- name: park
-- Park an event. delay: seconds until it is tried again, for one that waits.
INSERT INTO {schema}.parked (consumer_group, topic, partition, "offset", ordering, key, value, header_names, header_values,
                             position, event_topic, state, attempts, error, message, trace, due_at)
VALUES (%(group)s, %(topic)s, %(partition)s, %(offset)s, %(ordering)s, %(key)s, %(value)s, %(names)s, %(values)s,
        %(position)s, %(event_topic)s, %(state)s, %(attempts)s, %(error)s, %(message)s, %(trace)s,
        clock_timestamp() + make_interval(secs => %(delay)s));

-- name: due
-- The keys whose first event is due to be tried again, in these partitions.
SELECT p.topic, p.partition, p.ordering
  FROM {schema}.parked p JOIN unnest(%(topics)s::text[], %(partitions)s::int[]) w (topic, partition) USING (topic, partition)
 WHERE p.consumer_group = %(group)s AND p.state = 'waiting' AND p.due_at <= clock_timestamp()
 ORDER BY p.due_at LIMIT %(limit)s;

-- name: of_key
-- The first events of a key, in order, where the first is due; the partition's row is locked.
SELECT p."offset", p.key, p.value, p.header_names, p.header_values, p.attempts
  FROM {schema}.parked p
 WHERE p.consumer_group = %(group)s AND p.topic = %(topic)s AND p.partition = %(partition)s AND p.ordering = %(ordering)s
   AND EXISTS (SELECT FROM {schema}.parked f
                WHERE f.consumer_group = p.consumer_group AND f.topic = p.topic AND f.partition = p.partition
                  AND f.ordering = p.ordering AND f.state = 'waiting' AND f.due_at <= clock_timestamp())
 ORDER BY p."offset" LIMIT %(limit)s;

-- name: remove
-- Take events off: they are handled, or given up.
DELETE FROM {schema}.parked
 WHERE consumer_group = %(group)s AND topic = %(topic)s AND partition = %(partition)s AND "offset" = ANY(%(offsets)s::bigint[]);

-- name: failed_again
-- Note a failed attempt: the event waits for the next one, or is dead.
UPDATE {schema}.parked
   SET state = %(state)s, attempts = %(attempts)s, error = %(error)s, message = %(message)s, trace = %(trace)s,
       due_at = clock_timestamp() + make_interval(secs => %(delay)s)
 WHERE consumer_group = %(group)s AND topic = %(topic)s AND partition = %(partition)s AND "offset" = %(offset)s;

-- name: next_of_key
-- The first of those that wait behind is due now, since the one before it is gone.
UPDATE {schema}.parked SET state = 'waiting', due_at = clock_timestamp()
 WHERE (consumer_group, topic, partition, "offset") = (
    SELECT consumer_group, topic, partition, "offset" FROM {schema}.parked
     WHERE consumer_group = %(group)s AND topic = %(topic)s AND partition = %(partition)s AND ordering = %(ordering)s
     ORDER BY "offset" LIMIT 1)
   AND state = 'behind';

-- name: unpublished
-- Dead letters that are not yet in their topic.
SELECT topic, partition, "offset", key, value, header_names, header_values, attempts, error, message, trace, parked_at
  FROM {schema}.parked
 WHERE consumer_group = %(group)s AND state = 'dead' AND published_at IS NULL ORDER BY parked_at LIMIT %(limit)s;

-- name: published
-- Note that dead letters are in their topic.
UPDATE {schema}.parked p SET published_at = clock_timestamp()
  FROM unnest(%(topics)s::text[], %(partitions)s::int[], %(offsets)s::bigint[]) w (topic, partition, "offset")
 WHERE p.consumer_group = %(group)s AND p.topic = w.topic AND p.partition = w.partition AND p."offset" = w."offset";

-- name: counts
-- How many events of a group are parked, by state.
SELECT state, count(*) FROM {schema}.parked WHERE consumer_group = %(group)s GROUP BY state;

-- name: list
-- Parked events, the oldest first, after one of them. With the number that waits behind each.
SELECT p.consumer_group, p.topic, p.partition, p."offset", p.position, p.event_topic, p.key, p.state, p.attempts, p.error,
       p.message, p.parked_at, p.due_at,
       (SELECT count(*) FROM {schema}.parked b
         WHERE b.consumer_group = p.consumer_group AND b.topic = p.topic AND b.partition = p.partition
           AND b.ordering = p.ordering AND b."offset" > p."offset")
  FROM {schema}.parked p
 WHERE (%(group)s::text IS NULL OR p.consumer_group = %(group)s) AND p.state = ANY(%(states)s::text[])
   AND (%(topic)s::text IS NULL OR p.topic = %(topic)s) AND (%(key)s::bytea IS NULL OR p.key = %(key)s)
   AND (%(error)s::text IS NULL OR p.error = %(error)s)
 ORDER BY p.parked_at, p.topic, p.partition, p."offset" LIMIT %(limit)s;

-- name: show
-- One parked event with all that is known of it.
SELECT consumer_group, topic, partition, "offset", position, event_topic, key, state, attempts, error, message, parked_at,
       due_at, 0::bigint, value, header_names, header_values, trace, published_at
  FROM {schema}.parked
 WHERE consumer_group = %(group)s AND topic = %(topic)s AND partition = %(partition)s AND "offset" = %(offset)s;

-- name: redrive
-- Have a dead letter tried again now, with all its attempts; a running consumer does it.
UPDATE {schema}.parked SET state = 'waiting', attempts = 0, due_at = clock_timestamp(), published_at = NULL
 WHERE consumer_group = %(group)s AND topic = %(topic)s AND partition = %(partition)s AND "offset" = %(offset)s
   AND state IN ('dead', 'waiting')
RETURNING ordering;

-- name: discard
-- Give a dead letter up.
DELETE FROM {schema}.parked
 WHERE consumer_group = %(group)s AND topic = %(topic)s AND partition = %(partition)s AND "offset" = %(offset)s
   AND state = 'dead'
RETURNING ordering;
