-- What views need of the ledger: how far to go in one batch, the position that commits with it, and what domains
-- declare. The statements of a view itself are its own.

-- The next batch after a position: the last of at most p_limit events up to the bound, how many they are, and the
-- bound, which is asked for before the events are looked at, in a snapshot of its own. p_known as in bound().
CREATE OR REPLACE FUNCTION next_batch(p_after bigint, p_limit integer, p_known bigint,
                                      OUT last bigint, OUT many bigint, OUT safe bigint)
LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT AS $$
BEGIN
    safe := bound(p_known);
    SELECT max(e.position), count(*) INTO last, many
      FROM (SELECT position FROM events WHERE position > p_after ORDER BY position LIMIT p_limit) e
     WHERE e.position <= safe; -- outside, as in the statement read_log
END $$;

-- The number of the last declaration of a move or a set.
CREATE OR REPLACE FUNCTION last_declared() RETURNS integer LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
    SELECT greatest((SELECT coalesce(max(number), 0) FROM moves), (SELECT coalesce(max(number), 0) FROM sets))
$$;

-- Move a copy from one position to another, in the transaction that applies what lies between. Whoever comes second
-- waits for the first, finds the position moved, and is refused: each event is applied once.
-- `ahead` still names what the batch must leave out, since that is applied after this.
-- A copy that must know what topics lead to (p_moves) is refused while there is news of that; one that must be what
-- readers see (p_live), as soon as another one is, or appends keep it.
CREATE OR REPLACE FUNCTION advance_copy(p_view text, p_copy integer, p_from bigint, p_to bigint, p_events bigint,
                                        p_moves boolean, p_live boolean)
RETURNS void LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    known integer;
BEGIN
    UPDATE view_copies
       SET position = p_to, events = events + p_events, updated_at = clock_timestamp(), error = NULL,
           ahead = CASE WHEN ahead = '{}' THEN ahead ELSE ARRAY(SELECT a FROM unnest(ahead) a WHERE a > p_from) END
     WHERE view = p_view AND copy = p_copy AND position = p_from
    RETURNING moves INTO known;
    IF NOT FOUND OR (p_live AND NOT EXISTS (
           SELECT FROM views WHERE name = p_view AND live = p_copy AND NOT inline)) THEN
        RAISE SQLSTATE 'LG007' USING MESSAGE = format('copy %s of view %s is not at position %s', p_copy, p_view, p_from);
    END IF;
    IF p_moves AND known < last_declared() THEN
        RAISE SQLSTATE 'LG008' USING MESSAGE = format('copy %s of view %s does not know all moves', p_copy, p_view);
    END IF;
END $$;

-- Declare the status that a topic leads to; whether that is news. One at a time, so that the numbers of declarations
-- ascend in the order in which they can be seen.
CREATE OR REPLACE FUNCTION declare_move(p_topic text, p_status text, p_field text) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    IF EXISTS (SELECT FROM moves WHERE topic = p_topic AND (status, field) IS NOT DISTINCT FROM (p_status, p_field)) THEN
        RETURN false;
    END IF;
    LOCK TABLE moves IN SHARE ROW EXCLUSIVE MODE;
    INSERT INTO moves AS m (number, topic, status, field)
    SELECT last_declared() + 1, p_topic, p_status, p_field
    ON CONFLICT (topic) DO UPDATE SET status = excluded.status, field = excluded.field, number = excluded.number
     WHERE (m.status, m.field) IS DISTINCT FROM (excluded.status, excluded.field);
    RETURN FOUND;
END $$;

-- Declare a level of a pipeline, and its facts, each [topic, fact, flag, status]; whether that is news. What was declared
-- before stays: fields only grow. News of a level is news of the move that every item begins with, so that the copies of
-- views fold its streams anew.
CREATE OR REPLACE FUNCTION declare_level(
    p_category text, p_parent text, p_children text, p_named boolean, p_ids text[], p_flags text[], p_totals text[],
    p_facts jsonb
) RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    news boolean;
BEGIN
    LOCK TABLE moves IN SHARE ROW EXCLUSIVE MODE;
    INSERT INTO levels AS l (category, parent, children, named, ids, flags, totals)
    VALUES (p_category, p_parent, p_children, p_named, p_ids, p_flags, p_totals)
    ON CONFLICT (category) DO UPDATE
       SET parent = excluded.parent, children = excluded.children, named = excluded.named, ids = excluded.ids,
           flags = ARRAY(SELECT DISTINCT unnest(l.flags || excluded.flags) ORDER BY 1),
           totals = ARRAY(SELECT DISTINCT unnest(l.totals || excluded.totals) ORDER BY 1)
     WHERE (l.parent, l.children, l.named, l.ids) IS DISTINCT FROM
           (excluded.parent, excluded.children, excluded.named, excluded.ids)
        OR NOT (l.flags @> excluded.flags AND l.totals @> excluded.totals);
    news := FOUND;
    INSERT INTO level_facts AS f (topic, fact, flag, status)
    SELECT e ->> 0, e ->> 1, e ->> 2, e ->> 3 FROM jsonb_array_elements(p_facts) e
    ON CONFLICT (topic) DO UPDATE SET fact = excluded.fact, flag = excluded.flag, status = excluded.status
     WHERE (f.fact, f.flag, f.status) IS DISTINCT FROM (excluded.fact, excluded.flag, excluded.status);
    news := news OR FOUND;
    IF news THEN
        INSERT INTO moves (number, topic, status)
        SELECT last_declared() + 1, e ->> 0, e ->> 3
          FROM jsonb_array_elements(p_facts) e WHERE e ->> 1 = 'created'
        ON CONFLICT (topic) DO UPDATE SET status = excluded.status, field = NULL, number = excluded.number;
    END IF;
    RETURN news;
END $$;

-- A part of a stream's key as it was given: `%2F` is `/`, and so on. Plain, so that statements can take it in.
CREATE OR REPLACE FUNCTION unescaped(p_part text) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE WHEN strpos(p_part, '%') = 0 THEN p_part ELSE (
        SELECT string_agg(CASE WHEN n = 1 THEN piece
                               WHEN piece ~ '^U' THEN U&'\+10FFFF' || substr(piece, 2)
                               WHEN piece ~ '^(0[1-9A-F]|[1-9A-F][0-9A-F])'
                               THEN chr(('x' || substr(piece, 1, 2))::bit(8)::integer) || substr(piece, 3)
                               ELSE '%' || piece END, '' ORDER BY n)
          FROM unnest(string_to_array(p_part, '%')) WITH ORDINALITY AS p (piece, n)) END
$$;

-- Declare what is counted: a row of `sets`, without its number; whether that is news. One at a time, as for moves.
CREATE OR REPLACE FUNCTION declare_set(p_set jsonb) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    wanted sets := jsonb_populate_record(NULL::sets, p_set);
BEGIN
    LOCK TABLE moves IN SHARE ROW EXCLUSIVE MODE;
    IF EXISTS (SELECT FROM sets s WHERE s.category = wanted.category
                                    AND to_jsonb(s) - 'number' = to_jsonb(wanted) - 'number') THEN
        RETURN false;
    END IF;
    wanted.number := last_declared() + 1;
    DELETE FROM sets WHERE category = wanted.category;
    INSERT INTO sets SELECT wanted.*;
    RETURN true;
END $$;
