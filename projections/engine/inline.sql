-- inline.py: {schema} is the ledger's schema, {views} that of its views.

-- name: all_views
-- The views and their live copies, with the number of parked streams.
SELECT v.name, v.live, v.kept, v.inline, c.position, c.events, c.definition, c.updated_at,
       (SELECT count(*) FROM {schema}.view_parked p WHERE p.view = v.name AND p.copy = v.live),
       (SELECT array_agg(b.copy ORDER BY b.copy) FROM {schema}.view_copies b WHERE b.view = v.name AND b.building)
  FROM {schema}.views v LEFT JOIN {schema}.view_copies c ON c.view = v.name AND c.copy = v.live
 ORDER BY v.name;

-- name: key_of_view
-- The lock that every append of an inline view holds shared to its end; exclusive, to change who keeps the
-- view.
SELECT {schema}.lock_class()::integer + 131072, hashtext('view ' || %(view)s);

-- name: hold_view
-- Keep appends from writing a view until this transaction ends. Appends that come meanwhile wait.
SELECT pg_advisory_xact_lock({schema}.lock_class()::integer + 131072, hashtext('view ' || %(view)s));

-- name: keep_effect
-- What an append does to a copy.
UPDATE {schema}.view_copies SET effect = %(effect)s::text[] WHERE view = %(view)s AND copy = %(copy)s;

-- name: stands_at
-- The position of a copy, and the events that it contains beyond it.
SELECT position, ahead FROM {schema}.view_copies WHERE view = %(view)s AND copy = %(copy)s;

-- name: visible_after
-- The last event after a position, and how many there are, whether safe to read or not.
SELECT max(position), count(*) FROM {schema}.events WHERE position > %(after)s;

-- name: stand
-- Record that all visible events are applied: the last position that is safe, and those beyond it one by one.
UPDATE {schema}.view_copies
   SET events = events + (SELECT count(*) FROM {schema}.events WHERE position > %(after)s AND position <= %(bound)s),
       position = coalesce((SELECT max(position) FROM {schema}.events WHERE position <= %(bound)s), 0),
       ahead = ARRAY(SELECT position FROM {schema}.events WHERE position > %(bound)s ORDER BY position),
       updated_at = clock_timestamp()
 WHERE view = %(view)s AND copy = %(copy)s;

-- name: call_keeper
-- Do what an append would do, on no events.
SELECT {views}.{routine}(0, 0), {views}.{routine}(0, -1);

-- name: make_keeper
-- The function that appends call for a view. It runs as the projector, who cannot change events. First it
-- waits until no session changes who keeps the view. Only then it reads the view's row, in a new snapshot; if
-- the transaction keeps an old one, it locks the row, and a change since then raises a serialization failure.
-- The copy that was live when the function was created has its statements in it, with cached plans; another
-- copy has them in its row. The statements for one event are separate, because plans for a range expect many.
CREATE OR REPLACE FUNCTION {views}.{routine}(p_first bigint, p_last bigint) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
AS {body};

-- name: keeper_body
-- The body of that function.
#variable_conflict use_column
DECLARE
    keeper_lock text;
    keeper_inline boolean;
    keeper_copy integer;
    keeper_effect text[];
    keeper_statement text;
BEGIN
    keeper_lock := pg_advisory_xact_lock_shared({high}, {low})::text;
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        PERFORM FROM {schema}.views v WHERE v.name = {view} FOR SHARE;
    END IF;
    SELECT v.inline, v.live INTO keeper_inline, keeper_copy FROM {schema}.views v WHERE v.name = {view};
    IF keeper_inline IS NULL THEN
        RAISE SQLSTATE '40001' USING MESSAGE = format('could not serialize access: view %s is newer than the snapshot',
                                                      {view});
    ELSIF NOT keeper_inline THEN
        RETURN;
    END IF;
    IF keeper_copy = {copy} THEN
        IF p_first = p_last THEN
            {one}
        ELSE
            {many}
        END IF;
        RETURN;
    END IF;
    SELECT c.effect INTO keeper_effect FROM {schema}.view_copies c WHERE c.view = {view} AND c.copy = keeper_copy;
    IF keeper_effect = '{{}}' THEN
        RAISE 'copy % of view % was not made ready for appends', keeper_copy, {view};
    END IF;
    FOREACH keeper_statement IN ARRAY keeper_effect LOOP
        EXECUTE keeper_statement USING p_first, p_last;
    END LOOP;
END;

-- name: open_keeper
-- Only appends call it.
REVOKE ALL ON FUNCTION {views}.{routine}(bigint, bigint) FROM PUBLIC;
