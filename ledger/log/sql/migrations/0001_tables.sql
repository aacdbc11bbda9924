-- The tables of a ledger.
--
-- A new ledger gets all migrations in order, an older one only those that it lacks. A migration runs with
-- search_path set to the ledger's schema and as its owner role, so no name here carries the schema.
-- Functions, triggers and grants are in `functions/` and are replaced at every `pledger init`.

-- The identity of this ledger. `lock_class` is the upper 16 bits of its advisory locks
-- (functions/1_order.sql).
CREATE TABLE identity (
    single     boolean     PRIMARY KEY DEFAULT true CHECK (single),
    ledger     uuid        NOT NULL,
    lock_class bigint      NOT NULL CHECK (lock_class BETWEEN 1 AND 32767),
    created_at timestamptz NOT NULL
);

-- The applied migrations. oldest_code: the schema number of the oldest code that may use the ledger after
-- this migration; null: only code that contains the migration.
CREATE TABLE migrations (
    number      integer     PRIMARY KEY,
    name        text        NOT NULL,
    applied_at  timestamptz NOT NULL,
    oldest_code integer
);

-- Positions. Only 48 bits are used, because a writer's mark packs a position beside the lock class; appends
-- refuse greater ones. CACHE must stay 1: with a larger cache a session hands out old positions late, and
-- readers skip them (measured).
CREATE SEQUENCE positions AS bigint CACHE 1 NO CYCLE;

-- The log: one row per event, never changed. Fixed-width columns come first, to avoid padding.
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

-- The tail is always read by `position > cursor`. Frequent analysis tells the planner early that the table is
-- not empty, and frequent vacuums freeze the insert-only table in small steps instead of one large one.
ALTER TABLE events SET (autovacuum_vacuum_insert_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.05);

-- One row per stream, for the version check, the snapshot and the current state. Derived: it may be dropped
-- and rebuilt from the events. `version` may lag behind the events where an append was recorded without a
-- head; every function that relies on it checks the events before it refuses. `state` is the fold up to
-- `state_version`.
CREATE TABLE heads (
    stream        text     COLLATE "C" PRIMARY KEY,
    version       bigint   NOT NULL,
    state_version bigint   NOT NULL DEFAULT 0,
    token         bigint,
    state_schema  integer,
    status        text     COLLATE "C",
    state         jsonb
) WITH (fillfactor = 70);

-- The result of each command id, so that repeating it returns the first result. Derived from events.meta.
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

-- The last processed notification of each application that this one consumes. The row commits together with
-- the events that the processing recorded; free room in its page allows updates in place.
CREATE TABLE tracking (
    notification_id bigint NOT NULL,
    application     text   COLLATE "C" PRIMARY KEY
) WITH (fillfactor = 50);

-- Snapshots that other applications keep of their aggregates, by purpose. Bytes that are never decoded;
-- versions may have gaps. Derived from the events: it may be dropped.
CREATE TABLE snapshots (
    recorded_at timestamptz NOT NULL,
    version     bigint      NOT NULL,
    purpose     text        COLLATE "C" NOT NULL,
    stream      text        COLLATE "C" NOT NULL,
    topic       text        COLLATE "C" NOT NULL,
    raw         bytea       NOT NULL,
    PRIMARY KEY (stream, purpose, version)
);

-- The position of each named reader of the log: the cursor after the last event whose effects are recorded. A
-- reader may safely start again a little earlier, so it is written rarely, and never by an append.
CREATE TABLE readers (
    updated_at timestamptz NOT NULL,
    reader     text        COLLATE "C" PRIMARY KEY,
    cursor     text        COLLATE "C" NOT NULL,
    CONSTRAINT readers_cursor CHECK (cursor ~ '^[0-9a-f-]{36}:[0-9]{1,15}:[0-9a-f]*$')
) WITH (fillfactor = 50);

-- Streams that a named reader (a reactor) has parked, because it failed on one of their events: from
-- `position` on. tries: how often it failed. again: another try was requested, which the reader makes.
CREATE TABLE reader_parked (
    position  bigint      NOT NULL,
    parked_at timestamptz NOT NULL,
    tries     integer     NOT NULL DEFAULT 1,
    again     boolean     NOT NULL DEFAULT false,
    reader    text        COLLATE "C" NOT NULL,
    stream    text        COLLATE "C" NOT NULL,
    error     text        NOT NULL,
    PRIMARY KEY (reader, stream)
);

-- The status that an event leads to, by its topic: `status` itself, or the text in the field `field` of its
-- body. Processes that import a domain announce it, so that views need not import it. number: the number of
-- the announcement; each copy of a view stores the last one that it has taken over.
CREATE TABLE topic_statuses (
    number integer NOT NULL,
    topic  text    COLLATE "C" PRIMARY KEY,
    status text    COLLATE "C",
    field  text    COLLATE "C",
    CONSTRAINT topic_statuses_one_way CHECK ((status IS NULL) <> (field IS NULL))
);

