-- Which stream is in which state now: one row per stream that ever moved, set by its last move. {in_state} is
-- the table.

-- name: tables
-- since: the time of the move that led there, at `version` of the stream and `position` of the log.
CREATE TABLE {in_state} (
    position bigint      NOT NULL,
    since    timestamptz NOT NULL,
    version  bigint      NOT NULL,
    category text        COLLATE "C" NOT NULL,
    status   text        COLLATE "C" NOT NULL,
    stream   text        COLLATE "C" PRIMARY KEY
) WITH (fillfactor = 80);

-- name: indexes
-- The streams in a state, longest stay first; and the latest changes.
CREATE INDEX ON {in_state} (category, status, since);
CREATE INDEX ON {in_state} (position);

-- name: apply
-- The last move of each stream in the batch; the higher version wins, whatever the order of batches.
INSERT INTO {in_state} AS s (position, since, version, category, status, stream)
SELECT DISTINCT ON (e.stream) e.position, e.recorded_at, e.version, split_part(e.stream, '/', 1),
       coalesce(m.status, e.data ->> m.field), e.stream
  FROM {batch} e JOIN {ledger}.topic_statuses m USING (topic)
 WHERE m.status IS NOT NULL OR e.data ->> m.field IS NOT NULL
 ORDER BY e.stream, e.version DESC
ON CONFLICT (stream) DO UPDATE
   SET position = excluded.position, since = excluded.since, version = excluded.version, status = excluded.status
 WHERE s.version < excluded.version;

-- name: forget
-- Remove the rows of streams.
DELETE FROM {in_state} WHERE stream IN {streams};

-- name: reads
-- How many streams are in each state; and the streams in given states, for joins in a user's own SQL.
CREATE OR REPLACE VIEW {views}.in_state_counts AS
SELECT category, status, count(*) AS streams, min(since) AS longest FROM {in_state} GROUP BY category, status;

CREATE OR REPLACE FUNCTION {views}.streams_in(p_category text, VARIADIC p_statuses text[])
RETURNS TABLE (stream text, status text, since timestamptz, version bigint, "position" bigint)
LANGUAGE sql STABLE PARALLEL SAFE AS $$
    SELECT s.stream, s.status, s.since, s.version, s.position FROM {in_state} s
     WHERE s.category = p_category AND s.status = ANY (p_statuses)
$$;
GRANT SELECT ON {views}.in_state_counts TO {reader};
GRANT EXECUTE ON FUNCTION {views}.streams_in TO {reader};

-- Machines, for people without Python. What a machine allows is what the last event of the stream
-- machine/NAME says; in a schema of the past, the last one then: that schema, of another name, has events of
-- its own. An object that never moved is in no table of the ledger: only state_of, which is asked for one
-- object, knows it.
CREATE OR REPLACE FUNCTION {views}.last_of_stream(p_stream text, OUT topic text, OUT data jsonb)
LANGUAGE plpgsql STABLE AS $$
BEGIN
    IF replace('{views}', '"', '') = replace('{ledger}', '"', '') || '_views' THEN
        SELECT e.topic, e.data INTO topic, data FROM {ledger}.events e
         WHERE e.stream = p_stream ORDER BY e.version DESC LIMIT 1;
    ELSE
        SELECT e.topic, e.data INTO topic, data FROM {views}.events e
         WHERE e.stream = p_stream ORDER BY e.version DESC LIMIT 1;
    END IF;
END $$;

CREATE OR REPLACE FUNCTION {views}.machine_definition(p_machine text) RETURNS jsonb
LANGUAGE plpgsql STABLE AS $$
DECLARE
    defined jsonb := (SELECT l.data FROM {views}.last_of_stream({ledger}.stream_name('machine', p_machine)) l);
BEGIN
    IF defined IS NULL THEN
        RAISE SQLSTATE '22023' USING
            MESSAGE = 'no machine is named ' || coalesce(quote_literal(p_machine), 'null'),
            HINT = 'A machine is known to the ledger once an object moved.';
    END IF;
    RETURN defined;
END $$;

