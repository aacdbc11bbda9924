-- Leases of claims, and what workers say of themselves. None of it is truth: it may be lost, and is made anew.
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

-- Heads are mended with their lease tokens since.
DROP FUNCTION IF EXISTS mend_heads(text[], bigint[], text[], boolean[], text[], bigint[], integer[], boolean[]);
DROP FUNCTION IF EXISTS mend_head(text, bigint, text, boolean, jsonb, bigint, integer, boolean);
