-- Progress: sets of units, one for each parent, and how many of each set are there, running, done, failed.
--
-- What a batch does is a sum over single events, each of which takes a unit out of where it counted and puts
-- it where it counts now. The rows of a name are looked up by name, one by one (OFFSET 0 ensures that): a
-- batch must not read a whole table that grows with the log. Positions are those of the last event that
-- changed a row. So neither the cuts between batches nor the order of streams makes a difference.
-- {progress_units} and so on are the tables; `sets` and `moves` of the ledger declare what is counted.

-- name: tables
-- progress_units: how each unit counts: state 0 not at all, 1 as there, 2 running, 3 done, 4 failed; life:
-- that of the parent under which it was born, null in none that there can be. progress_parents: the life of
-- each parent that can die: its births, or -1 - births after a death. progress_totals: how many are expected
-- below an ancestor; prefix: its name as the parents' names begin. progress_sets: the sizes of the set of
-- each parent in each life.
CREATE TABLE {progress_units} (
    version bigint   NOT NULL,
    life    bigint,
    state   smallint NOT NULL,
    stream  text     COLLATE "C" PRIMARY KEY
) WITH (fillfactor = 80);
CREATE TABLE {progress_parents} (
    version  bigint NOT NULL,
    life     bigint NOT NULL,
    births   bigint NOT NULL,
    parent   text   COLLATE "C" NOT NULL,
    category text   COLLATE "C" NOT NULL,
    PRIMARY KEY (parent, category)
);
CREATE TABLE {progress_totals} (
    version  bigint NOT NULL,
    total    bigint,
    position bigint NOT NULL,
    at       timestamptz,
    prefix   text   COLLATE "C" NOT NULL,
    category text   COLLATE "C" NOT NULL,
    stream   text   COLLATE "C" NOT NULL,
    PRIMARY KEY (prefix, category)
);
CREATE TABLE {progress_sets} (
    position bigint      NOT NULL,
    at       timestamptz NOT NULL,
    present  bigint      NOT NULL,
    running  bigint      NOT NULL,
    done     bigint      NOT NULL,
    failed   bigint      NOT NULL,
    total    bigint,
    life     bigint      NOT NULL,
    parent   text        COLLATE "C" NOT NULL,
    category text        COLLATE "C" NOT NULL,
    PRIMARY KEY (parent, category, life)
) WITH (fillfactor = 60);

-- name: indexes
-- The latest changes, for followers.
CREATE INDEX ON {progress_sets} (position);

