"""Error texts that differ in numbers and names alone belong to one cluster."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from holdfast.domain.jobs.error_clusters import SeenError, cluster_errors, cluster_key, common_text, pattern_of

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("ValueError: row 17 is bad", "ValueError: row 99123 is bad"),
        ("KeyError: 'ada'", "KeyError: 'bob'"),
        ('no user "ada lovelace"', 'no user "x"'),
        ("cannot open /srv/data/2030/a.csv", "cannot open /tmp/b.csv"),
        ("timeout of https://a.example/x?y=1", "timeout of http://b.example"),
        ("job 3f2504e0-4f89-11d3-9a0c-0305e82c3301 gone", "job 00000000-4f89-11d3-9a0c-0305e82c3301 gone"),
        ("commit deadbeef12 lost", "commit 0123abcdef lost"),
        ("at 2030-01-01T10:00:00Z", "at 2031-05-07 11:22:33.5+02:00"),
        ("mail to ada@example.com", "mail to bob.b@mail.example.org"),
        ("object at 0x7fca1", "object at 0xffff0"),
        ("took 1.5 s", "took 12,000 s"),
        ("mail server mx1.example.com is down", "mail server mx204.example.com is down"),
        ("host db12 refused user3", "host db7 refused user99"),
        ("queue_12 is full", "queue_5 is full"),
        ("shard-7 of A2B", "shard-11 of A31B"),
        ("boom\nTraceback: line 3", "boom\nTraceback: line 99"),
    ],
)
def test_variable_text_is_replaced(one, other):
    assert pattern_of(one) == pattern_of(other)
    assert cluster_key("mail", one) == cluster_key("mail", other)


@pytest.mark.parametrize(
    ("one", "other"),
    [("ValueError: a", "TypeError: a"), ("row is bad", "row is good"), ("utf8 is odd", "latin1 is odd"), ("", "boom")],
)
def test_different_errors_stay_apart(one, other):
    assert cluster_key("mail", one) != cluster_key("mail", other)


def test_kinds_are_apart():
    """The same words of two kinds may have two causes."""
    assert cluster_key("mail", "boom") != cluster_key("post", "boom")


def test_clusters_have_counts_and_times():
    """The largest first, with the newest of each for a look."""
    seen = [SeenError(str(n), "mail", f"row {n}", NOON + timedelta(hours=n)) for n in (3, 2, 1)]
    first, second = cluster_errors([*seen, SeenError("9", "post", "other", NOON)])
    assert (first.count, first.first, first.last) == (3, NOON + timedelta(hours=1), NOON + timedelta(hours=3))
    assert (first.newest, first.pattern, first.sample) == ("3", "row <n>", "row 3")
    assert (second.kind, second.count) == ("post", 1)


@pytest.mark.parametrize(
    ("error", "common"),
    [
        ("ValueError: row 17 of 'orders' is bad", "ValueError: row"),
        ("password=*** was refused by https://example.com/a", "was refused by"),
        ("no  good", ""),  # the pattern has one space, the error two
        ("17", ""),
        ("", ""),
    ],
)
def test_the_text_that_all_errors_of_a_cluster_contain(error, common):
    """A search for it finds them all: it has no part that differs, and none that is masked."""
    (cluster,) = cluster_errors([SeenError(1, "mail", error)])
    assert common_text(cluster) == common


def test_a_hostile_line_takes_no_time():
    """Patterns do not look back, and no more than a few hundred characters are looked at."""
    for text in ("'" * 100_000, "a@" * 50_000, "/a" * 50_000, "0x" * 50_000, "deadbeef" * 20_000):
        assert len(pattern_of(text)) <= 400
