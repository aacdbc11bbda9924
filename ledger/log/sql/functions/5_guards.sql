-- The identity of a ledger, and the guards that keep its log append-only.

-- The identity that every process reads when it connects, even one that may only append.
CREATE OR REPLACE FUNCTION describe(OUT ledger uuid, OUT lock_class bigint, OUT created_at timestamptz, OUT schema_number integer,
                                    OUT last_position bigint, OUT max_position bigint, OUT standby boolean, OUT cache bigint)
RETURNS SETOF record LANGUAGE sql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
    SELECT i.ledger, i.lock_class, i.created_at, (SELECT coalesce(max(number), 0) FROM migrations),
           coalesce(pg_sequence_last_value('positions'), 0), (SELECT coalesce(max(position), 0) FROM events),
           pg_is_in_recovery(), (SELECT seqcache FROM pg_sequence WHERE seqrelid = 'positions'::regclass)
      FROM identity i
$$;

-- The schema number of the oldest code that may use this ledger. Code that is older than the ledger calls it.
CREATE OR REPLACE FUNCTION oldest_code() RETURNS integer LANGUAGE sql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
    SELECT coalesce(max(coalesce(oldest_code, number)), 0) FROM migrations
$$;

-- Append-only, by trigger and by role. Nobody but the owner and superusers may INSERT, the append functions run as
-- the owner; a trigger against INSERTs by hand was tried and cost each append 4 to 6 % (its condition is compiled
-- anew at every statement).

CREATE OR REPLACE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE SQLSTATE 'LG005' USING MESSAGE = format('events are append-only: %s refused', TG_OP),
        HINT = 'What was recorded stays; record a further event that corrects it.';
END $$;

CREATE OR REPLACE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON events
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
