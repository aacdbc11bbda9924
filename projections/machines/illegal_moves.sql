-- The moves of a machine that its definitions do not allow.

-- name: judged_moves
-- The common part of illegal_moves and illegal_pairs: the moves of a machine, each with its errors. allowed:
-- the transitions of definition `number` under 0, and those of each definition under its own number; begins: their
-- initial states. before: the state of the object, which before its first move is the initial state of the definition
-- that the move names. A history may begin, from nothing, with the initial state. A history that was adopted from a
-- table may lack the state before its first move: then that is the initial state.
WITH allowed AS MATERIALIZED (
    SELECT number, from_state, to_state
      FROM unnest(%(numbers)s::integer[], %(from_states)s::text[], %(to_states)s::text[]) a (number, from_state, to_state)
), begins AS MATERIALIZED (
    SELECT number, initial_state FROM unnest(%(defined)s::integer[], %(initial_states)s::text[]) b (number, initial_state)
), read AS (
    SELECT e.stream, e.version, e.position, e.recorded_at, e.data ->> 'from_state' AS from_state,
           e.data ->> 'to_state' AS to_state, {schema}.whole_number(e.data, 'definition') AS definition
      FROM {schema}.events e
     WHERE e.stream >= %(low)s AND e.stream < %(high)s AND e.topic = %(topic)s AND e.position <= %(bound)s
), moves AS (
    SELECT r.*, lag(r.to_state) OVER (PARTITION BY r.stream ORDER BY r.version) AS before,
           CASE WHEN r.from_state IS NULL AND r.version = 1 AND r.definition = 0 AND r.to_state <> i.initial_state
                THEN i.initial_state ELSE r.from_state END AS came
      FROM read r CROSS JOIN (SELECT initial_state FROM begins WHERE number = 0) i
), judged AS (
    SELECT m.stream, m.version, m.position, m.recorded_at, m.from_state, m.to_state, m.definition,
           coalesce(m.before, b.initial_state, i.initial_state) AS stood,
           CASE WHEN m.came IS NULL THEN m.to_state IS DISTINCT FROM i.initial_state
                ELSE a.number IS NULL END AS not_allowed,
           CASE WHEN m.version = 1 AND m.from_state IS NULL THEN false
                ELSE m.from_state IS DISTINCT FROM coalesce(m.before, b.initial_state, i.initial_state) END AS not_there,
           CASE WHEN m.definition = 0 THEN false
                WHEN m.from_state IS NULL THEN m.to_state IS DISTINCT FROM b.initial_state
                ELSE o.number IS NULL END AS not_then
      FROM moves m
      LEFT JOIN allowed a ON a.number = 0 AND a.from_state = m.came AND a.to_state = m.to_state
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
-- How many there are of each kind, the most frequent first.
SELECT from_state, to_state, not_allowed, not_there, not_then, count(*), count(DISTINCT stream), min(recorded_at),
       max(recorded_at)
  FROM illegal GROUP BY 1, 2, 3, 4, 5 ORDER BY 6 DESC, 1, 2;
