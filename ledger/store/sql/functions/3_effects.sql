-- Inline effects: SQL functions (first position, last position) that run in every append, as its owner.

-- Write apply_effects anew from the registered effects, so that an append pays nothing where there are none.
-- An effect that raises refuses the append and names itself. Of an effect `view NAME` every append holds the lock,
-- shared, from its mark to its end: who holds it alone knows that no append is between its first row and its last.
CREATE OR REPLACE FUNCTION refresh_effects() RETURNS void LANGUAGE plpgsql SET search_path FROM CURRENT AS $body$
DECLARE
    calls text := '';
    holds text := '';
    effect record;
BEGIN
    PERFORM pg_advisory_xact_lock(lock_class()::integer, 0);
    FOR effect IN SELECT name, routine FROM effects ORDER BY name LOOP
        IF effect.name LIKE 'view %' THEN
            holds := holds || format(' || pg_advisory_xact_lock_shared(%s, %s)::text', lock_class() + 131072,
                                     hashtext(effect.name));
        END IF;
        calls := calls || format('
    current := %L;
    PERFORM %s(p_first, p_last);', effect.name, effect.routine);
    END LOOP;
    EXECUTE format('CREATE OR REPLACE FUNCTION hold_effects() RETURNS text LANGUAGE sql %s AS %L',
                   CASE WHEN holds = '' THEN 'IMMUTABLE' ELSE 'VOLATILE' END, 'SELECT ''''::text' || holds);
    EXECUTE format('CREATE OR REPLACE FUNCTION has_effects() RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE AS %L',
                   format('SELECT %s', (calls <> '')::text));
    EXECUTE format('CREATE OR REPLACE FUNCTION apply_effects(p_first bigint, p_last bigint) RETURNS void
LANGUAGE plpgsql AS $made$
%s$made$', CASE WHEN calls = '' THEN 'BEGIN END ' ELSE 'DECLARE
    current text;
    reason text;
BEGIN' || calls || '
EXCEPTION WHEN OTHERS THEN
    IF SQLSTATE ~ ''^(40|53|57|58)'' OR SQLSTATE = ''25006'' THEN -- the server''s reasons, not the effect''s
        RAISE;
    END IF;
    GET STACKED DIAGNOSTICS reason = MESSAGE_TEXT;
    RAISE SQLSTATE ''LG001'' USING MESSAGE = reason, DETAIL = current;
END ' END);
END $body$;

-- Attach an inline effect. `p_routine` is a function (bigint, bigint), named with its schema.
CREATE OR REPLACE FUNCTION attach_effect(p_name text, p_routine text) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    routine regprocedure := (p_routine || '(bigint,bigint)')::regprocedure;
BEGIN
    INSERT INTO effects (name, routine, attached_at)
    SELECT p_name, format('%I.%I', n.nspname, p.proname), clock_timestamp()
      FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace WHERE p.oid = routine
    ON CONFLICT (name) DO UPDATE SET routine = excluded.routine, attached_at = excluded.attached_at;
    PERFORM refresh_effects();
END $$;

-- Detach an inline effect; false where there is none of this name.
CREATE OR REPLACE FUNCTION detach_effect(p_name text) RETURNS boolean
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    DELETE FROM effects WHERE name = p_name;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    PERFORM refresh_effects();
    RETURN true;
END $$;

SELECT refresh_effects();
