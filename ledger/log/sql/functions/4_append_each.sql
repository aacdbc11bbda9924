-- Many appends that know nothing of each other, in one transaction: they share its commit.

-- Record appends, each of its own with an outcome of its own: a conflict of one touches no other.
--
-- p_appends: [{stream, expected, head, count, wanted?, token?, status?, base?, schema?, set_token?, command?, digest?}],
--   one stream each, as in append_many; several may name the same stream, and are then recorded in this order. digest
--   is in hex. p_states, p_metas: the state after it, and its metadata.
-- Events as arrays, those of the first append first; p_event_metas overrides p_metas event by event.
-- outcomes: recorded | conflict | guard | repeated | reused, as of append_one and append_many, and `alone`: it would have
--   to wait for a lock, or its command id is in this call twice, and nothing of it was recorded: send it alone.
-- positions: of its first event; 0 where it has none. versions: after it, or the one found instead. times: recorded_at.
-- statuses, tokens: those found. Only these two hold nulls, so that a client can read the others at fixed offsets.
--
-- It waits for nobody's lock, so that one append with a locked stream does not hold back the others; and so that a
-- thread that has such a lock, and whose next append is in this call, does not wait for itself, where PostgreSQL could
-- not see it. Locks are taken in the order of append_many. Only a stream that somebody else creates at the same moment
-- has no row to be skipped, hence the lock_timeout, which also bounds what an effect waits for.
--
-- The decisions are made one after the other, so that each sees the version, status and token that the one before left;
-- then all events and all heads are written by one statement each. Each append has a time of its own, a microsecond
-- after the one before: two appends would be taken for one by recorded_with().
-- Anything that is raised records nothing of any of them.
CREATE OR REPLACE FUNCTION append_each(
    p_appends jsonb, p_states text[], p_metas text[], p_topics text[], p_schemas smallint[], p_datas text[],
    p_raws bytea[], p_event_metas text[],
    OUT outcomes text[], OUT positions bigint[], OUT versions bigint[], OUT times timestamptz[], OUT statuses text[],
    OUT tokens bigint[])
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan
    SET enable_seqscan = off SET lock_timeout = '50ms' AS $$
DECLARE
    begun CONSTANT timestamptz := clock_timestamp();
    fits boolean;
    may boolean[];         -- whether the lock of its command id is ours
    names text[];          -- the streams whose heads are wanted
    made text[];           -- those of them that had none
    counts integer[];
    starts integer[];      -- the number of events before its own in p_topics
    one record;
    outcome text;
    stream text;           -- the stream of the append before, and what that left
    version bigint;
    fresh boolean;         -- it has no head yet
    head_version bigint;
    status text;
    token bigint;
    n bigint := 0;         -- events to record so far
    appends integer := 0;  -- appends to record so far
    places bigint[];       -- n before its own, null where it is not recorded
    changed integer := 0;  -- heads to write so far, and what is written
    head_streams text[];
    head_versions bigint[];
    head_statuses text[];
    head_tokens bigint[];
    head_states integer[]; -- the append whose state it is
    command_ids text[];
    command_of integer[];
    digests bytea[];
    first_position bigint;
    written bigint;
