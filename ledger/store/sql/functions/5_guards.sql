-- Append-only, by trigger and by role.

CREATE OR REPLACE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE SQLSTATE 'LG005' USING MESSAGE = format('events are append-only: %s refused', TG_OP),
        HINT = 'What was recorded stays; record a further event that corrects it.';
END $$;

CREATE OR REPLACE FUNCTION refuse_bypass() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE SQLSTATE 'LG005' USING MESSAGE = 'events are recorded by the append functions only: a direct INSERT refused',
        HINT = 'A direct INSERT has no mark, so readers would skip it. Call append_one or append_many.';
END $$;

CREATE OR REPLACE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON events
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
CREATE OR REPLACE TRIGGER no_bypass BEFORE INSERT ON events
    FOR EACH STATEMENT WHEN (coalesce(current_setting(mark_name(), true), '') = '') EXECUTE FUNCTION refuse_bypass();
