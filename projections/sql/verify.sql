-- Reading all streams to fold them, comparing heads and commands, by name. {schema} is the ledger's schema.

-- name: begin_fold
-- Make a transaction fit to read all of a range: a plan for all rows and not for the first, times in UTC, and no
-- compiling of plans, which costs more than it saves.
SELECT set_config('cursor_tuple_fraction', '1', true), set_config('TimeZone', 'UTC', true),
       set_config('jit', 'off', true);

-- name: fold_total
-- How many events the streams with a prefix have.
SELECT count(*) FROM {schema}.events
 WHERE stream >= %(start)s::text COLLATE "C" AND stream < %(below)s::text COLLATE "C";

-- name: fold_places
-- The streams of events at so many places of the log, evenly spaced, by name; where one has many events it is there
-- more than once.
SELECT e.stream
  FROM (SELECT min(position) AS first, max(position) AS last FROM {schema}.events) log
 CROSS JOIN generate_series(1, %(places)s::integer) place
 CROSS JOIN LATERAL (SELECT stream FROM {schema}.events
                      WHERE position >= log.first + (log.last - log.first) * place / %(places)s
                      ORDER BY position LIMIT 1) e
 WHERE e.stream >= %(start)s::text COLLATE "C" AND e.stream < %(below)s::text COLLATE "C"
 ORDER BY e.stream;

-- name: fold_sample
-- Streams by chance: those of events at random positions, and some that have a head, whether or not they have events.
-- More positions are drawn than streams are wanted, since several may be of one stream.
SELECT stream FROM (
    SELECT e.stream
      FROM (SELECT min(position) AS first, max(position) AS last FROM {schema}.events) log
     CROSS JOIN generate_series(1, 3 * %(many)s::integer + 50) nth
     CROSS JOIN LATERAL (SELECT log.first + floor((log.last - log.first + 1) * (random() + 0 * nth))::bigint AS position) place
     CROSS JOIN LATERAL (SELECT stream FROM {schema}.events WHERE position >= place.position ORDER BY position LIMIT 1) e
    UNION
    SELECT stream FROM (SELECT stream FROM {schema}.heads
                         WHERE stream >= %(start)s::text COLLATE "C" AND stream < %(below)s::text COLLATE "C"
                         ORDER BY random() LIMIT greatest(1, %(many)s::integer / 2)) h) wanted
 WHERE stream >= %(start)s::text COLLATE "C" AND stream < %(below)s::text COLLATE "C"
 ORDER BY random() LIMIT %(many)s;

-- name: fold_events
-- What a fold needs of the events of a range of streams, stream by stream.
SELECT stream, version, position, topic, schema, data::text, recorded_at
  FROM {schema}.events
 WHERE stream >= %(start)s::text COLLATE "C" AND stream < %(below)s::text COLLATE "C"
 ORDER BY stream, version, position;

-- name: fold_heads
-- The heads of a range of streams, by name.
SELECT stream, version, state_version, state_schema, status, state::text, token
  FROM {schema}.heads
 WHERE stream >= %(start)s::text COLLATE "C" AND stream < %(below)s::text COLLATE "C"
 ORDER BY stream;

-- name: fold_events_of
-- The same for streams by their names, from a version on.
SELECT stream, version, position, topic, schema, data::text, recorded_at
  FROM {schema}.events
 WHERE stream = ANY (%(streams)s::text[]) AND version > %(after)s
 ORDER BY stream, version, position;

-- name: fold_heads_of
-- The same for streams by their names.
SELECT stream, version, state_version, state_schema, status, state::text, token
  FROM {schema}.heads WHERE stream = ANY (%(streams)s::text[]) ORDER BY stream;

-- name: log_ends
-- The first and the last position of the log.
SELECT coalesce(min(position), 0), coalesce(max(position), 0) FROM {schema}.events;

-- name: command_events
-- The events after a position that carry a command id, and the row of that id, in the order of the log. Whoever
-- reads stops where it has what it wants.
SELECT e.position, e.recorded_at, e.stream, e.version, e.meta ->> 'command' AS command,
       c.first_position, c.last_position, c.recorded_at
  FROM {schema}.events e
  LEFT JOIN {schema}.commands c ON c.command = e.meta ->> 'command'
 WHERE e.position > %(after)s AND e.position <= %(upto)s AND e.meta ->> 'command' IS NOT NULL
 ORDER BY e.position;

-- name: command_before
-- The command id and time of the event at a position or before it.
SELECT e.meta ->> 'command', e.recorded_at
  FROM {schema}.events e WHERE e.position <= %(position)s ORDER BY e.position DESC LIMIT 1;

-- name: command_end
-- Where the append that the event at a position belongs to ends: the last position before another time or command.
WITH here AS (SELECT meta ->> 'command' AS command, recorded_at FROM {schema}.events
               WHERE position <= %(position)s ORDER BY position DESC LIMIT 1)
SELECT coalesce((SELECT n.position - 1 FROM {schema}.events n CROSS JOIN here
                  WHERE n.position > %(position)s
                    AND (n.recorded_at <> here.recorded_at OR n.meta ->> 'command' IS DISTINCT FROM here.command)
                  ORDER BY n.position LIMIT 1),
                (SELECT max(position) FROM {schema}.events), 0);

-- name: command_contents
-- What a command id stands for: the events of its append, as the digest wants them.
SELECT stream, topic, schema, data::text, raw
  FROM {schema}.events WHERE position BETWEEN %(first)s AND %(last)s ORDER BY stream, version;

-- name: commands_without_events
-- Command ids whose rows point to no event of theirs.
SELECT c.command, c.first_position, c.last_position
  FROM {schema}.commands c
  LEFT JOIN {schema}.events e ON e.position = c.first_position AND e.meta ->> 'command' = c.command
 WHERE e.position IS NULL
 ORDER BY c.command;

-- name: mend_heads
-- Set heads to what their events say, each only where its last event is still the one that was folded.
SELECT {schema}.mend_heads(%(streams)s::text[], %(versions)s::bigint[], %(statuses)s::text[], %(with_status)s::boolean[],
                           %(states)s::text[], %(state_versions)s::bigint[], %(state_schemas)s::integer[],
                           %(with_state)s::boolean[], %(tokens)s::bigint[]);

-- name: hold_head
-- Make the appends to one stream wait until this transaction ends; whether that could be done in time.
SELECT {schema}.hold_head(%(stream)s::text);

-- name: restore_commands
-- Set rows of command ids to what the events say.
SELECT {schema}.restore_commands(%(commands)s::text[], %(digests)s::bytea[], %(firsts)s::bigint[], %(lasts)s::bigint[],
                                 %(times)s::timestamptz[]);

-- name: remove_commands
-- Remove rows of command ids that point to no event of theirs.
SELECT {schema}.remove_commands(%(commands)s::text[]);
