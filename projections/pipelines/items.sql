-- The items of all pipelines (a project, its slices, …): one row per item, the fold of its stream. {items} is
-- the table.

-- name: tables
-- version: of the last fact. flags: those that are set. under_way: milestones that are claimed, each with the
-- number of the claim among all `claims` of the item. plan: how many children are expected. incarnation: how
-- often it was created; under: the incarnation of its parent at that time.
CREATE TABLE {items} (
    created_at             timestamptz,
    updated_at             timestamptz NOT NULL,
    processing_started_at  timestamptz,
    processing_finished_at timestamptz,
    version                bigint NOT NULL,
    attempts               bigint NOT NULL,
    claims                 bigint NOT NULL,
    incarnation            bigint NOT NULL,
    under                  bigint NOT NULL,
    category               text   COLLATE "C" NOT NULL,
    status                 text   COLLATE "C",
    stream                 text   COLLATE "C" PRIMARY KEY,
    parent                 text   COLLATE "C",
    project                text   COLLATE "C" NOT NULL,
    project_name           text,
    reason                 text,
    ids                    bigint[] NOT NULL,
    flags                  jsonb  NOT NULL,
    under_way              jsonb  NOT NULL,
    plan                   jsonb  NOT NULL
) WITH (fillfactor = 70);

-- name: indexes
-- The items of a project; and those below an item. What changes is in neither, so that rows are updated in
-- place.
CREATE INDEX ON {items} (project, category);
CREATE INDEX ON {items} (parent);

-- name: apply
-- Fold the facts of each stream onto its row. First select the facts that count: the last birth, the last
-- that began or ended an attempt, …; then take their values, and each name as its last fact left it, where
-- null removes it. Only the row itself is joined by stream, so that a wrong estimate of the planner does not
-- make it slow.
WITH facts AS (
    SELECT e.stream, e.version, e.recorded_at, f.fact, f.status,
           CASE WHEN f.fact IN ('created', 'failed', 'reset', 'planned') THEN e.data END AS data,
           CASE WHEN f.fact IN ('entered', 'left') THEN e.data ->> 'milestone' ELSE f.flag END AS name,
           count(*) FILTER (WHERE f.fact = 'entered') OVER sofar AS nth,
           count(*) FILTER (WHERE f.fact IN ('entered', 'left')) OVER whole AS claims, max(e.version) OVER whole AS last,
           max(e.version) FILTER (WHERE f.status IS NOT NULL) OVER whole AS moved,
           coalesce(max(e.version) FILTER (WHERE f.fact = 'created') OVER whole, 0) AS born,
           coalesce(max(e.version) FILTER (WHERE f.fact IN ('created', 'pending')) OVER whole, 0) AS idle,
           max(e.version) FILTER (WHERE f.fact IN ('created', 'pending', 'started')) OVER whole AS begun,
           max(e.version) FILTER (WHERE f.fact IN ('created', 'pending', 'started', 'completed', 'failed')) OVER whole AS ended
      FROM {batch} e JOIN {ledger}.level_facts f USING (topic)
    WINDOW sofar AS (PARTITION BY e.stream ORDER BY e.version), whole AS (PARTITION BY e.stream)
), said AS (
    SELECT f.stream, max(f.last) AS version, max(f.born) AS born, max(f.idle) AS idle, max(f.begun) AS begun,
           max(f.ended) AS ended, max(f.nth) AS entered,
           count(*) FILTER (WHERE f.fact = 'created') AS lives,
           count(*) FILTER (WHERE f.fact = 'started' AND f.version > f.born) AS attempts,
           max(f.recorded_at) FILTER (WHERE f.version = f.last) AS updated_at,
           max(f.status) FILTER (WHERE f.version = f.moved) AS status,
           max(f.recorded_at) FILTER (WHERE f.version = f.born) AS created_at,
           max((f.data ->> 'under')::bigint) FILTER (WHERE f.version = f.born) AS under,
           max(f.data ->> 'project_name') FILTER (WHERE f.version = f.born) AS project_name,
           max(f.recorded_at) FILTER (WHERE f.version = f.begun AND f.fact = 'started') AS started_at,
           max(f.recorded_at) FILTER (WHERE f.version = f.ended AND f.fact IN ('completed', 'failed')) AS finished_at,
           max(f.data ->> 'reason') FILTER (WHERE f.version = f.ended AND f.fact = 'failed') AS reason,
           jsonb_object_agg(coalesce(c.name, f.name), CASE WHEN f.fact = 'flag' THEN true END ORDER BY f.version)
               FILTER (WHERE (f.fact = 'flag' OR c.name IS NOT NULL) AND f.version > f.born) AS flags,
           jsonb_object_agg(coalesce(c.name, f.name), CASE WHEN f.fact = 'entered' THEN f.nth END ORDER BY f.version)
               FILTER (WHERE f.claims > 0 AND f.version > f.idle
                         AND (f.fact IN ('flag', 'entered', 'left') OR c.name IS NOT NULL)) AS under_way,
           jsonb_agg(f.data -> 'totals' ORDER BY f.version) FILTER (WHERE f.fact = 'planned' AND f.version > f.born) AS plans
      FROM facts f LEFT JOIN LATERAL jsonb_array_elements_text(f.data -> 'cleared') c (name) ON f.fact = 'reset'
     GROUP BY f.stream
)
INSERT INTO {items} AS i (
    created_at, updated_at, processing_started_at, processing_finished_at, version, attempts, claims, incarnation, under,
    category, status, stream, parent, project, project_name, reason, ids, flags, under_way, plan)
