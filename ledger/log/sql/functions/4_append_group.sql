-- The commonest appends that wait, in one transaction: one event each, of different streams.

-- Record appends of one event with a head, each of another stream, at an exact version, any or exists; a state only with
-- an exact version, which it was folded from. What append_one is beside append_stream, this is beside append_each: ordinarily
-- every append is recorded, by one statement for all. Returned are position and version of those that were; the time of
-- each is `begun`, plus a microsecond for each place behind `first_position`, so that no two are taken for one.
--
-- An append that is not among them is recorded by nobody and to be sent alone, which says why: its head is locked (nobody's
-- lock is waited for, 4_append_each.sql says why), missing, or at another version.
-- It raises unique_violation on events_stream_version where a head is behind the events: nothing is recorded then, and the
-- caller calls append_each. So it does where a new stream is named twice; of another one that is, one append is recorded.
--
-- Heads are made before others are locked, in the order of their names, and positions are taken after that: the subqueries
-- `made` and `locked` are read to their ends by those that count them.
CREATE OR REPLACE FUNCTION append_group(
    p_streams text[], p_expected bigint[], p_topics text[], p_schemas smallint[], p_datas text[], p_metas text[],
    p_statuses text[], p_states text[], p_state_schemas integer[],
    OUT first_position bigint, OUT begun timestamptz, OUT positions bigint[], OUT versions bigint[])
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan
    SET enable_seqscan = off SET lock_timeout = '50ms' AS $$
DECLARE
    n CONSTANT integer := cardinality(p_streams);
BEGIN
    IF (n > 0) IS NOT TRUE THEN
        RAISE SQLSTATE '22023' USING MESSAGE = 'append_group wants appends, each with a stream';
    END IF;
    PERFORM begin_append();
    begun := clock_timestamp();
    WITH given AS MATERIALIZED (
        SELECT a.*, begun + (a.i - 1) * interval '1 microsecond' AS at
          FROM unnest(p_streams, p_expected, p_topics, p_schemas, p_datas, p_metas, p_statuses, p_states, p_state_schemas)
               WITH ORDINALITY a (stream, expected, topic, schema, data, meta, status, state, state_schema, i)),
    made AS (
        INSERT INTO heads (stream, version, status, state, state_version, state_schema)
        SELECT a.stream, 1, a.status, stamped(a.state, a.at), CASE WHEN a.state IS NULL THEN 0 ELSE 1 END,
               CASE WHEN a.state IS NOT NULL THEN a.state_schema END
          FROM given a
         WHERE a.expected IN (-1, 0) AND NOT EXISTS (SELECT FROM heads h WHERE h.stream = a.stream)
         ORDER BY a.stream COLLATE "C"
        ON CONFLICT DO NOTHING
        RETURNING stream),
    locked AS MATERIALIZED (
        SELECT a.*
          FROM given a JOIN heads h ON h.stream = a.stream
         WHERE (SELECT count(*) FROM made) >= 0
         ORDER BY a.stream COLLATE "C" FOR NO KEY UPDATE OF h SKIP LOCKED),
    changed AS (
        UPDATE heads h
           SET version = h.version + 1, status = coalesce(a.status, h.status),
               state = CASE WHEN a.state IS NULL THEN h.state ELSE stamped(a.state, a.at) END,
               state_version = CASE WHEN a.state IS NULL THEN h.state_version ELSE h.version + 1 END,
               state_schema = CASE WHEN a.state IS NULL THEN h.state_schema ELSE a.state_schema END
          FROM locked a
         WHERE h.stream = a.stream AND (a.expected IN (-1, -2) OR h.version = a.expected)
        RETURNING a.*, h.version),
    block AS MATERIALIZED (
        SELECT take_block(n) AS first FROM (SELECT count(*) FROM locked) l),
    recorded AS (
        INSERT INTO events (position, recorded_at, version, schema, stream, topic, data, meta)
        SELECT block.first + a.i - 1, a.at, a.version, a.schema, a.stream, a.topic, a.data::jsonb, a.meta::jsonb
          FROM block, (SELECT * FROM changed UNION ALL SELECT g.*, 1 FROM made m JOIN given g ON g.stream = m.stream) a
        RETURNING events.position, events.version)
    SELECT (SELECT block.first FROM block), array_agg(r.position), array_agg(r.version)
      INTO first_position, positions, versions
      FROM recorded r;
    IF first_position + n - 1 > 281474976710655 THEN
        PERFORM refuse_last_position();
    END IF;
    IF positions IS NOT NULL AND has_effects() THEN -- nothing is done as the owner after them: 3_effects.sql says why
        PERFORM apply_effects(first_position, first_position + n - 1);
    END IF;
END $$;
