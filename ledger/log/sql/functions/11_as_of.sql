-- Schemas that hold the ledger as of a position (projections/time_travel.py). The owner makes and drops them, because
-- the projector, who fills them, may make nothing else in the database; for that `pledger init` lets the owner make
-- schemas. A schema of another owner is never touched.

-- Make the schema of a position, for the projector to fill and to open; returns its name.
CREATE OR REPLACE FUNCTION make_as_of(p_position bigint) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    made CONSTANT text := format('%s_as_of_%s', current_schema(), p_position);
BEGIN
    IF p_position IS NULL OR p_position < 0 OR p_position > 281474976710655 THEN
        RAISE SQLSTATE '22023' USING MESSAGE = format('%s is no position', p_position);
    END IF;
    EXECUTE format('CREATE SCHEMA %I', made);
    EXECUTE format('GRANT CREATE ON SCHEMA %I TO %I', made, current_schema() || '_projector');
    EXECUTE format('GRANT USAGE ON SCHEMA %I TO %I WITH GRANT OPTION', made, current_schema() || '_projector');
    RETURN made;
END $$;

-- Drop it with all that is in it; whether it was there.
CREATE OR REPLACE FUNCTION drop_as_of(p_position bigint) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT SET client_min_messages = warning AS $$
DECLARE
    made CONSTANT text := format('%s_as_of_%s', current_schema(), p_position);
BEGIN
    IF to_regnamespace(quote_ident(made)) IS NULL THEN
        RETURN false;
    END IF;
    EXECUTE format('DROP SCHEMA %I CASCADE', made);
    RETURN true;
END $$;
