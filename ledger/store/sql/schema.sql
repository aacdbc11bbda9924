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

-- The status that an event leads to, by its topic: `status` itself, or the text that the field `field` of its body
-- holds. Whoever knows a domain declares it, so that views need not have imported the domain. number: which
-- declaration it was; copies of views say up to which they know.
CREATE TABLE moves (
    number integer NOT NULL,
    topic  text    COLLATE "C" PRIMARY KEY,
    status text    COLLATE "C",
    field  text    COLLATE "C",
    CONSTRAINT moves_one_way CHECK ((status IS NULL) <> (field IS NULL))
);

-- What is counted: the streams of a category are the units of sets, one for each parent. A parent's key is that of
-- its units without the last part. running, done, failed, gone: the statuses that say so; `gone` is not in the set.
-- life, death: the topics of the parent's birth, which begins the set anew, and of its death. born: the topic of a
-- unit's birth, whose field `under` says into which life. How many are expected is said by events of `total_topic` at
-- `total_path` in their body, in the stream of an ancestor whose key has `total_depth` parts (null: the parent's own);
-- `total_reset` takes it back, `total_otherwise` is it where none is said. number: as in moves, which it continues.
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

-- The levels of pipelines whose state is kept as items (a project, its slices, …), as whoever knows a pipeline declared
-- them. parent: the level above, null for the project's. ids: names of the parts of a key after the project, as the
-- state shows them; `children`: of the field with the level below; named: whether the state shows the project's name.
CREATE TABLE levels (
    named    boolean NOT NULL,
    category text    COLLATE "C" PRIMARY KEY,
    parent   text    COLLATE "C",
    children text    COLLATE "C",
    ids      text[]  COLLATE "C" NOT NULL,
    flags    text[]  COLLATE "C" NOT NULL,
    totals   text[]  COLLATE "C" NOT NULL
);

-- What a fact of an item does, by its topic: a word that all levels share (`started`), or `flag` with the flag that
-- became true. status: what it leads to.
CREATE TABLE level_facts (
    topic  text COLLATE "C" PRIMARY KEY,
    fact   text COLLATE "C" NOT NULL,
    status text COLLATE "C",
    flag   text COLLATE "C",
    CONSTRAINT level_facts_flag CHECK ((fact = 'flag') = (flag IS NOT NULL))
);

-- The views: which copy is read (`live`), which one was before (`kept`), and whether appends write it (`inline`). The
-- tables of a view are in the schema of views; everything here and there is derived from the events.
CREATE TABLE views (
    name      text    COLLATE "C" PRIMARY KEY,
    live      integer,
    kept      integer,
    last_copy integer NOT NULL DEFAULT 0,
    inline    boolean NOT NULL DEFAULT false
);

-- The copies of each view: the tables of one definition, and how far they have come. The position commits together
-- with what the events up to it made. ahead: positions beyond it that are in already. building: being rebuilt. error:
-- why it cannot be followed. indexed: all its indexes are made. moves:
-- up to which declaration of `moves` and `sets` it knows. refolds: how often a part of it was filled in again.
-- effect: the statements with which an append keeps it.
CREATE TABLE view_copies (
    position   bigint      NOT NULL DEFAULT 0,
    events     bigint      NOT NULL DEFAULT 0,
    made_at    timestamptz NOT NULL,
    updated_at timestamptz NOT NULL,
    copy       integer     NOT NULL,
    moves      integer     NOT NULL DEFAULT 0,
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

-- Streams that a copy does not follow any more, since an event of theirs failed: from `position` on.
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

-- Who works on what until when. The claim itself is an event, with the same token; a lease without its claim, or behind
-- it, means nothing. taken_at: when; until: not heard of its worker since, it is over. operation: what limits count.
CREATE UNLOGGED TABLE leases (
    token     bigint      NOT NULL,
    taken_at  timestamptz NOT NULL,
    until     timestamptz NOT NULL,
    stream    text        COLLATE "C" PRIMARY KEY,
    worker    text        COLLATE "C" NOT NULL,
    operation text        COLLATE "C" NOT NULL
) WITH (fillfactor = 50);

-- Workers that say that they are there. busy: how many of their slots work; done: what they ended since they began.
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

-- How many of a limited operation may still begin, as of a time: a bucket of tokens.
CREATE UNLOGGED TABLE rates (
    at        timestamptz      NOT NULL,
    left_over double precision NOT NULL,
    operation text             COLLATE "C" PRIMARY KEY
) WITH (fillfactor = 50);

-- Who of many runs what one is enough for, until when. Two at once do no harm, and none for a while neither.
CREATE UNLOGGED TABLE elections (
    until  timestamptz NOT NULL,
    name   text        COLLATE "C" PRIMARY KEY,
    worker text        COLLATE "C" NOT NULL
) WITH (fillfactor = 50);