-- Sets that are counted: the streams of a category are the units, and each parent has one set. A parent's key
-- is that of its units without the last part. running, done, failed, gone: the statuses that count as such; a
-- unit that is `gone` is not in the set. life, death: the topics of the parent's creation, which begins a new
-- set, and of its deletion. born: the topic of a unit's creation, whose field `under` is the parent's
-- incarnation. The expected number is in events of `total_topic`, at `total_path` in their body, in the
-- stream of an ancestor whose key has `total_depth` parts (null: the parent's own). `total_reset` is the
-- topic that clears it; `total_otherwise` is used where none is recorded. number: as in topic_statuses, with
-- which it shares one numbering.
CREATE TABLE sets (
    total_otherwise bigint,
    number          integer NOT NULL,
    total_depth     integer,
    category        text    COLLATE "C" PRIMARY KEY,
    parent          text    COLLATE "C" NOT NULL,
    running         text[]  COLLATE "C" NOT NULL,
    done            text[]  COLLATE "C" NOT NULL,
    failed          text[]  COLLATE "C" NOT NULL,
    gone            text[]  COLLATE "C" NOT NULL,
    life            text    COLLATE "C",
    death           text    COLLATE "C",
    born            text    COLLATE "C",
    total_topic     text    COLLATE "C",
    total_path      text[]  COLLATE "C",
    total_reset     text    COLLATE "C"
);

-- The views: the copy that is read (`live`), the previous one (`kept`), and whether appends write it
-- (`inline`). The tables of a view are in the schema of views. All of this is derived from the events.
CREATE TABLE views (
    name      text    COLLATE "C" PRIMARY KEY,
    live      integer,
    kept      integer,
    last_copy integer NOT NULL DEFAULT 0,
    inline    boolean NOT NULL DEFAULT false
);

-- The copies of each view: the tables of one definition, and the position that they have reached, which
-- commits together with their rows. ahead: later positions that are already applied. building: it is being
-- rebuilt. error: why it cannot be followed. indexed: all its indexes are made. announced: the last
-- announcement of `topic_statuses` and `sets` that it has taken over. refolds: how often a part of it was
-- filled again. effect: the statements with which an append updates it.
CREATE TABLE view_copies (
    position   bigint      NOT NULL DEFAULT 0,
    events     bigint      NOT NULL DEFAULT 0,
    made_at    timestamptz NOT NULL,
    updated_at timestamptz NOT NULL,
    copy       integer     NOT NULL,
    announced  integer     NOT NULL DEFAULT 0,
    refolds    integer     NOT NULL DEFAULT 0,
    building   boolean     NOT NULL DEFAULT true,
    indexed    boolean     NOT NULL DEFAULT false,
    view       text        COLLATE "C" NOT NULL REFERENCES views,
    definition text        COLLATE "C" NOT NULL,
    ahead      bigint[]    NOT NULL DEFAULT '{}',
    effect     text[]      NOT NULL DEFAULT '{}',
    error      text,
    PRIMARY KEY (view, copy)
) WITH (fillfactor = 50);

-- Streams that a copy has parked, because one of their events failed: from `position` on.
CREATE TABLE view_parked (
    position  bigint      NOT NULL,
    parked_at timestamptz NOT NULL,
    copy      integer     NOT NULL,
    tries     integer     NOT NULL DEFAULT 1,
    view      text        COLLATE "C" NOT NULL,
    stream    text        COLLATE "C" NOT NULL,
    error     text        NOT NULL,
    event     jsonb       NOT NULL,
    PRIMARY KEY (view, copy, stream),
    FOREIGN KEY (view, copy) REFERENCES view_copies ON DELETE CASCADE
);

-- Leases: which worker works on which stream until when. The claim itself is an event with the same token; a
-- lease without its claim, or with an older token, has no effect. until: the lease ends then unless its
-- worker renews it. operation: the operation, for which limits count leases.
CREATE UNLOGGED TABLE leases (
    token     bigint      NOT NULL,
    taken_at  timestamptz NOT NULL,
    until     timestamptz NOT NULL,
    stream    text        COLLATE "C" PRIMARY KEY,
    worker    text        COLLATE "C" NOT NULL,
    operation text        COLLATE "C" NOT NULL
) WITH (fillfactor = 50);

-- The registered workers. busy: how many of their slots are in use; done: how much work they have ended since
-- their start.
CREATE UNLOGGED TABLE workers (
    started_at timestamptz NOT NULL,
    seen_at    timestamptz NOT NULL,
    done       bigint      NOT NULL DEFAULT 0,
    pid        integer     NOT NULL,
    slots      integer     NOT NULL,
    busy       integer     NOT NULL DEFAULT 0,
    draining   boolean     NOT NULL DEFAULT false,
    worker     text        COLLATE "C" PRIMARY KEY,
    host       text        NOT NULL,
    queues     text[]      COLLATE "C",
    operations text[]      COLLATE "C" NOT NULL
) WITH (fillfactor = 50);

-- How many runs of a limited operation may still begin, as of a time: a token bucket.
CREATE UNLOGGED TABLE rates (
    at        timestamptz      NOT NULL,
    left_over double precision NOT NULL,
    operation text             COLLATE "C" PRIMARY KEY
) WITH (fillfactor = 50);

-- Which worker runs a task that only one needs to run, and until when. Two at once, or none for a while, do
-- no harm.
CREATE UNLOGGED TABLE elections (
    until  timestamptz NOT NULL,
    name   text        COLLATE "C" PRIMARY KEY,
    worker text        COLLATE "C" NOT NULL
) WITH (fillfactor = 50);
