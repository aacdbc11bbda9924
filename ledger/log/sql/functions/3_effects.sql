-- Inline effects: SQL functions (first position, last position) that run in every append.
--
-- Code that runs as the owner can rewrite the log. So a user's own effect must belong to a role that may
-- become the owner, and runs as the owner. An effect of a view belongs to the projector, with its tables and
-- everything attached to them (triggers, constraints, defaults, indexes), and runs as the projector, who
-- cannot write the log. It is called through a SECURITY DEFINER function of the projector in the schema
-- NAME_effects, which the projector may not enter: so only the owner could remove SECURITY DEFINER from it,
-- after which it would run as the owner.
--
-- Code that runs in a session can affect the next statements: by a search path, a temporary table, a prepared
-- statement, a deferred trigger. So effects of views are called last in an append, where nothing follows as
-- the owner; and not in the session of a role that may become the owner, unless every projector may, too.

-- Refuse an effect that a role without membership in the owner could replace: the owner of the function, or
-- the schema that it is in, which is the database's owner for the schema `public`.
CREATE OR REPLACE FUNCTION refuse_foreign_effect(p_routine text) RETURNS void LANGUAGE plpgsql STABLE AS $$
DECLARE
    owner CONSTANT text := current_schema() || '_owner';
    theirs text;
BEGIN
    SELECT pg_get_userbyid(a.role) INTO theirs
      FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace JOIN pg_database d ON d.datname = current_database()
     CROSS JOIN LATERAL (VALUES (1, p.proowner), (2, CASE WHEN n.nspowner = 'pg_database_owner'::regrole THEN d.datdba
                                                          ELSE n.nspowner END)) a (i, role)
     WHERE p.oid = to_regprocedure(p_routine || '(bigint,bigint)') AND NOT pg_has_role(a.role, owner, 'MEMBER')
     ORDER BY a.i LIMIT 1;
    IF FOUND THEN
        RAISE SQLSTATE 'LG005' USING
            MESSAGE = format('%s, or the schema that it is in, belongs to %s, who may not become %s, and it would run as %s '
                             'in every append', p_routine, theirs, owner, owner),
            HINT = format('Let both belong to %s.', owner);
    END IF;
END $$;

-- Write the function through which an effect of a view runs as the projector; returns its name.
CREATE OR REPLACE FUNCTION run_as_projector(p_routine text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    kept CONSTANT text := current_schema() || '_effects';
    projector CONSTANT text := current_schema() || '_projector';
    made CONSTANT text := format('%I%s', kept, substr(p_routine, strpos(p_routine, '.')));
BEGIN
    EXECUTE format('CREATE OR REPLACE FUNCTION %s(p_first bigint, p_last bigint) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER AS %L', made, format('BEGIN PERFORM %s(p_first, p_last); END', p_routine));
    EXECUTE format('REVOKE ALL ON FUNCTION %s(bigint, bigint) FROM PUBLIC', made);
    IF NOT EXISTS (SELECT FROM pg_proc p WHERE p.oid = (made || '(bigint,bigint)')::regprocedure
                                           AND p.proowner = projector::regrole) THEN
        EXECUTE format('GRANT CREATE ON SCHEMA %I TO %I', kept, projector); -- for this statement, within this transaction
        EXECUTE format('ALTER FUNCTION %s(bigint, bigint) OWNER TO %I', made, projector);
        EXECUTE format('REVOKE CREATE ON SCHEMA %I FROM %I', kept, projector);
    END IF;
    RETURN made;
END $$;

-- Refuse to run the code of projectors in the session of p_who, who may become the owner, where one of them may not;
-- apply_effects looks for such a one itself, which costs less.
CREATE OR REPLACE FUNCTION refuse_projectors(p_who text) RETURNS void LANGUAGE plpgsql STABLE AS $$
DECLARE
    owner CONSTANT text := current_schema() || '_owner';
    projector CONSTANT text := current_schema() || '_projector';
    other text;
BEGIN
    SELECT min(pg_get_userbyid(m.member)) INTO other FROM pg_auth_members m
     WHERE m.roleid = projector::regrole AND NOT pg_has_role(m.member, owner, 'MEMBER');
    IF other IS NOT NULL THEN
        RAISE '%', format('%s may become %s, and what this view does in an append is up to %s, a member of %s that may not: '
                          'append with a login in the roles of writer and reader only, or detach the view',
                          p_who, owner, other, projector);
    END IF;
END $$;

-- Write apply_effects anew from the registered effects, so that an append pays nothing where there are none.
-- An effect that raises refuses the append and names itself. Of an effect `view NAME` every append holds the lock,
-- shared, from its mark to its end: who holds it alone knows that no append is between its first row and its last.
CREATE OR REPLACE FUNCTION refresh_effects() RETURNS void LANGUAGE plpgsql SET search_path FROM CURRENT AS $body$
DECLARE
    views CONSTANT text := format('%I.', current_schema() || '_views');
    calls text := '';
    holds text := '';
    guarded boolean := false;
    effect record;
BEGIN
    PERFORM pg_advisory_xact_lock(lock_class()::integer, 0);
    FOR effect IN SELECT name, routine, starts_with(routine, views) AS projectors FROM effects ORDER BY projectors, name LOOP
        IF effect.name LIKE 'view %' THEN
            holds := holds || format(' || pg_advisory_xact_lock_shared(%s, %s)::text', lock_class() + 131072,
                                     hashtext(effect.name));
        END IF;
        calls := calls || format('
    current := %L;', effect.name);
        IF NOT effect.projectors THEN
            PERFORM refuse_foreign_effect(effect.routine);
        ELSE
            IF NOT guarded THEN
                calls := calls || format('
    IF pg_has_role(session_user, %1$L, ''MEMBER'') THEN
        IF EXISTS (SELECT FROM pg_auth_members
                    WHERE roleid = %2$L::regrole AND NOT pg_has_role(member, %1$L, ''MEMBER'')) THEN
            PERFORM refuse_projectors(session_user);
        END IF;
    END IF;', current_schema() || '_owner', quote_ident(current_schema() || '_projector'));
                guarded := true;
            END IF;
            effect.routine := run_as_projector(effect.routine);
        END IF;
        calls := calls || format('
    PERFORM %s(p_first, p_last);', effect.routine);
    END LOOP;
    -- VOLATILE, so that it is inlined: the plans of open sessions then depend on it, which they do not on a constant.
    EXECUTE format('CREATE OR REPLACE FUNCTION hold_effects() RETURNS text LANGUAGE sql VOLATILE AS %L',
                   'SELECT ''''::text' || holds);
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

-- Attach an inline effect. `p_routine` is a function (bigint, bigint), named with its schema; one of the schema of views
-- runs as the projector, any other as the owner.
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
