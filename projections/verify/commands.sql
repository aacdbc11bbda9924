-- commands.py: {schema} is the ledger's schema, {views} that of its views.

-- name: log_ends
-- The first and the last position of the log.
SELECT coalesce(min(position), 0), coalesce(max(position), 0) FROM {schema}.events;

-- name: command_events
-- The events after a position that carry a command id, and the row of that id, in the order of the log. The
-- reader stops when it has enough.
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
-- The end of the append of the event at a position: the last position before another time or command.
WITH here AS (SELECT meta ->> 'command' AS command, recorded_at FROM {schema}.events
               WHERE position <= %(position)s ORDER BY position DESC LIMIT 1)
SELECT coalesce((SELECT n.position - 1 FROM {schema}.events n CROSS JOIN here
                  WHERE n.position > %(position)s
                    AND (n.recorded_at <> here.recorded_at OR n.meta ->> 'command' IS DISTINCT FROM here.command)
                  ORDER BY n.position LIMIT 1),
                (SELECT max(position) FROM {schema}.events), 0);

-- name: command_contents
-- The events of a command id's append, as the digest needs them.
SELECT stream, topic, schema, data::text, raw
  FROM {schema}.events WHERE position BETWEEN %(first)s AND %(last)s ORDER BY stream, version;

-- name: commands_without_events
-- Command ids whose rows point to no event of theirs.
SELECT c.command, c.first_position, c.last_position
  FROM {schema}.commands c
  LEFT JOIN {schema}.events e ON e.position = c.first_position AND e.meta ->> 'command' = c.command
 WHERE e.position IS NULL
 ORDER BY c.command;

-- name: restore_commands
-- Set rows of command ids to what the events record.
SELECT {schema}.restore_commands(%(commands)s::text[], %(digests)s::bytea[], %(firsts)s::bigint[], %(lasts)s::bigint[],
                                 %(times)s::timestamptz[]);

-- name: remove_commands
-- Remove rows of command ids that point to no event of theirs.
SELECT {schema}.remove_commands(%(commands)s::text[]);
