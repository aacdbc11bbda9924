-- Leases of runs: what must be renewed while it is in use.
-- oldest code: 1

-- Leases of slots, of flow runs that send heartbeats, and of workers. A lease is no fact: what it ends is ended by an
-- append, which the version of its stream decides. kind, key: what is leased. seconds: how long each renewal lasts.
-- data: what its holder told.
CREATE UNLOGGED TABLE run_leases (
    taken_at timestamptz      NOT NULL,
    until    timestamptz      NOT NULL,
    seconds  double precision NOT NULL,
    kind     text             COLLATE "C" NOT NULL,
    key      text             COLLATE "C" NOT NULL,
    data     jsonb            NOT NULL,
    PRIMARY KEY (kind, key)
) WITH (fillfactor = 50);

CREATE INDEX run_leases_until ON run_leases (kind, until);