-- name: apply_totals
-- How many are expected: the last number of each ancestor, and the sets below it. `change` is 1 where the
-- number differs from before. A number in the parent's own stream creates its set, if the parent has no lives.
WITH said AS MATERIALIZED (
    SELECT s.category, s.total_depth AS depth, s.total_otherwise AS otherwise, s.life IS NULL AS lifeless,
           s.parent || substr(e.stream, strpos(e.stream || '/', '/')) AS prefix,
           e.stream, e.version, e.position, e.recorded_at AS at,
           CASE WHEN e.topic IS NOT DISTINCT FROM s.total_reset THEN NULL
                WHEN jsonb_typeof(x.said) = 'array' THEN jsonb_array_length(x.said)
                WHEN jsonb_typeof(x.said) = 'number' AND x.said::numeric BETWEEN 0 AND 1e15 AND x.said::numeric = trunc(x.said::numeric)
                THEN x.said::numeric::bigint END AS total
      FROM (SELECT category, total_topic AS topic FROM {ledger}.sets WHERE total_topic IS NOT NULL
            UNION SELECT category, total_reset FROM {ledger}.sets WHERE total_reset IS NOT NULL) t
      JOIN {ledger}.sets s USING (category)
      JOIN {batch} e ON e.topic = t.topic
     CROSS JOIN LATERAL (SELECT e.data #> s.total_path AS said) x
     WHERE (e.topic IS NOT DISTINCT FROM s.total_reset OR x.said IS NOT NULL)
       AND coalesce(s.total_depth = cardinality(string_to_array(e.stream, '/')) - 1,
                    split_part(e.stream, '/', 1) = s.parent)
), chain AS MATERIALIZED (
    SELECT n.*,
           CASE WHEN lag(n.version) OVER w IS NULL THEN k.total IS DISTINCT FROM n.total
                ELSE lag(n.total) OVER w IS DISTINCT FROM n.total END AS change,
           lead(n.version) OVER w IS NULL AS final
      FROM said n LEFT JOIN LATERAL (
           SELECT * FROM {progress_totals} t WHERE t.prefix = n.prefix AND t.category = n.category OFFSET 0) k ON true
     WHERE k.prefix IS NULL OR n.version > k.version
    WINDOW w AS (PARTITION BY n.prefix, n.category ORDER BY n.version)
), changed AS MATERIALIZED (
    SELECT prefix, category, max(position) AS position FROM chain WHERE change GROUP BY prefix, category
), put AS (
    INSERT INTO {progress_totals} AS k (version, total, position, at, prefix, category, stream)
    SELECT f.version, f.total, coalesce(l.position, 0), l.at, f.prefix, f.category, f.stream
      FROM chain f LEFT JOIN (changed JOIN chain l USING (prefix, category, position)) USING (prefix, category)
     WHERE f.final
    ON CONFLICT (prefix, category) DO UPDATE
       SET version = excluded.version, total = excluded.total,
           at = CASE WHEN excluded.position > k.position THEN excluded.at ELSE k.at END,
           position = greatest(k.position, excluded.position)
), news AS MATERIALIZED (
    SELECT f.prefix, f.category, f.depth, f.lifeless, coalesce(f.total, f.otherwise) AS total, l.position, l.at
      FROM chain f JOIN (changed JOIN chain l USING (prefix, category, position)) USING (prefix, category) WHERE f.final
), made AS (
    INSERT INTO {progress_sets} (position, at, present, running, done, failed, total, life, parent, category)
    SELECT position, at, 0, 0, 0, 0, total, 0, prefix, category FROM news WHERE depth IS NULL AND lifeless
    ON CONFLICT DO NOTHING
)
UPDATE {progress_sets} s
   SET total = n.total, at = CASE WHEN n.position > s.position THEN n.at ELSE s.at END,
       position = greatest(s.position, n.position)
  FROM news n
 WHERE s.category = n.category AND s.parent >= n.prefix AND s.parent < n.prefix || '0'
   AND (s.parent = n.prefix OR n.depth IS NOT NULL AND s.parent >= n.prefix || '/');

-- name: apply_parents
-- The lives of parents: each birth and each death begins a set that is empty, unless its units came before.
WITH heard AS MATERIALIZED (
    SELECT stream, topic, version, position, recorded_at FROM {batch} e
     WHERE topic IN (SELECT life FROM {ledger}.sets UNION ALL SELECT death FROM {ledger}.sets)
), told AS MATERIALIZED (
    SELECT e.stream AS parent, s.category, e.topic = s.life AS birth, e.version, e.position, e.recorded_at AS at
      FROM heard e JOIN {ledger}.sets s ON s.parent = split_part(e.stream, '/', 1) AND e.topic IN (s.life, s.death)
), counted AS MATERIALIZED (
    SELECT n.*, k.life AS life_before,
           coalesce(k.births, 0) + count(*) FILTER (WHERE n.birth) OVER (PARTITION BY n.parent, n.category ORDER BY n.version) AS births
      FROM told n LEFT JOIN LATERAL (
           SELECT * FROM {progress_parents} p WHERE p.parent = n.parent AND p.category = n.category OFFSET 0) k ON true
     WHERE k.parent IS NULL OR n.version > k.version
), chain AS MATERIALIZED (
    SELECT *, lag(life, 1, life_before) OVER w AS life_was, lead(version) OVER w IS NULL AS final
      FROM (SELECT *, CASE WHEN birth THEN births ELSE -1 - births END AS life FROM counted) c
    WINDOW w AS (PARTITION BY parent, category ORDER BY version)
), put AS (
    INSERT INTO {progress_parents} AS k (version, life, births, parent, category)
    SELECT version, life, births, parent, category FROM chain WHERE final
    ON CONFLICT (parent, category) DO UPDATE
       SET version = excluded.version, life = excluded.life, births = excluded.births
)
INSERT INTO {progress_sets} AS s (position, at, present, running, done, failed, total, life, parent, category)
SELECT greatest(c.position, t.position), CASE WHEN t.position > c.position THEN t.at ELSE c.at END, 0, 0, 0, 0,
       coalesce(t.total, d.total_otherwise), c.life, c.parent, c.category
  FROM chain c JOIN {ledger}.sets d USING (category)
  LEFT JOIN LATERAL (
       SELECT * FROM {progress_totals} k WHERE k.category = c.category AND k.prefix = CASE WHEN d.total_depth IS NULL
          THEN c.parent ELSE array_to_string((string_to_array(c.parent, '/'))[1:d.total_depth + 1], '/') END OFFSET 0) t ON true
 WHERE c.life IS DISTINCT FROM c.life_was
ON CONFLICT (parent, category, life) DO UPDATE
   SET at = CASE WHEN excluded.position > s.position THEN excluded.at ELSE s.at END,
       position = greatest(s.position, excluded.position);

-- name: apply_units
-- Units: each event that changes how a unit counts subtracts it from one size and adds it to another. The
-- running maximum of version * 8 + state is the state after each event, since an event without one leaves it;
-- life likewise. `above` is a unit's name without its last part, which identifies its parent until sums are
-- made.
WITH heard AS MATERIALIZED (
    SELECT e.stream, e.version, e.position, e.recorded_at AS at, e.topic, coalesce(t.status, e.data ->> t.field) AS status,
           CASE WHEN t.born THEN e.data -> 'under' END AS under
      FROM {batch} e JOIN (
           SELECT coalesce(topic, born) AS topic, status, field, born IS NOT NULL AS born
             FROM {ledger}.topic_statuses FULL JOIN (SELECT DISTINCT born FROM {ledger}.sets WHERE born IS NOT NULL) s ON born = topic
           OFFSET 0) t USING (topic)
), told AS MATERIALIZED (
    SELECT e.stream, s.category, s.life IS NULL AS lifeless, e.version, e.position, e.at,
           CASE WHEN e.status = ANY (s.gone) THEN 0 WHEN e.status = ANY (s.running) THEN 2
                WHEN e.status = ANY (s.done) THEN 3 WHEN e.status = ANY (s.failed) THEN 4
                WHEN e.status IS NOT NULL THEN 1 END AS state,
           CASE WHEN e.topic IS DISTINCT FROM s.born THEN NULL
                WHEN jsonb_typeof(e.under) = 'number' AND e.under::numeric BETWEEN 1 AND 1048575
                     AND e.under::numeric = trunc(e.under::numeric) THEN e.under::numeric::bigint
                ELSE 0 END AS born_under
      FROM heard e JOIN {ledger}.sets s ON s.category = split_part(e.stream, '/', 1)
     WHERE (e.status IS NOT NULL OR e.topic = s.born) AND e.stream <> s.category
), known AS MATERIALIZED (
    SELECT n.stream, k.version, k.state, k.life FROM (SELECT DISTINCT stream FROM told) n
      LEFT JOIN LATERAL (SELECT * FROM {progress_units} u WHERE u.stream = n.stream OFFSET 0) k ON true
), running AS (
    SELECT n.*, k.state AS state_before, k.life AS life_before, lead(n.version) OVER w IS NULL AS final,
           max(n.version * 8 + n.state) OVER w AS states, max(n.version * 1048576 + n.born_under) OVER w AS lives
      FROM told n JOIN known k USING (stream) WHERE k.version IS NULL OR n.version > k.version
    WINDOW w AS (PARTITION BY n.stream ORDER BY n.version ROWS UNBOUNDED PRECEDING)
), chain AS MATERIALIZED (
    SELECT stream, category, version, position, at, final,
           coalesce(states & 7, state_before, 0) AS state, coalesce(lag(states) OVER w & 7, state_before, 0) AS state_was,
           CASE WHEN lifeless THEN 0 WHEN lives IS NULL THEN life_before ELSE nullif(lives & 1048575, 0) END AS life,
           CASE WHEN lifeless THEN 0 WHEN lag(lives) OVER w IS NULL THEN life_before
                ELSE nullif(lag(lives) OVER w & 1048575, 0) END AS life_was
      FROM running WINDOW w AS (PARTITION BY stream ORDER BY version)
), put AS (
    INSERT INTO {progress_units} AS k (version, life, state, stream)
    SELECT version, life, state, stream FROM chain WHERE final
    ON CONFLICT (stream) DO UPDATE SET version = excluded.version, life = excluded.life, state = excluded.state
), sums AS (
    SELECT left(stream, -strpos(reverse(stream), '/')) AS above, category, life, max(position) AS position,
           count(*) FILTER (WHERE state > 0) - count(*) FILTER (WHERE state_was > 0) AS present,
           count(*) FILTER (WHERE state = 2) - count(*) FILTER (WHERE state_was = 2) AS running,
           count(*) FILTER (WHERE state = 3) - count(*) FILTER (WHERE state_was = 3) AS done,
           count(*) FILTER (WHERE state = 4) - count(*) FILTER (WHERE state_was = 4) AS failed
      FROM (SELECT stream, category, life, position, state, state_was FROM chain WHERE life = life_was AND state <> state_was
            UNION ALL
            SELECT stream, category, life, position, state, 0 FROM chain
             WHERE life IS DISTINCT FROM life_was AND life IS NOT NULL AND state > 0
            UNION ALL
            SELECT stream, category, life_was, position, 0, state_was FROM chain
             WHERE life IS DISTINCT FROM life_was AND life_was IS NOT NULL AND state_was > 0) c
     GROUP BY 1, 2, 3
), named AS (
    SELECT n.*, d.parent || substr(n.above, length(d.category) + 1) AS parent, d.total_depth, d.total_otherwise
      FROM sums n JOIN {ledger}.sets d USING (category)
)
INSERT INTO {progress_sets} AS s (position, at, present, running, done, failed, total, life, parent, category)
SELECT greatest(n.position, t.position), CASE WHEN t.position > n.position THEN t.at ELSE c.at END,
       n.present, n.running, n.done, n.failed, coalesce(t.total, n.total_otherwise), n.life, n.parent, n.category
  FROM named n JOIN chain c USING (position)
  LEFT JOIN LATERAL (
       SELECT * FROM {progress_totals} k WHERE k.category = n.category AND k.prefix = CASE WHEN n.total_depth IS NULL
          THEN n.parent ELSE array_to_string((string_to_array(n.parent, '/'))[1:n.total_depth + 1], '/') END OFFSET 0) t ON true
ON CONFLICT (parent, category, life) DO UPDATE
   SET present = s.present + excluded.present, running = s.running + excluded.running, done = s.done + excluded.done,
       failed = s.failed + excluded.failed,
       at = CASE WHEN excluded.position > s.position THEN excluded.at ELSE s.at END,
       position = greatest(s.position, excluded.position);

-- name: forget_units
-- Remove units; their sets are counted again below.
DELETE FROM {progress_units} WHERE stream IN {streams};

-- name: forget_parents
-- Remove the lives of parents.
DELETE FROM {progress_parents} WHERE parent IN {streams};

-- name: forget_totals
-- Remove how many are expected.
WITH gone AS (DELETE FROM {progress_totals} WHERE stream IN {streams} RETURNING prefix, category)
UPDATE {progress_sets} s SET total = d.total_otherwise
  FROM gone n JOIN {ledger}.sets d USING (category)
 WHERE s.category = n.category AND s.parent >= n.prefix AND s.parent < n.prefix || '0'
   AND (s.parent = n.prefix OR s.parent >= n.prefix || '/');

-- name: forget_sets
-- Remove empty sets: without a unit, and without a parent that made them. Others keep the position of their
-- last change.
DELETE FROM {progress_sets} s
 USING (SELECT s.category, f.parent FROM {ledger}.sets s
          JOIN (SELECT DISTINCT split_part(stream, '/', 1) AS category, stream AS parent FROM {streams} x) f
            ON f.category = s.parent
        UNION
        SELECT s.category, s.parent || f.rest FROM {ledger}.sets s
          JOIN (SELECT DISTINCT split_part(stream, '/', 1) AS category,
                       substr(stream, strpos(stream, '/'), length(stream) - strpos(stream, '/') - strpos(reverse(stream), '/') + 1) AS rest
                  FROM {streams} x WHERE strpos(stream, '/') > 0) f USING (category)) f,
       {ledger}.sets d
 WHERE s.parent = f.parent AND s.category = f.category AND d.category = f.category
   AND NOT EXISTS (SELECT FROM {progress_parents} p WHERE p.parent = s.parent AND p.category = s.category)
   AND NOT EXISTS (SELECT FROM {progress_totals} t WHERE t.prefix = s.parent AND t.category = s.category AND d.life IS NULL)
   AND NOT EXISTS (SELECT FROM {progress_units} u
                    WHERE u.stream >= s.category || substr(s.parent, length(d.parent) + 1) || '/'
                      AND u.stream < s.category || substr(s.parent, length(d.parent) + 1) || '0'
                      AND strpos(substr(u.stream, length(s.category) + length(s.parent) - length(d.parent) + 2), '/') = 0);

-- name: recount
-- Count again the sets from which units were removed.
WITH touched AS (
    SELECT DISTINCT s.category, s.parent || f.rest AS parent, s.category || f.rest AS start
      FROM {ledger}.sets s
      JOIN (SELECT DISTINCT split_part(stream, '/', 1) AS category,
                   substr(stream, strpos(stream, '/'), length(stream) - strpos(stream, '/') - strpos(reverse(stream), '/') + 1) AS rest
              FROM {streams} x WHERE strpos(stream, '/') > 0) f USING (category)
), counted AS (
    SELECT n.parent, n.category, u.life, count(*) AS present,
           count(*) FILTER (WHERE u.state = 2) AS running, count(*) FILTER (WHERE u.state = 3) AS done,
           count(*) FILTER (WHERE u.state = 4) AS failed
      FROM touched n JOIN {progress_units} u ON u.stream >= n.start || '/' AND u.stream < n.start || '0'
       AND strpos(substr(u.stream, length(n.start) + 2), '/') = 0
     WHERE u.state > 0 GROUP BY 1, 2, 3
)
UPDATE {progress_sets} s
   SET present = coalesce(c.present, 0), running = coalesce(c.running, 0), done = coalesce(c.done, 0),
       failed = coalesce(c.failed, 0)
  FROM {progress_sets} o JOIN touched n USING (parent, category) LEFT JOIN counted c USING (parent, category, life)
 WHERE s.parent = o.parent AND s.category = o.category AND s.life = o.life;

-- name: reads
-- The present set of each parent: what is shown; for one parent by name. percent is done of total, rounded
-- down.
CREATE OR REPLACE VIEW {views}.progress AS
SELECT s.category, s.parent, s.present, s.running, s.done, s.failed, s.total,
       CASE WHEN s.total > 0 THEN s.done * 100 / s.total END AS percent, s.position, s.at
  FROM {progress_sets} s LEFT JOIN {progress_parents} p USING (parent, category)
 WHERE s.life = coalesce(p.life, 0);

CREATE OR REPLACE FUNCTION {views}.progress_of(p_parent text)
RETURNS TABLE (category text, present bigint, running bigint, done bigint, failed bigint, total bigint, percent bigint,
               "position" bigint, at timestamptz)
LANGUAGE sql STABLE PARALLEL SAFE AS $$
    SELECT s.category, s.present, s.running, s.done, s.failed, s.total, s.percent, s.position, s.at
      FROM {views}.progress s WHERE s.parent = p_parent ORDER BY s.category
$$;
GRANT SELECT ON {views}.progress TO {reader};
GRANT EXECUTE ON FUNCTION {views}.progress_of TO {reader};
