-- The order of the log: how positions stay safe to follow without a table lock. Everything about it is here.
--
-- A sequence gives positions when rows are inserted, not when they commit, so `position > cursor` alone
-- skips rows that commit late. Instead:
--
-- Writer, before it takes a position: L = the last position handed out; then a SHARED advisory lock, held to
-- the end of its transaction, whose key is (lock class, L). Every position that it takes afterwards is > L.
-- One such mark a transaction is enough (its later positions are greater still), and more would exhaust the
-- server's lock table; a transaction-local setting remembers it, so that ROLLBACK TO SAVEPOINT, which
-- releases the lock, forgets it too.
--
-- Reader, in this order: S = the last position handed out; then the smallest L among the marks now held;
-- bound B = min(S, that L); and only then, IN A NEW SNAPSHOT, rows with cursor < position <= B.
--
-- Why nothing is skipped: take a position p <= B that commits some time. Its writer held its mark with L < p
-- from before p was handed out until after p was visible (PostgreSQL makes a commit visible before it
-- releases the locks). p <= S, so p was handed out, and hence the mark taken, before the reader looked at
-- the marks. Were the mark still held then, B <= L < p, which contradicts p <= B. So it was released
-- before, p was visible before, and the snapshot taken afterwards sees it. Reading the rows first, or in
-- the same snapshot as the marks, or from a sequence with a cache, breaks one of these steps; tests do all
-- three and see events skipped.
--
-- Why positions within a stream ascend: a position is taken after the head is locked or the former version
-- was seen committed, never before.
--
-- Limits: the primary only (a standby does not show its primary's locks). A transaction that holds an append
-- open holds every reader back: `pledger doctor` names appends that are older than a second.
--
-- Functions without a search_path of their own are only called by functions that have one.

-- The ledger's own constants, generated so that the planner inlines them and they cost nothing.
DO $$
DECLARE
    class CONSTANT bigint := (SELECT lock_class FROM identity);
BEGIN
    EXECUTE format('CREATE OR REPLACE FUNCTION lock_class() RETURNS bigint LANGUAGE sql IMMUTABLE PARALLEL SAFE AS %L',
                   format('SELECT %s::bigint', class));
    EXECUTE format('CREATE OR REPLACE FUNCTION mark_name() RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE AS %L',
                   format('SELECT %L::text', 'ledger.mark_' || class));
END $$;

-- Mark this transaction as a writer, once. Call before the first position is taken.
CREATE OR REPLACE FUNCTION mark() RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    last bigint;
BEGIN
    IF coalesce(current_setting(mark_name(), true), '') = '' THEN
        last := coalesce(pg_sequence_last_value('positions'), 0);
        PERFORM pg_advisory_xact_lock_shared((lock_class() << 48) | last), set_config(mark_name(), last::text, true);
    END IF;
END $$;

-- Whether this session holds the moment's lock: an interrupt may come before it is granted.
CREATE OR REPLACE FUNCTION holds_moment(p_key bigint) RETURNS boolean LANGUAGE sql AS $$
    SELECT EXISTS (SELECT FROM pg_locks
                    WHERE locktype = 'advisory' AND granted AND pid = pg_backend_pid() AND objsubid = 1
                      AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
                      AND classid::bigint = (p_key >> 32) & 4294967295 AND objid::bigint = p_key & 4294967295)
$$;

-- Take one position. Singles hold the moment's lock (class | 2^15) shared, a block takes it exclusively.
-- A time-out or cancel between lock and unlock must not leave it behind, or every block would hang;
-- OTHERS alone does not catch query_canceled.
CREATE OR REPLACE FUNCTION take_position() RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    taken bigint;
BEGIN
    PERFORM pg_advisory_lock_shared((lock_class() | 32768) << 48);
    taken := nextval('positions');
    PERFORM pg_advisory_unlock_shared((lock_class() | 32768) << 48);
    RETURN taken;
EXCEPTION WHEN query_canceled OR OTHERS THEN
    IF holds_moment((lock_class() | 32768) << 48) THEN
        PERFORM pg_advisory_unlock_shared((lock_class() | 32768) << 48);
    END IF;
    RAISE;
END $$;

-- Take `n` contiguous positions; returns the first. The lock is a transaction lock in a subtransaction that
-- is always rolled back: neither an error nor a cancel can leave it behind, and sequences do not roll back.
CREATE OR REPLACE FUNCTION take_block(n bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    last bigint;
BEGIN
    IF n = 1 THEN
        RETURN take_position();
    END IF;
    BEGIN
        PERFORM pg_advisory_xact_lock((lock_class() | 32768) << 48);
        last := setval('positions', coalesce(pg_sequence_last_value('positions'), 0) + n);
        RAISE SQLSTATE 'LG000';
    EXCEPTION WHEN SQLSTATE 'LG000' THEN
        RETURN last - n + 1;
    END;
END $$;

-- The reader's bound B. `known`: the bound that this process has; while nothing was handed out since, the
-- marks need not be read. Call it in a statement of its own, before the statement that selects rows.
CREATE OR REPLACE FUNCTION bound(known bigint DEFAULT -1) RETURNS bigint
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    last bigint;
    marked bigint;
BEGIN
    IF pg_is_in_recovery() THEN
        RAISE SQLSTATE 'LG003' USING MESSAGE = 'a standby does not know its primary''s open appends; follow the primary';
    END IF;
    last := coalesce(pg_sequence_last_value('positions'), 0);
    IF last = known THEN
        RETURN last;
    END IF;
    SELECT min(((classid::bigint & 65535) << 32) | objid::bigint) INTO marked
      FROM pg_locks
     WHERE locktype = 'advisory' AND granted AND objsubid = 1 AND classid::bigint >> 16 = lock_class()
       AND database = (SELECT oid FROM pg_database WHERE datname = current_database());
    RETURN least(last, marked);
END $$;
