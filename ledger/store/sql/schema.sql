-- The tables of one ledger, as a new installation gets them.
--
-- Runs with search_path set to the ledger's schema and as its owner role, so no name here carries the
-- schema. `migrations/` leads an older ledger to the same tables; a test holds the two equal. Functions,
-- triggers and grants are in `functions/` and are replaced at every `pledger init`.

-- Who this ledger is. `lock_class` is the upper 16 bits of its advisory locks (functions/order.sql).
CREATE TABLE identity (
    single     boolean     PRIMARY KEY DEFAULT true CHECK (single),
    ledger     uuid        NOT NULL,
    lock_class bigint      NOT NULL CHECK (lock_class BETWEEN 1 AND 32767),
    created_at timestamptz NOT NULL
);

CREATE TABLE migrations (
    number     integer     PRIMARY KEY,
    name       text        NOT NULL,
    applied_at timestamptz NOT NULL
);

-- Positions. 48 bits are used, because a writer's mark packs a position beside the lock class; the appends
-- refuse more. CACHE must stay 1: with a larger one a session hands out old positions late, and readers skip
-- them (measured).
CREATE SEQUENCE positions AS bigint CACHE 1 NO CYCLE;

-- The log. One row an event, never changed. Fixed-width columns first: no padding between them.
-- A body is `data` (our own events) or `raw` (another application's bytes, never looked into).
CREATE TABLE events (
    position    bigint      NOT NULL,
    recorded_at timestamptz NOT NULL,
    version     bigint      NOT NULL,
    schema      smallint    NOT NULL DEFAULT 1,
    stream      text        COLLATE "C" NOT NULL,
    topic       text        COLLATE "C" NOT NULL,
    data        jsonb,
    raw         bytea,
    meta        jsonb,
    CONSTRAINT events_body CHECK ((data IS NULL) <> (raw IS NULL)),
    CONSTRAINT events_position PRIMARY KEY (position),
    CONSTRAINT events_stream_version UNIQUE (stream, version)
);

-- The tail is always read by `position > cursor`: let the planner know early that the table is not empty,
-- and keep the insert-only table frozen in small steps instead of one large one.
ALTER TABLE events SET (autovacuum_vacuum_insert_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.05);

-- One row a stream: version check, snapshot, current state. Derived: it may be dropped and rebuilt from the
-- events. `version` may lag behind the events where an append was recorded without a head; every function
-- that relies on it looks at the events before it refuses. `state` is the fold up to `state_version`.
CREATE TABLE heads (
    stream        text     COLLATE "C" PRIMARY KEY,
    version       bigint   NOT NULL,
    state_version bigint   NOT NULL DEFAULT 0,
    token         bigint,
    state_schema  integer,
    status        text     COLLATE "C",
    state         jsonb
) WITH (fillfactor = 70);

-- What each command id recorded, so that repeating it returns the first result. Derived from events.meta.
CREATE TABLE commands (
    first_position bigint      NOT NULL,
    last_position  bigint      NOT NULL,
    recorded_at    timestamptz NOT NULL,
    command        text        COLLATE "C" PRIMARY KEY,
    digest         bytea       NOT NULL
);

-- Inline effects: functions (first position, last position) that every append calls in its transaction.
CREATE TABLE effects (
    name        text        COLLATE "C" PRIMARY KEY,
    routine     text        NOT NULL,
    attached_at timestamptz NOT NULL
);

-- How far each application was processed whose notifications this one consumes. The row commits together with
-- what processing recorded; room in its page lets it be updated in place.
CREATE TABLE tracking (
    notification_id bigint NOT NULL,
    application     text   COLLATE "C" PRIMARY KEY
) WITH (fillfactor = 50);

-- What other applications keep beside their log, by purpose: snapshots of their aggregates. Bytes, never looked
-- into; versions with gaps. Derived from the events: it may be dropped.
CREATE TABLE snapshots (
    recorded_at timestamptz NOT NULL,
    version     bigint      NOT NULL,
    purpose     text        COLLATE "C" NOT NULL,
    stream      text        COLLATE "C" NOT NULL,
    topic       text        COLLATE "C" NOT NULL,
    raw         bytea       NOT NULL,
    PRIMARY KEY (stream, purpose, version)
);

-- How far each named reader of the log has come: the cursor after the last event whose effects are recorded. A
-- reader that begins again a little earlier does no harm, so it is written seldom, and never by an append.
CREATE TABLE readers (
    updated_at timestamptz NOT NULL,
    reader     text        COLLATE "C" PRIMARY KEY,
    cursor     text        COLLATE "C" NOT NULL,
    CONSTRAINT readers_cursor CHECK (cursor ~ '^[0-9a-f-]{36}:[0-9]{1,15}:[0-9a-f]*$')
) WITH (fillfactor = 50);