BEGIN
    PERFORM begin_append();
    SELECT array_agg(a.count ORDER BY a.i), array_agg(a.start ORDER BY a.i),
           array_agg(DISTINCT a.stream) FILTER (WHERE a.head OR a.expected = -3),
           array_agg(a.command IS NULL OR pg_try_advisory_xact_lock(lock_class()::integer, hashtext(a.command)) ORDER BY a.i),
           sum(a.count) = cardinality(p_topics)
           AND bool_and(coalesce(a.stream <> '' AND a.count > 0 AND a.expected >= -3 AND a.head IS NOT NULL, false))
      INTO counts, starts, names, may, fits
      FROM (SELECT s.*, sum(s.count) OVER (ORDER BY s.i) - s.count AS start
              FROM ROWS FROM (jsonb_to_recordset(p_appends)
                   AS (stream text, expected bigint, head boolean, count integer, command text)) WITH ORDINALITY
                   s (stream, expected, head, count, command, i)) a;
    IF fits IS NOT TRUE THEN
        RAISE SQLSTATE '22023' USING MESSAGE = 'append_each wants appends, each with a stream, what is expected of it, '
                                               'whether it has a head, and the count of its events, one or more';
    END IF;
    made := ARRAY(SELECT ensure_heads(names));
    outcomes := array_fill(NULL::text, ARRAY[cardinality(counts)]);
    positions := array_fill(0::bigint, ARRAY[cardinality(counts)]);
    versions := positions;
    times := array_fill(begun, ARRAY[cardinality(counts)]);
    places := array_fill(NULL::bigint, ARRAY[cardinality(counts)]);
    statuses := outcomes;
    tokens := places;
    FOR one IN
        WITH locked AS MATERIALIZED (
            SELECT h.* FROM heads h WHERE h.stream = ANY (names) ORDER BY h.stream FOR NO KEY UPDATE SKIP LOCKED)
        SELECT s.*, h.stream IS NOT NULL AS locked, h.version AS head_version, h.status AS head_status, h.token AS head_token,
               greatest(h.version, last_version(s.stream)) AS version, c.digest AS known, c.first_position, c.last_position,
               c.recorded_at
          FROM ROWS FROM (jsonb_to_recordset(p_appends)
               AS (stream text, expected bigint, head boolean, count integer, wanted text[], token bigint, status text,
                   base bigint, schema integer, set_token bigint, command text, digest text)) WITH ORDINALITY
               s (stream, expected, head, count, wanted, token, status, base, schema, set_token, command, digest, i)
          LEFT JOIN locked h ON h.stream = s.stream
          LEFT JOIN commands c ON c.command = s.command
         ORDER BY s.stream COLLATE "C", s.i
    LOOP
        IF stream IS DISTINCT FROM one.stream THEN
            stream := one.stream;
            version := one.version;
            fresh := stream = ANY (made);
            head_version := one.head_version;
            status := one.head_status;
            token := one.head_token;
        END IF;
        outcome := CASE
            WHEN NOT may[one.i] THEN 'alone'
            WHEN one.known IS NOT NULL THEN CASE WHEN one.known = decode(one.digest, 'hex') THEN 'repeated' ELSE 'reused' END
            WHEN (one.head OR one.expected = -3) AND NOT one.locked OR one.command = ANY (command_ids) THEN 'alone'
            ELSE coalesce(refusal(one.expected, one.wanted, one.token, version, head_version, status, token), 'recorded') END;
        outcomes[one.i] := outcome;
        IF outcome = 'recorded' THEN
            times[one.i] := begun + appends * interval '1 microsecond';
            places[one.i] := n;
            appends := appends + 1;
            n := n + one.count;
            IF one.command IS NOT NULL THEN
                command_ids := command_ids || one.command;
                command_of := command_of || one.i::integer;
                digests := digests || decode(one.digest, 'hex');
            END IF;
            IF one.head THEN
                IF changed = 0 OR head_streams[changed] <> stream THEN
                    changed := changed + 1;
                    head_streams[changed] := stream;
                    head_states[changed] := NULL;
                END IF;
                status := status_after(head_version, status, version, one.status);
                token := token_after(token, one.set_token);
                head_version := version + one.count;
                head_versions[changed] := head_version;
                head_statuses[changed] := status;
                head_tokens[changed] := token;
                IF takes_state(p_states[one.i], one.base, version) THEN
                    head_states[changed] := one.i;
                END IF;
                fresh := false;
            ELSIF fresh THEN -- the head that the next one makes is not behind
                head_version := version + one.count;
            END IF;
            version := version + one.count;
        ELSIF outcome = 'guard' THEN
            statuses[one.i] := status;
            tokens[one.i] := token;
        ELSIF outcome = 'repeated' THEN
            positions[one.i] := one.first_position;
            times[one.i] := one.recorded_at;
        END IF;
        versions[one.i] := CASE WHEN outcome <> 'repeated' THEN version ELSE (
            SELECT max(e.version) FROM events e
             WHERE e.position BETWEEN one.first_position AND one.last_position AND e.stream = one.stream) END;
    END LOOP;
    IF n > 0 THEN
        first_position := take_block(n);
        IF first_position + n - 1 > 281474976710655 THEN
            PERFORM refuse_last_position();
        END IF;
        INSERT INTO events (position, recorded_at, version, schema, stream, topic, data, raw, meta)
        SELECT first_position + a.place + nth - 1, a.at, a.version - a.count + nth, e.schema, a.stream, e.topic, e.data::jsonb,
               e.raw, coalesce(e.meta, a.meta)::jsonb
          FROM ROWS FROM (jsonb_to_recordset(p_appends) AS (stream text), unnest(counts), unnest(starts), unnest(places),
                          unnest(versions), unnest(times), unnest(p_metas))
               a (stream, count, start, place, version, at, meta)
         CROSS JOIN LATERAL generate_series(1, a.count) nth
          JOIN unnest(p_topics, p_schemas, p_datas, p_raws, p_event_metas) WITH ORDINALITY e (topic, schema, data, raw, meta, i)
               ON e.i = a.start + nth
         WHERE a.place IS NOT NULL
         ORDER BY a.place, nth
        ON CONFLICT ON CONSTRAINT events_stream_version DO NOTHING;
        GET DIAGNOSTICS written = ROW_COUNT;
        IF written <> n THEN
            RAISE EXCEPTION 'an append without heads came between' USING ERRCODE = 'serialization_failure';
        END IF;
        UPDATE heads h
           SET version = s.version, status = s.status, token = s.token,
               state = CASE WHEN s.of IS NULL THEN h.state ELSE stamped(p_states[s.of], times[s.of]) END,
               state_version = coalesce(versions[s.of], h.state_version),
               state_schema = CASE WHEN s.of IS NULL THEN h.state_schema ELSE (p_appends->(s.of - 1)->>'schema')::integer END
          FROM unnest(head_streams, head_versions, head_statuses, head_tokens, head_states)
               s (stream, version, status, token, of)
         WHERE h.stream = s.stream;
        INSERT INTO commands (command, digest, first_position, last_position, recorded_at)
        SELECT c.id, c.digest, first_position + places[c.of], first_position + places[c.of] + counts[c.of] - 1, times[c.of]
          FROM unnest(command_ids, digests, command_of) c (id, digest, of);
        positions := (SELECT array_agg(coalesce(first_position + p.place, p.position) ORDER BY p.i)
                        FROM unnest(places, positions) WITH ORDINALITY p (place, position, i));
    END IF;
    IF made <> '{}' THEN -- a stream whose appends were all refused must leave no head
        DELETE FROM heads h WHERE h.stream = ANY (made) AND (changed = 0 OR h.stream <> ALL (head_streams));
    END IF;
    IF n > 0 AND has_effects() THEN -- nothing is done as the owner after them: 3_effects.sql says why
        PERFORM apply_effects(first_position, first_position + n - 1);
    END IF;
END $$;
