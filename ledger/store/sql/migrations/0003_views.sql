-- Views: their copies, what they have to know of domains, and events that failed in them.
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
