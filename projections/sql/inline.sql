-- Views that appends keep, by name. {schema} is the ledger's schema, {views} that of its views.

-- name: act_as_owner
-- Effects are attached and detached by the ledger's owner.
SET ROLE {owner};

-- name: try_attacher
-- Become the only one who attaches or detaches a view, for as long as this session lives.
SELECT pg_try_advisory_lock({schema}.lock_class()::integer + 196608, hashtext(%(view)s));

-- name: key_of_view
-- The lock that every append of an inline view holds shared to its end, and that is held alone to change who keeps it.
SELECT {schema}.lock_class()::integer + 131072, hashtext('view ' || %(view)s);

-- name: hold_view
-- Let no append write a view until this transaction ends. Appends that come meanwhile wait.
SELECT pg_advisory_xact_lock({schema}.lock_class()::integer + 131072, hashtext('view ' || %(view)s));

-- name: wait_shortly
-- Wait for locks no longer than this, until the transaction ends.
SELECT set_config('lock_timeout', %(ms)s::text || 'ms', true);

-- name: inline_of
-- Whether appends keep a view, and which copy is read.
SELECT inline, live FROM {schema}.views WHERE name = %(view)s;

-- name: set_inline
-- Let appends keep a view, or not any more. The row is written also where nothing changes, so that a transaction
-- with an older snapshot is refused instead of going by what it was.
UPDATE {schema}.views SET inline = %(inline)s WHERE name = %(view)s;

-- name: keep_effect
-- What an append does to a copy.
UPDATE {schema}.view_copies SET effect = %(effect)s::text[] WHERE view = %(view)s AND copy = %(copy)s;

-- name: stands_at
-- Where a copy stands, and what is in beyond that.
SELECT position, ahead FROM {schema}.view_copies WHERE view = %(view)s AND copy = %(copy)s;

-- name: visible_after
-- The last event after a position, and how many there are, whether they are safe to read or not.
SELECT max(position), count(*) FROM {schema}.events WHERE position > %(after)s;

-- name: stand
-- All events that can be seen are in: say so by the last position that is safe, and those beyond it one by one.
UPDATE {schema}.view_copies
   SET events = events + (SELECT count(*) FROM {schema}.events WHERE position > %(after)s AND position <= %(bound)s),
       position = coalesce((SELECT max(position) FROM {schema}.events WHERE position <= %(bound)s), 0),
       ahead = ARRAY(SELECT position FROM {schema}.events WHERE position > %(bound)s ORDER BY position),
       updated_at = clock_timestamp()
 WHERE view = %(view)s AND copy = %(copy)s;

-- name: forget_ahead
-- What is folded anew is in as far as the copy stands, and not beyond.
UPDATE {schema}.view_copies c
   SET ahead = ARRAY(SELECT a FROM unnest(c.ahead) a
                      WHERE NOT EXISTS (SELECT FROM {schema}.events e JOIN pg_temp.refolded r USING (stream)
                                         WHERE e.position = a))
 WHERE view = %(view)s AND copy = %(copy)s AND ahead <> '{{}}';

-- name: news_of_moves
-- Whether moves were declared that the copy which is read does not know.
SELECT c.moves < {schema}.last_declared()
  FROM {schema}.views v JOIN {schema}.view_copies c ON c.view = v.name AND c.copy = v.live WHERE v.name = %(view)s;

-- name: open_writers
-- The transactions that have marked themselves as writers.
SELECT coalesce(array_agg(DISTINCT virtualtransaction), '{{}}') FROM pg_locks
 WHERE locktype = 'advisory' AND granted AND objsubid = 1 AND classid::bigint >> 16 = {schema}.lock_class()
   AND database = (SELECT oid FROM pg_database WHERE datname = current_database());

-- name: attach_view
-- Let every append call the function of a view.
SELECT {schema}.attach_effect(%(effect)s, %(routine)s);

-- name: detach_view
-- Let no append call it any more; whether any did.
SELECT {schema}.detach_effect(%(effect)s);

-- name: call_keeper
-- Do what an append would do, on no events.
SELECT {views}.{routine}(0, 0), {views}.{routine}(0, -1);

-- name: make_keeper
-- The function that appends call for a view. It runs as the projector, who can touch no event. First it waits
-- until nobody changes who keeps the view; only then it looks, in a new snapshot, or, where the transaction keeps an
-- old one, at the row itself, which a change since then makes a serialization failure.
-- The copy that was read when this was made has its statements here, with plans that are kept; another one has them
-- in its row. The statements of one event are apart, as plans for a range would be made for many.
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

-- name: allow_keeper
-- Appends run as the owner.
GRANT EXECUTE ON FUNCTION {views}.{routine}(bigint, bigint) TO {owner};