CREATE OR REPLACE FUNCTION {views}.checked_states(p_machine text, p_states text[]) RETURNS text[]
LANGUAGE plpgsql STABLE AS $$
DECLARE
    declared jsonb := {views}.machine_definition(p_machine) -> 'states';
    wrong text := (SELECT coalesce(quote_literal(u.state), 'null') FROM unnest(p_states) u (state)
                    WHERE u.state IS NULL OR NOT (declared ? u.state OR EXISTS (
                          SELECT FROM {in_state} s WHERE s.category = p_machine AND s.status = u.state COLLATE "C"))
                    LIMIT 1);
BEGIN
    IF wrong IS NOT NULL OR coalesce(cardinality(p_states), 0) = 0 THEN
        RAISE SQLSTATE '22023' USING
            MESSAGE = coalesce('machine ' || p_machine || ' has no state ' || wrong, 'name one or more states of ' || p_machine),
            HINT = 'Its states: ' || (SELECT string_agg(d.state, ', ' ORDER BY d.nth)
                                       FROM jsonb_array_elements_text(declared) WITH ORDINALITY d (state, nth));
    END IF;
    RETURN p_states;
END $$;

CREATE OR REPLACE FUNCTION {views}.objects_in_longer_than(p_machine text, p_longer interval, VARIADIC p_states text[])
RETURNS TABLE (key text[], id text, state text, since timestamptz, version bigint, "position" bigint)
LANGUAGE plpgsql STABLE AS $$
DECLARE
    wanted text[] := {views}.checked_states(p_machine, p_states);
BEGIN
    RETURN QUERY
    SELECT k.parts, k.parts[1], s.status, s.since, s.version, s.position
      FROM {in_state} s
     CROSS JOIN LATERAL (
           SELECT CASE WHEN strpos(s.stream, chr(37)) = 0 THEN (string_to_array(s.stream, '/'))[2:]
                       ELSE {ledger}.key_of(s.stream) END AS parts) k
     WHERE s.category = p_machine COLLATE "C" AND s.status = ANY (wanted COLLATE "C")
       AND s.since < CASE WHEN p_longer IS NULL THEN 'infinity' ELSE now() - p_longer END;
END $$;

CREATE OR REPLACE FUNCTION {views}.objects_in(p_machine text, VARIADIC p_states text[])
RETURNS TABLE (key text[], id text, state text, since timestamptz, version bigint, "position" bigint)
LANGUAGE sql STABLE AS $$
    SELECT * FROM {views}.objects_in_longer_than(p_machine, NULL, VARIADIC p_states)
$$;

CREATE OR REPLACE FUNCTION {views}.machine_states(p_machine text)
RETURNS TABLE (state text, objects bigint, longest timestamptz, initial boolean, declared boolean)
LANGUAGE plpgsql STABLE AS $$
DECLARE
    defined jsonb := {views}.machine_definition(p_machine);
BEGIN
    RETURN QUERY
    SELECT coalesce(d.state, c.status), coalesce(c.streams, 0), c.longest,
           coalesce(d.state = defined ->> 'initial_state', false), d.state IS NOT NULL
      FROM jsonb_array_elements_text(defined -> 'states') WITH ORDINALITY d (state, nth)
      FULL JOIN (SELECT s.status, s.streams, s.longest FROM {views}.in_state_counts s
                  WHERE s.category = p_machine COLLATE "C") c ON c.status = d.state COLLATE "C"
     ORDER BY d.nth NULLS LAST, c.status;
END $$;

CREATE OR REPLACE FUNCTION {views}.state_of(p_machine text, VARIADIC p_key text[]) RETURNS text
LANGUAGE plpgsql STABLE AS $$
DECLARE
    defined jsonb := {views}.machine_definition(p_machine);
BEGIN
    RETURN coalesce(
        (SELECT coalesce(m.status, l.data ->> m.field)
           FROM {views}.last_of_stream({ledger}.stream_name(p_machine, VARIADIC p_key)) l JOIN {ledger}.topic_statuses m USING (topic)),
        defined ->> 'initial_state');
END $$;
GRANT EXECUTE ON FUNCTION {views}.last_of_stream, {views}.machine_definition, {views}.checked_states,
      {views}.objects_in_longer_than, {views}.objects_in, {views}.machine_states, {views}.state_of TO {reader};