SELECT coalesce(s.created_at, b.created_at), s.updated_at,
       CASE WHEN s.begun IS NULL THEN b.processing_started_at ELSE s.started_at END,
       CASE WHEN s.ended IS NULL THEN b.processing_finished_at ELSE s.finished_at END,
       s.version, s.attempts + CASE WHEN s.born = 0 THEN coalesce(b.attempts, 0) ELSE 0 END,
       coalesce(b.claims, 0) + s.entered, coalesce(b.incarnation, 0) + s.lives,
       CASE WHEN s.born = 0 THEN coalesce(b.under, 0) ELSE coalesce(s.under, 0) END,
       l.category, coalesce(s.status, b.status), s.stream,
       CASE WHEN b.stream IS NULL THEN l.parent
            || left(substr(s.stream, length(l.category) + 1), -1 - length(split_part(s.stream, '/', -1))) END,
       CASE WHEN b.stream IS NOT NULL THEN '' WHEN s.stream NOT LIKE '%%\%%%%' THEN split_part(s.stream, '/', 2)
            ELSE {ledger}.unescaped(split_part(s.stream, '/', 2)) END,
       coalesce(s.project_name, b.project_name), CASE WHEN s.ended IS NULL THEN b.reason ELSE s.reason END,
       CASE WHEN b.stream IS NOT NULL THEN '{{}}' ELSE (string_to_array(s.stream, '/'))[3:]::bigint[] END,
       CASE WHEN s.flags IS NULL THEN o.flags ELSE jsonb_strip_nulls(o.flags || s.flags) END,
       CASE WHEN s.under_way IS NOT NULL THEN jsonb_strip_nulls(o.under_way || (
                SELECT jsonb_object_agg(u.key, u.value::bigint + coalesce(b.claims, 0)) FROM jsonb_each_text(s.under_way) u))
            WHEN s.flags IS NULL OR o.under_way = '{{}}' THEN o.under_way
            ELSE o.under_way - ARRAY(SELECT jsonb_object_keys(s.flags)) END,
       CASE WHEN s.plans IS NULL THEN o.plan ELSE jsonb_strip_nulls(o.plan || (
            SELECT coalesce(jsonb_object_agg(t.key, t.value ORDER BY n), '{{}}')
              FROM jsonb_array_elements(s.plans) WITH ORDINALITY p (totals, n) CROSS JOIN LATERAL jsonb_each(p.totals) t)) END
  FROM said s JOIN {ledger}.levels l ON l.category = split_part(s.stream, '/', 1)
  LEFT JOIN LATERAL (SELECT * FROM {items} i WHERE i.stream = s.stream OFFSET 0) b ON true
 CROSS JOIN LATERAL (
       SELECT CASE WHEN s.born = 0 THEN coalesce(b.flags, '{{}}') ELSE '{{}}' END AS flags,
              CASE WHEN s.idle = 0 THEN coalesce(b.under_way, '{{}}') ELSE '{{}}' END AS under_way,
              CASE WHEN s.born = 0 THEN coalesce(b.plan, '{{}}') ELSE '{{}}' END AS plan) o
 WHERE b.stream IS NOT NULL
    OR s.stream ~ ('^[^/]+/[^/]+(/(0|[1-9][0-9]{{0,18}})){{' || cardinality(l.ids) || '}}$')
