-- The append to one stream. append_one is the lean path of one event; append_stream is for all else.

-- Append events to one stream with any expectation, all or nothing; n >= 1 of them, as arrays. The order of locks, what
-- is expected and the outcomes are those of append_many, of which this is the case of one stream.
--
-- p_base: the version that p_state was folded from; where the stream has moved on since (`any`, guard), the head keeps
--   its older state and readers fold the rest. p_wanted, p_token: the guard. p_set_token: a new lease token, 0 clears it.
-- outcome: recorded | conflict | guard | repeated | reused. position: of the first event, 0 where nothing was recorded.
-- version: the stream's after the append, or the one found instead; found_*: what a guard found.
CREATE OR REPLACE FUNCTION append_stream(
    p_stream text, p_expected bigint, p_topics text[], p_schemas smallint[], p_datas text[], p_raws bytea[], p_metas text[],
    p_meta jsonb, p_head boolean, p_status text, p_state text, p_state_schema integer, p_base bigint, p_set_token bigint,
    p_wanted text[], p_token bigint, p_command text, p_digest bytea,
    OUT "position" bigint, OUT version bigint, OUT recorded_at timestamptz, OUT outcome text,
    OUT found_status text, OUT found_token bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan
    SET enable_seqscan = off AS $$
DECLARE
    n CONSTANT integer := cardinality(p_topics);
    last_position bigint;
    before bigint;
    made boolean := false; -- whether the head was made to be locked
    head heads;
BEGIN
    IF (n > 0 AND p_expected >= -3 AND p_head IS NOT NULL) IS NOT TRUE THEN
        RAISE SQLSTATE '22023' USING
            MESSAGE = 'append_stream wants events, what is expected of the stream, and whether it has a head';
    END IF;
    PERFORM begin_append();
    IF p_command IS NOT NULL THEN
        SELECT r.outcome, r.first_position, r.last_position, r.recorded_at
          INTO outcome, position, last_position, recorded_at
          FROM recorded_by(p_command, p_digest) r;
        IF outcome IS NOT NULL THEN
            version := coalesce((SELECT max(e.version) FROM events e WHERE e.stream = p_stream AND
                                 e.position BETWEEN append_stream.position AND last_position), 0);
            RETURN;
        END IF;
    END IF;
    IF p_head OR p_expected = -3 THEN
        made := EXISTS (SELECT ensure_heads(ARRAY[p_stream]));
        SELECT h.* INTO head FROM heads h WHERE h.stream = p_stream FOR NO KEY UPDATE;
    END IF;
    LOOP
        before := greatest(head.version, last_version(p_stream));
        recorded_at := clock_timestamp();
        outcome := refusal(p_expected, p_wanted, p_token, before, head.version, head.status, head.token);
        IF outcome IS NOT NULL THEN
            position := 0;
            version := before;
            found_status := head.status;
            found_token := head.token;
            IF made THEN
                DELETE FROM heads h WHERE h.stream = p_stream;
            END IF;
            RETURN;
        END IF;
        -- The position is taken only now, so that positions of a stream ascend with its versions.
        position := take_block(n);
        IF position + n - 1 > 281474976710655 THEN
            PERFORM refuse_last_position();
        END IF;
        INSERT INTO events (position, recorded_at, version, schema, stream, topic, data, raw, meta)
        VALUES (append_stream.position, append_stream.recorded_at, before + 1, p_schemas[1], p_stream, p_topics[1],
                p_datas[1]::jsonb, p_raws[1], coalesce(p_metas[1]::jsonb, p_meta))
        ON CONFLICT ON CONSTRAINT events_stream_version DO NOTHING;
        EXIT WHEN FOUND;
        -- An append without a head came between: look again.
    END LOOP;
    IF n > 1 THEN -- nobody else can append behind the first event before this transaction ends
        INSERT INTO events (position, recorded_at, version, schema, stream, topic, data, raw, meta)
        SELECT append_stream.position + e.i - 1, append_stream.recorded_at, before + e.i, e.schema, p_stream, e.topic,
               e.data::jsonb, e.raw, coalesce(e.meta::jsonb, p_meta)
          FROM unnest(p_topics, p_schemas, p_datas, p_raws, p_metas) WITH ORDINALITY e (topic, schema, data, raw, meta, i)
         WHERE e.i > 1;
    END IF;
    version := before + n;
    IF p_head THEN
        UPDATE heads h
           SET version = append_stream.version,
               status = status_after(h.version, h.status, before, p_status),
               token = token_after(h.token, p_set_token),
               state = CASE WHEN u.fits THEN stamped(p_state, append_stream.recorded_at) ELSE h.state END,
               state_version = CASE WHEN u.fits THEN append_stream.version ELSE h.state_version END,
               state_schema = CASE WHEN u.fits THEN p_state_schema ELSE h.state_schema END
          FROM (SELECT takes_state(p_state, p_base, before) AS fits) u
         WHERE h.stream = p_stream;
    ELSIF made THEN
        DELETE FROM heads h WHERE h.stream = p_stream;
    END IF;
    IF p_command IS NOT NULL THEN
        INSERT INTO commands (command, digest, first_position, last_position, recorded_at)
        VALUES (p_command, p_digest, position, position + n - 1, recorded_at);
    END IF;
    outcome := 'recorded';
    IF has_effects() THEN -- nothing is done as the owner after them: 3_effects.sql says why
        last_position := position + n - 1;
        PERFORM apply_effects(position, last_position);
    END IF;
END $$;

-- What append_one returns, like append_stream. A type with a name costs an append 4 % less than OUT parameters, of which
-- plpgsql makes a type at every call. An append_one that returned them is replaced.
DO $$
BEGIN
    IF to_regtype('appended') IS NULL THEN
        CREATE TYPE appended AS ("position" bigint, version bigint, recorded_at timestamptz, outcome text,
                                 found_status text, found_token bigint);
        DROP FUNCTION IF EXISTS append_one(text, bigint, text, smallint, jsonb, bytea, jsonb, boolean, text, text, integer,
                                           text[], bigint);
    END IF;
END $$;

-- Append one event to one stream, the common case, for a transaction of its own: an exact version, any, exists, or a
-- guard; a state only with an exact version, which it was folded from. Outcomes are those of append_stream.
--
-- Ordinarily it is one statement, which locks the head, checks it, takes a position and records. Each case has a
-- statement of its own, because PostgreSQL prepares every part of an expression anew in every transaction. Their plans
-- are the same for all values, because planning a call anew costs half an append. Where the statement finds no row,
-- append_stream says why, or records.
--
-- The position is taken while the head is locked, or after the version before was seen committed, so that positions of
-- a stream ascend with its versions.
--
-- It raises unique_violation on events_stream_version where the head is behind the events (an append without a head came
-- between): nothing is recorded then, and the caller calls append_stream. A caller who does not want its transaction to
-- fail calls append_stream at once. ON CONFLICT in its place would cost every append 8 %.
CREATE OR REPLACE FUNCTION append_one(
    p_stream text, p_expected bigint, p_topic text, p_schema smallint, p_data jsonb, p_raw bytea, p_meta jsonb,
    p_head boolean DEFAULT false, p_status text DEFAULT NULL, p_state text DEFAULT NULL,
    p_state_schema integer DEFAULT NULL, p_wanted text[] DEFAULT NULL, p_token bigint DEFAULT NULL)
RETURNS appended LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    done appended;
BEGIN
    -- The commonest cases first, and few operators: each in a condition costs an append 1 %.
    IF p_head THEN
        IF p_expected > 0 THEN
            IF p_state IS NULL THEN
                WITH head AS (
                    UPDATE heads h SET version = p_expected + 1, status = coalesce(p_status, h.status)
                     WHERE h.stream = p_stream AND h.version = p_expected AND begin_append()
                    RETURNING h.version)
                INSERT INTO events (position, recorded_at, version, schema, stream, topic, data, raw, meta)
                SELECT take_position(), clock_timestamp(), head.version, p_schema, p_stream, p_topic, p_data, p_raw, p_meta
                  FROM head
                RETURNING events.position, events.version, events.recorded_at, 'recorded'
                  INTO done.position, done.version, done.recorded_at, done.outcome;
            ELSE
                done.recorded_at := clock_timestamp();
                WITH head AS (
                    UPDATE heads h SET version = p_expected + 1, status = coalesce(p_status, h.status),
                                       state_version = p_expected + 1, state_schema = p_state_schema,
                                       state = stamped(p_state, done.recorded_at)
                     WHERE h.stream = p_stream AND h.version = p_expected AND begin_append()
                    RETURNING h.version)
                INSERT INTO events (position, recorded_at, version, schema, stream, topic, data, raw, meta)
                SELECT take_position(), done.recorded_at, head.version, p_schema, p_stream, p_topic, p_data, p_raw, p_meta
                  FROM head
                RETURNING events.position, events.version, events.recorded_at, 'recorded'
                  INTO done.position, done.version, done.recorded_at, done.outcome;
            END IF;
        ELSIF p_expected BETWEEN -3 AND -1 AND p_state IS NULL THEN
            WITH head AS (
                UPDATE heads h SET version = h.version + 1, status = coalesce(p_status, h.status)
                 WHERE h.stream = p_stream AND (p_wanted IS NULL OR h.status = ANY (p_wanted))
                   AND (p_token IS NULL OR h.token = p_token) AND begin_append() -- null where there is no guard
                RETURNING h.version)
            INSERT INTO events (position, recorded_at, version, schema, stream, topic, data, raw, meta)
            SELECT take_position(), clock_timestamp(), head.version, p_schema, p_stream, p_topic, p_data, p_raw, p_meta
              FROM head
            RETURNING events.position, events.version, events.recorded_at, 'recorded'
              INTO done.position, done.version, done.recorded_at, done.outcome;
            IF done.position IS NULL AND p_expected = -1 THEN -- a new stream
                WITH head AS (
                    INSERT INTO heads (stream, version, status)
                    SELECT p_stream, 1, p_status
                     WHERE NOT EXISTS (SELECT FROM events e WHERE e.stream = p_stream) AND begin_append()
                    ON CONFLICT DO NOTHING
                    RETURNING 1)
                INSERT INTO events (position, recorded_at, version, schema, stream, topic, data, raw, meta)
                SELECT take_position(), clock_timestamp(), 1, p_schema, p_stream, p_topic, p_data, p_raw, p_meta FROM head
                RETURNING events.position, events.version, events.recorded_at, 'recorded'
              INTO done.position, done.version, done.recorded_at, done.outcome;
            END IF;
        ELSIF p_expected = 0 THEN
            done.recorded_at := clock_timestamp();
            WITH head AS (
                INSERT INTO heads (stream, version, status, state, state_version, state_schema)
                SELECT p_stream, 1, p_status, stamped(p_state, done.recorded_at),
                       CASE WHEN p_state IS NULL THEN 0 ELSE 1 END, CASE WHEN p_state IS NOT NULL THEN p_state_schema END
                 WHERE begin_append()
                ON CONFLICT DO NOTHING
                RETURNING 1)
            INSERT INTO events (position, recorded_at, version, schema, stream, topic, data, raw, meta)
            SELECT take_position(), done.recorded_at, 1, p_schema, p_stream, p_topic, p_data, p_raw, p_meta FROM head
            RETURNING events.position, events.version, events.recorded_at, 'recorded'
              INTO done.position, done.version, done.recorded_at, done.outcome;
        END IF;
    ELSIF NOT p_head THEN -- the events themselves are asked
        IF p_expected > 0 THEN
            INSERT INTO events (position, recorded_at, version, schema, stream, topic, data, raw, meta)
            SELECT take_position(), clock_timestamp(), e.version + 1, p_schema, p_stream, p_topic, p_data, p_raw, p_meta
              FROM events e WHERE e.stream = p_stream AND e.version = p_expected AND begin_append()
            ON CONFLICT ON CONSTRAINT events_stream_version DO NOTHING
            RETURNING events.position, events.version, events.recorded_at, 'recorded'
              INTO done.position, done.version, done.recorded_at, done.outcome;
        ELSIF p_expected IN (-1, -2) THEN
            INSERT INTO events (position, recorded_at, version, schema, stream, topic, data, raw, meta)
            SELECT take_position(), clock_timestamp(), e.version + 1, p_schema, p_stream, p_topic, p_data, p_raw, p_meta
              FROM (SELECT f.version FROM events f WHERE f.stream = p_stream ORDER BY f.version DESC LIMIT 1) e
             WHERE begin_append()
            ON CONFLICT ON CONSTRAINT events_stream_version DO NOTHING
            RETURNING events.position, events.version, events.recorded_at, 'recorded'
              INTO done.position, done.version, done.recorded_at, done.outcome;
        END IF;
        IF done.position IS NULL AND p_expected IN (0, -1) THEN -- a new stream
            INSERT INTO events (position, recorded_at, version, schema, stream, topic, data, raw, meta)
            SELECT take_position(), clock_timestamp(), 1, p_schema, p_stream, p_topic, p_data, p_raw, p_meta
             WHERE begin_append()
            ON CONFLICT ON CONSTRAINT events_stream_version DO NOTHING
            RETURNING events.position, events.version, events.recorded_at, 'recorded'
              INTO done.position, done.version, done.recorded_at, done.outcome;
        END IF;
    END IF;
    -- has_effects() is named here itself, because a plan does not see that a constant inside another function changed.
    IF done.position <= 281474976710655 AND NOT has_effects() THEN
        RETURN done;
    ELSIF done.position > 281474976710655 THEN
        PERFORM refuse_last_position();
    ELSIF done.position > 0 THEN
        PERFORM apply_effects(done.position, done.position); -- nothing is done as the owner after them: 3_effects.sql says why
    ELSE
        SELECT * INTO done
          FROM append_stream(p_stream, p_expected, ARRAY[p_topic], ARRAY[p_schema], ARRAY[p_data::text], ARRAY[p_raw], NULL,
                             p_meta, p_head, p_status, p_state, p_state_schema, p_expected, NULL, p_wanted, p_token,
                             NULL, NULL);
    END IF;
    RETURN done;
END $$;
