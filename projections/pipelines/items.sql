-- The items of one pipeline (a project, its slices, …): one row per item, its state. Of each pipeline, {pipeline} is
-- the name, {items} the table, {parents} the category above each category, {children} the field of a state with the
-- level below, {times} the fields that are times, {hidden} the fields that a view of an item does not show.

-- name: tables
-- position: of the first fact; version: of the last event. attempts: how often it was started. incarnation: how often
-- it was created; under: the incarnation of its parent at that time. ids: its ids from the project down. state: its
-- state, also with its flags and a project's plan.
CREATE TABLE {items} (
    created_at             timestamptz,
    updated_at             timestamptz,
    processing_started_at  timestamptz,
    processing_finished_at timestamptz,
    position               bigint NOT NULL,
    version                bigint NOT NULL,
    attempts               bigint NOT NULL,
    incarnation            bigint NOT NULL,
    under                  bigint NOT NULL,
    category               text   COLLATE "C" NOT NULL,
    status                 text   COLLATE "C",
    stream                 text   COLLATE "C" PRIMARY KEY,
    parent                 text   COLLATE "C",
    project                text   COLLATE "C" NOT NULL,
    reason                 text,
    ids                    bigint[] NOT NULL,
    state                  jsonb  NOT NULL
) WITH (fillfactor = 70);

-- name: indexes
-- The items of a project; and those below an item. What changes is in neither, so that rows are updated in
-- place.
CREATE INDEX ON {items} (project, category);
CREATE INDEX ON {items} (parent);

-- name: category
-- The first part of the stream's name.
split_part(s.stream, '/', 1);

-- name: parent
-- The stream of the item above; null for a project.
{parents} ->> split_part(s.stream, '/', 1)
    || left(substr(s.stream, 1 + length(split_part(s.stream, '/', 1))), -1 - length(split_part(s.stream, '/', -1)));

-- name: project
-- The project's name as it is normalised.
{ledger}.unescaped(split_part(s.stream, '/', 2));

-- name: ids
-- The parts of the stream's name after the project.
(string_to_array(s.stream, '/'))[3:]::bigint[];

-- name: forget
-- Remove the rows of streams.
DELETE FROM {items} WHERE stream IN {streams};

-- name: reads
-- The visible items: those that exist, were created in the present life of their parent, and whose parent is
-- visible. And a project with all visible items below it, as one document, with the names and values of the
-- `to_dict()` of the project's view.
CREATE OR REPLACE VIEW {views}.{pipeline}_shown_items AS
SELECT r.stream AS root, r.project, s.category, s.stream, s.parent, s.ids, s.status, s.attempts, s.reason,
       s.created_at, s.updated_at, s.processing_started_at, s.processing_finished_at, s.version, s.incarnation, s.state
  FROM {items} r
 CROSS JOIN LATERAL (
       WITH RECURSIVE shown AS (
            SELECT i.* FROM {items} i WHERE i.stream = r.stream
            UNION ALL
            SELECT below.* FROM shown s CROSS JOIN LATERAL (
                   SELECT i.* FROM {items} i
                    WHERE i.parent = s.stream AND i.under = s.incarnation AND i.status <> 'deleted' OFFSET 0) below)
       SELECT * FROM shown) s
 WHERE r.parent IS NULL AND r.status <> 'deleted';

CREATE OR REPLACE FUNCTION {views}.iso_time(p_at timestamptz) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT replace(to_char(p_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US'), '.000000', '') || '+00:00'
$$;

CREATE OR REPLACE FUNCTION {views}.{pipeline}_tree(p_project text) RETURNS jsonb
LANGUAGE plpgsql STABLE AS $$
DECLARE
    shown {views}.{pipeline}_shown_items[];
    below jsonb := '{{}}';
BEGIN
    SELECT array_agg(s) INTO shown FROM {views}.{pipeline}_shown_items s
     WHERE s.root = (SELECT i.stream FROM {items} i
                      WHERE i.parent IS NULL AND i.project IN (p_project, replace(lower(p_project), '_', '-')));
    FOR depth IN REVERSE coalesce((SELECT max(cardinality(s.ids)) FROM unnest(shown) s), -1) .. 0 LOOP
        SELECT jsonb_object_agg(above, children) INTO below FROM (
            SELECT coalesce(s.parent, '') AS above, jsonb_object_agg(coalesce(s.ids[depth], 0), jsonb_build_object(
                       'processing_state', s.status,
                       'under_way', (SELECT coalesce(jsonb_agg(u.claim -> 0 ORDER BY u.nth), '[]')
                                       FROM jsonb_array_elements(s.state -> 'under_way') WITH ORDINALITY u (claim, nth)))
                   || (SELECT jsonb_object_agg(f.key, CASE WHEN f.key <> ALL ({times}) THEN f.value
                              ELSE to_jsonb({views}.iso_time((f.value #>> '{{}}')::timestamptz)) END)
                         FROM jsonb_each(s.state) f WHERE f.key <> ALL ({hidden}))
                   || CASE WHEN {children} ->> s.category IS NULL THEN '{{}}'
                           ELSE jsonb_build_object({children} ->> s.category, coalesce(below -> s.stream, '{{}}'))
                           END) AS children
              FROM unnest(shown) s WHERE cardinality(s.ids) = depth GROUP BY s.parent) t;
    END LOOP;
    RETURN below -> '' -> '0';
END $$;
GRANT SELECT ON {views}.{pipeline}_shown_items TO {reader};
GRANT EXECUTE ON FUNCTION {views}.iso_time, {views}.{pipeline}_tree TO {reader}
