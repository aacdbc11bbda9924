-- Questions about machines, by name. {schema} is the ledger's schema, {views} that of its views. A machine's name is the
-- category of its objects' streams; every event there is a move.

-- name: machine_objects
-- A page of the objects in some states, by state in the order in which these are given, then by time and name; each
-- state by itself, since the index gives only one in order. What is given of the last page's end is of the first state.
SELECT s.stream, s.status, s.since, s.version, s.position
  FROM unnest(%(states)s::text[]) WITH ORDINALITY w (status, n)
 CROSS JOIN LATERAL (
       SELECT i.stream, i.status, i.since, i.version, i.position
         FROM {views}.in_state i
        WHERE i.category = %(machine)s AND i.status = w.status COLLATE "C"
          AND (%(longer)s::interval IS NULL OR i.since < now() - %(longer)s::interval)
          AND i.since >= CASE WHEN w.n = 1 THEN coalesce(%(since)s::timestamptz, '-infinity') ELSE '-infinity' END
          AND (w.n > 1 OR %(since)s::timestamptz IS NULL
               OR (i.since, i.stream) > (%(since)s::timestamptz, %(stream)s::text COLLATE "C"))
        ORDER BY i.since, i.stream LIMIT %(limit)s) s
 ORDER BY w.n, s.since, s.stream LIMIT %(limit)s;

-- name: machine_counts
-- How many objects are in each state, and since when the first of them is.
SELECT status, streams, longest FROM {views}.in_state_counts WHERE category = %(machine)s;

-- name: machine_states_held
-- The states in which somebody is; from one to the next in the index, whatever number is in each.
WITH RECURSIVE held (status) AS (
    (SELECT status FROM {views}.in_state WHERE category = %(machine)s ORDER BY status LIMIT 1)
    UNION ALL
    SELECT (SELECT i.status FROM {views}.in_state i WHERE i.category = %(machine)s AND i.status > h.status
             ORDER BY i.status LIMIT 1)
      FROM held h WHERE h.status IS NOT NULL)
SELECT status FROM held WHERE status IS NOT NULL;

-- name: objects_held
-- A row where an object of a user's table is held by a condition. Said twice, so that the planner may go either way:
-- from the states' index to the parts of the key, or from the user's row to the name of its stream.
(SELECT FROM (SELECT i.stream{parts} FROM {views}.in_state i WHERE i.category = {machine} AND {held}) s
  WHERE {same} AND s.stream = ({name}) COLLATE "C")

-- name: part_as_text
-- A part of a key. In the default collation, weakly, so that that of the user's column holds, whose index has it.
CASE WHEN strpos(i.stream, chr(37)) = 0 THEN split_part(i.stream, '/', {nth})
     ELSE {schema}.unescaped(split_part(i.stream, '/', {nth})) END COLLATE "default"

-- name: part_as_bigint
-- A part of a key that is an integer of 64 bits; else nothing.
CASE WHEN split_part(i.stream, '/', {nth}) ~ '^(0|-?[1-9][0-9]{{0,18}})$'
     THEN CASE WHEN split_part(i.stream, '/', {nth})::numeric BETWEEN -9223372036854775808 AND 9223372036854775807
               THEN split_part(i.stream, '/', {nth})::bigint END END

-- name: part_as_uuid
-- A part of a key that is a UUID as PostgreSQL and Python write it; else nothing.
CASE WHEN split_part(i.stream, '/', {nth}) ~ '^[0-9a-f]{{8}}(-[0-9a-f]{{4}}){{3}}-[0-9a-f]{{12}}$'
     THEN split_part(i.stream, '/', {nth})::uuid END

-- name: text_in_name
-- A column of text as a part of a stream's name. The sign that psycopg asks to be doubled does no harm twice in a set.
CASE WHEN ({column})::text COLLATE "C" ~ U&'[%%/\0001-\001F\007F\+10FFFF]' THEN {schema}.escaped_part(({column})::text)
     ELSE ({column})::text END

-- name: plain_in_name
-- A column as a part of a stream's name, where it has nothing to escape.
({column})::text

-- name: machine_illegal
-- What illegal_moves and illegal_pairs begin with: the moves of a machine, each with what is wrong with it. allowed:
-- the transitions of definition `number` under 0, and those of each definition under its own number; begins: their
-- initial states. before: where the object stood, which for the first move of all is the initial state of the
-- definition that the move names. A history may begin, from nothing, with the initial state.
WITH allowed AS MATERIALIZED (
    SELECT number, from_state, to_state
      FROM unnest(%(numbers)s::integer[], %(from_states)s::text[], %(to_states)s::text[]) a (number, from_state, to_state)
), begins AS MATERIALIZED (
    SELECT number, initial_state FROM unnest(%(defined)s::integer[], %(initial_states)s::text[]) b (number, initial_state)
), read AS (
    SELECT e.stream, e.version, e.position, e.recorded_at, e.data ->> 'from_state' AS from_state,
           e.data ->> 'to_state' AS to_state, coalesce((e.data ->> 'definition')::integer, 0) AS definition
      FROM {schema}.events e
     WHERE e.stream >= %(low)s AND e.stream < %(high)s AND e.topic = %(topic)s AND e.position <= %(bound)s
), moves AS (
    SELECT r.*, lag(to_state) OVER (PARTITION BY stream ORDER BY version) AS before FROM read r
), judged AS (
    SELECT m.stream, m.version, m.position, m.recorded_at, m.from_state, m.to_state, m.definition,
           coalesce(m.before, b.initial_state, i.initial_state) AS stood,
           CASE WHEN m.from_state IS NULL THEN m.to_state IS DISTINCT FROM i.initial_state
                ELSE a.number IS NULL END AS not_allowed,
           CASE WHEN m.version = 1 AND m.from_state IS NULL THEN false
                ELSE m.from_state IS DISTINCT FROM coalesce(m.before, b.initial_state, i.initial_state) END AS not_there,
           CASE WHEN m.definition = 0 THEN false
                WHEN m.from_state IS NULL THEN m.to_state IS DISTINCT FROM b.initial_state
                ELSE o.number IS NULL END AS not_then
      FROM moves m
      LEFT JOIN allowed a ON a.number = 0 AND a.from_state = m.from_state AND a.to_state = m.to_state
      LEFT JOIN allowed o ON o.number = m.definition AND o.from_state = m.from_state AND o.to_state = m.to_state
                         AND m.definition > 0
      LEFT JOIN begins b ON b.number = m.definition AND m.definition > 0
     CROSS JOIN (SELECT initial_state FROM begins WHERE number = 0) i
), illegal AS (
    SELECT * FROM judged WHERE not_allowed OR not_there OR not_then
)

-- name: illegal_moves
-- Each of them, by stream and version.
SELECT stream, version, position, recorded_at, from_state, to_state, definition, stood, not_allowed, not_there, not_then
  FROM illegal ORDER BY stream, version LIMIT %(limit)s;

-- name: illegal_pairs
-- How many there are of each kind, the most first.
SELECT from_state, to_state, not_allowed, not_there, not_then, count(*), count(DISTINCT stream), min(recorded_at),
       max(recorded_at)
  FROM illegal GROUP BY 1, 2, 3, 4, 5 ORDER BY 6 DESC, 1, 2;