ON CONFLICT (stream) DO UPDATE
   SET created_at = excluded.created_at, updated_at = excluded.updated_at,
       processing_started_at = excluded.processing_started_at,
       processing_finished_at = excluded.processing_finished_at, version = excluded.version,
       attempts = excluded.attempts, claims = excluded.claims, incarnation = excluded.incarnation,
       under = excluded.under, status = excluded.status, project_name = excluded.project_name, reason = excluded.reason,
       flags = excluded.flags, under_way = excluded.under_way, plan = excluded.plan;

-- name: forget
-- Remove the rows of streams.
DELETE FROM {items} WHERE stream IN {streams};

-- name: reads
-- The visible items: those that exist, were created in the present life of their parent, and whose parent is
-- visible. And a project with all visible items below it, as one document, with the names and values of the
-- `to_dict()` of the project's view.
CREATE OR REPLACE VIEW {views}.shown_items AS
SELECT r.stream AS root, r.project, s.category, s.stream, s.parent, s.ids, s.status, s.flags, s.attempts, s.reason,
       s.under_way, s.plan, s.project_name, s.created_at, s.updated_at, s.processing_started_at,
       s.processing_finished_at, s.version, s.incarnation
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

CREATE OR REPLACE FUNCTION {views}.project_tree(p_category text, p_project text) RETURNS jsonb
LANGUAGE plpgsql STABLE AS $$
DECLARE
    shown {views}.shown_items[];
    below jsonb := '{{}}';
BEGIN
    SELECT array_agg(s) INTO shown FROM {views}.shown_items s
     WHERE s.root = (SELECT i.stream FROM {items} i WHERE i.category = p_category AND i.parent IS NULL
                        AND i.project IN (p_project, replace(lower(p_project), '_', '-')));
    FOR depth IN REVERSE coalesce((SELECT max(cardinality(s.ids)) FROM unnest(shown) s), -1) .. 0 LOOP
        SELECT jsonb_object_agg(above, children) INTO below FROM (
            SELECT coalesce(s.parent, '') AS above, jsonb_object_agg(coalesce(s.ids[depth], 0), jsonb_build_object(
                       'processing_state', s.status, 'attempts', s.attempts, 'reason', s.reason,
                       'created_at', {views}.iso_time(s.created_at), 'updated_at', {views}.iso_time(s.updated_at),
                       'processing_started_at', {views}.iso_time(s.processing_started_at),
                       'processing_finished_at', {views}.iso_time(s.processing_finished_at),
                       'under_way', CASE s.under_way WHEN '{{}}' THEN '[]' ELSE (
                           SELECT jsonb_agg(w.key ORDER BY w.value::bigint) FROM jsonb_each_text(s.under_way) w) END)
                   || (SELECT coalesce(jsonb_object_agg(n, s.flags ? n), '{{}}') FROM unnest(l.flags) n)
                   || (SELECT coalesce(jsonb_object_agg(n, s.plan -> n), '{{}}') FROM unnest(l.totals) n)
                   || (SELECT coalesce(jsonb_object_agg(n, s.ids[i]), '{{}}') FROM unnest(l.ids) WITH ORDINALITY k (n, i))
                   || CASE WHEN l.named THEN jsonb_build_object('project_name', coalesce(s.project_name, s.project))
                           ELSE '{{}}' END
                   || CASE WHEN l.children IS NULL THEN '{{}}'
                           ELSE jsonb_build_object(l.children, coalesce(below -> s.stream, '{{}}')) END) AS children
              FROM unnest(shown) s JOIN {ledger}.levels l USING (category)
             WHERE cardinality(s.ids) = depth GROUP BY s.parent) t;
    END LOOP;
    RETURN below -> '' -> '0';
END $$;
GRANT SELECT ON {views}.shown_items TO {reader};
GRANT EXECUTE ON FUNCTION {views}.iso_time, {views}.project_tree TO {reader}
