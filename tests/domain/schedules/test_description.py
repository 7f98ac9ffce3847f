"""Expressions in plain English, and warnings about them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from holdfast.domain.schedules.definition import Timing
from holdfast.domain.schedules.description import explain, lint, upcoming

NOW = datetime(2030, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("*/5 * * * *", "every 5 minutes (UTC)"),
        ("* * * * *", "every minute (UTC)"),
        ("@hourly", "every hour (UTC)"),
        ("@daily", "at 00:00 (UTC)"),
        ("15 * * * *", "minute 15 of every hour (UTC)"),
        ("30 6 * * mon-fri", "at 06:30, on Monday to Friday (UTC)"),
        ("0 9,18 * * sat,sun", "at 09:00 and 18:00, on Saturday and Sunday (UTC)"),
        ("0,30 8-18 * 1-6 1-5", "every 30 minutes of hour 8 to 18, on Monday to Friday, in January to June (UTC)"),
        ("0 9 L * *", "at 09:00, on the last day of the month (UTC)"),
        ("0 9 1,15 * *", "at 09:00, on day 1 and 15 of the month (UTC)"),
        ("0 9 * * 1#2", "at 09:00, on the second Monday of the month (UTC)"),
        ("0 9 * * 5L", "at 09:00, on the last Friday of the month (UTC)"),
        ("0 9 1 * fri", "at 09:00, on day 1 of the month or Friday (UTC)"),
        ("0 9 */10 * fri", "at 09:00, on day 1, 11, 21 and 31 of the month if it is Friday (UTC)"),
        ("*/10 * * * * *", "every 10 seconds of every minute (UTC)"),
        ("0 1-23/2 * * *", "minute 0 of hour 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21 and 23 (UTC)"),
        ("every 5m", "every 5 minutes"),
        ("every 1d", "every day"),
        ("every 90s", "every 90 seconds"),
    ],
)
def test_in_plain_words(expression, words):
    assert explain(Timing.from_expression(expression)) == words


@pytest.mark.parametrize(
    ("expression", "tz", "expected"),
    [
        ("* 3 * * *", "UTC", "every minute of the hour"),
        ("* * * * * *", "UTC", "every second"),
        ("*/7 * * * *", "UTC", "from minute 56 to 0 it is only 4"),
        ("0 */5 * * *", "UTC", "from hour 20 to 0 it is only 4"),
        ("*/90 * * * *", "UTC", "minute 0 alone"),
        ("0 0 1 * fri", "UTC", "either of them"),
        ("0 0 */2 * fri", "UTC", "both must hold"),
        ("0 0 31 * *", "UTC", "February, April, June, September and November"),
        ("0 0 29 2 *", "UTC", "leap years"),
        ("30 2 * * *", "Europe/Berlin", "they skip 02:30: it fires right after"),
        ("30 2 * * *", "Europe/Berlin", "they show 02:30 twice: it fires once"),
        ("*/20 2 * * *", "Europe/Berlin", "skip 02:00, 02:20 and 02:40: with a wildcard it does not fire"),
        ("0 */2 * * *", "Europe/Berlin", "show 02:00 twice: with a wildcard it fires both times"),
        ("every 7h", "UTC", "counted from 1970"),
    ],
)
def test_a_surprising_expression_has_a_warning(expression, tz, expected):
    assert any(expected in finding for finding in lint(Timing.from_expression(expression, tz=tz), NOW))


@pytest.mark.parametrize("expression", ["*/5 * * * *", "@daily", "0 9 * * 1-5", "0 9 L * *", "0 9 28 * *", "every 6h"])
def test_a_plain_expression_has_no_warnings(expression):
    assert lint(Timing.from_expression(expression), NOW) == []


@pytest.mark.parametrize("tz", ["UTC", "Asia/Kolkata"])
def test_a_zone_that_never_changes_has_no_gaps(tz):
    assert lint(Timing.from_expression("30 2 * * *", tz=tz), NOW) == []


def test_upcoming_plans_keep_to_start_and_end():
    timing = Timing.from_expression("@daily", start=NOW + timedelta(days=3), end=NOW + timedelta(days=4))
    assert upcoming(timing, NOW, 5) == [NOW + timedelta(days=3), NOW + timedelta(days=4)]


def test_there_is_an_end_of_time():
    assert len(upcoming(Timing.from_expression("@yearly"), NOW, 10_000)) < 7000


def test_no_more_plans_come_than_there_are_runs_left():
    """V3"""
    timing = Timing(cron="@daily", runs=3)
    assert [len(upcoming(timing, NOW, 5, fired=fired)) for fired in (0, 2, 3, 4)] == [3, 1, 0, 0]
