-- The order of the log: how readers can follow positions safely without a table lock.
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
                   format('SELECT %L::text', 'ledger.mark_' || (SELECT replace(ledger::text, '-', '') FROM identity)));
END $$;

-- The position at which this transaction is marked: that of its first mark, or the present one. The setting
-- does not prove that the lock is held, because anybody can write a setting; a false value can only hold
-- readers back, and no longer than the transaction. Taking the same lock again needs no room in the lock
-- table. Inlined, as are the next two.
CREATE OR REPLACE FUNCTION mark_place() RETURNS bigint LANGUAGE sql VOLATILE AS $$
    SELECT least(abs(nullif(current_setting(mark_name(), true), '')::bigint), coalesce(pg_sequence_last_value('positions'), 0))
$$;

-- The locks of the effects that every append must hold, taken with the mark; 3_effects.sql replaces this
-- function. They are taken here, not when the effect is called, so that an append that waits for them does
-- not hold a head yet. VOLATILE, as 3_effects.sql explains.
CREATE OR REPLACE FUNCTION hold_effects() RETURNS text LANGUAGE sql VOLATILE AS 'SELECT ''''::text';

-- Mark this transaction as a writer, at mark_place(), before it takes a position. The result has no meaning.
CREATE OR REPLACE FUNCTION mark(p_place bigint) RETURNS text LANGUAGE sql VOLATILE AS $$
    SELECT set_config(mark_name(), p_place::text || pg_advisory_xact_lock_shared((lock_class() << 48) | p_place)::text, true)
           || hold_effects()
$$;

-- Mark a transaction in which nothing was written so far. The mark is not remembered, because that costs more
-- than the lock; a second append of the transaction, recognised by the assigned transaction id, remembers its
-- own.
CREATE OR REPLACE FUNCTION mark_alone() RETURNS text LANGUAGE sql VOLATILE AS $$
    SELECT pg_advisory_xact_lock_shared((lock_class() << 48) | coalesce(pg_sequence_last_value('positions'), 0))::text
           || hold_effects()
$$;

-- Take one position where a block is just being taken, and the first one of a session: under a transaction's lock, in
-- a subtransaction that is always rolled back, so that neither an error nor a cancel can leave the lock behind. Both
-- can wait here: for the block, and a session's first nextval() for the catalog of sequences. The session remembers
-- that it had its first.
CREATE OR REPLACE FUNCTION await_position() RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    taken bigint;
BEGIN
    PERFORM pg_advisory_xact_lock_shared((lock_class() | 32768) << 48);
    taken := nextval('positions');
    RAISE SQLSTATE 'LG000';
EXCEPTION WHEN SQLSTATE 'LG000' THEN
    PERFORM set_config(mark_name() || '_first', 'taken', false);
    RETURN taken;
END $$;

-- Take one position: the moment's lock (class | 2^15) shared, the next value, the lock released. A block
-- takes that lock exclusively. It is a session's lock, so a time-out, cancel or error in between would leave it
-- behind and every block would hang. Nothing can interrupt it: the calls are parts of one expression, in which
-- PostgreSQL does not look for interrupts, and none of them waits or fails: mark() has opened the sequence, the
-- first position of the session has read its catalog (await_position), and the transaction has its id. To wait for
-- a session's lock would be wrong: a cancel that comes just when it is granted leaves it behind, as a test saw.
-- Inlined; tests show it, and cancel thousands of appends. What stays: a session that had to throw away its whole
-- cache of catalogs in this moment, while somebody holds pg_sequence exclusively; `pledger doctor` would name it.
-- `positions` has room above 48 bits, so nextval() itself does not fail; the appends check the limit.
CREATE OR REPLACE FUNCTION take_position() RETURNS bigint LANGUAGE sql VOLATILE AS $$
    SELECT coalesce(CASE WHEN current_setting(mark_name() || '_first', true) IS NOT DISTINCT FROM 'taken'
                          AND pg_current_xact_id() IS NOT NULL
                          AND pg_try_advisory_lock_shared((lock_class() | 32768) << 48)
                         THEN greatest(nextval('positions'),
                                       pg_advisory_unlock_shared((lock_class() | 32768) << 48)::integer::bigint)
                    END, await_position())
$$;

-- Take `n` contiguous positions; returns the first. The lock is a transaction's lock in a subtransaction that
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

-- Refuse positions that are too large for a mark.
CREATE OR REPLACE FUNCTION refuse_last_position() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    RAISE SQLSTATE 'LG006' USING MESSAGE = 'all 2^48 positions of this ledger are used';
END $$;

-- The reader's bound B. `known`: the bound that this process has; while nothing was handed out since, the
-- marks need not be read. Call it in a separate statement, before the statement that selects rows. It refuses
-- a sequence that no reader can follow: one that went back while it was read, because it hands out again
-- positions that readers have passed, and one with a cache. This check is for processes that already read; on
-- connecting they use describe().
CREATE OR REPLACE FUNCTION bound(known bigint DEFAULT -1) RETURNS bigint
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    last bigint;
    cached bigint;
    marked bigint;
BEGIN
    IF pg_is_in_recovery() THEN
        RAISE SQLSTATE 'LG003' USING MESSAGE = 'a standby does not know its primary''s open appends; follow the primary';
    END IF;
    last := coalesce(pg_sequence_last_value('positions'), 0);
    IF last = known THEN
        RETURN last;
    END IF;
    IF last < known THEN
        RAISE SQLSTATE 'LG006' USING MESSAGE = format(
            'the sequence of positions went back from %s or beyond to %s while the log was read: it was set back, or the '
            'ledger restored; stop what appends, set it to the highest position that was ever handed out, and let '
            'readers begin again from their cursors', known, last);
    END IF;
    SELECT seqcache INTO STRICT cached FROM pg_catalog.pg_sequence WHERE seqrelid = 'positions'::regclass;
    IF cached <> 1 THEN
        RAISE SQLSTATE 'LG006' USING MESSAGE = format(
            'the sequence of positions has CACHE %s, of which sessions hand out old positions late, so that readers '
            'skip events: ALTER SEQUENCE positions CACHE 1, and let all sessions that append connect anew', cached);
    END IF;
    SELECT min(((classid::bigint & 65535) << 32) | objid::bigint) INTO marked
      FROM pg_locks
     WHERE locktype = 'advisory' AND granted AND objsubid = 1 AND classid::bigint >> 16 = lock_class()
       AND database = (SELECT oid FROM pg_database WHERE datname = current_database());
    RETURN least(last, marked);
END $$;
