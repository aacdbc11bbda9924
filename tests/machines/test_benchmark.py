"""The benchmark of machines runs, with tiny numbers, and gives what it promises; the two ways do the same."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from ledger import TransitionConflict
from tests.benchmarks.article import PUT, TAKE, Article
from tests.benchmarks.machines import SUCCESSORS, lay, moves, one_object
from tests.benchmarks.payments_in_state import in_state

WAITING = """
SELECT FROM pg_locks l WHERE NOT l.granted AND l.locktype = 'transactionid'
   AND l.pid IN (SELECT pid FROM pg_stat_activity WHERE datname = current_database())
"""


def test_moves_and_one_object(dsn: str) -> None:
    lay(dsn)
    ratios, figures = moves(dsn, 1, 1, 0.02)
    assert set(ratios) == {"move_vs_article_1"}
    assert set(figures) == {"ours_1_per_s", "article_1_per_s"}
    ratios, figures = one_object(dsn, 1, 0.05, 4, processes=1)
    assert set(ratios) == {"one_object_4"}
    assert ratios["one_object_4"] > 0
    assert figures["one_object_versions"] >= 2
    assert (figures["one_object_not_won_once"], figures["one_object_deadlocks"]) == (0, 0)


def test_in_state_finds_the_same_in_both_ways(dsn: str, admin_dsn: str) -> None:
    lay(dsn)
    ratios, figures = in_state(dsn, admin_dsn, 3000, 1)
    assert ratios["in_state_vs_article"] > 0
    assert (figures["in_state_objects"], figures["in_state_found"]) == (3000, 1000)
    assert min(figures["in_state_ours_ms"], figures["in_state_article_ms"]) > 0


def test_the_articles_way_refuses_and_conflicts(dsn: str) -> None:
    lay(dsn)
    one, other = Article(dsn, "a", SUCCESSORS | {"b": {"a"}}), Article(dsn, "a", SUCCESSORS)
    assert (one.move("k", "b"), one.move("k", "a"), one.move("k", "b")) == (10, 20, 30)
    with pytest.raises(ValueError, match="not from b to b"):
        one.move("k", "b")
    assert other.move("k", "a") == 40  # what was refused holds nothing
    one.cursor.execute(TAKE, ["k"])
    with ThreadPoolExecutor(1) as pool, psycopg.connect(dsn, autocommit=True) as connection:
        beaten = pool.submit(other.move, "k", "b")
        deadline = time.monotonic() + 20
        while connection.execute(WAITING).fetchone() is None and time.monotonic() < deadline:
            time.sleep(0.005)
        one.cursor.execute(PUT, ["k", "b", 50])
        one.connection.commit()
        with pytest.raises(TransitionConflict):
            beaten.result(20)
    assert other.move("k", "a") == 60
    for article in (one, other):
        article.connection.close()
