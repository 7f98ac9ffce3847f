"""Expressions in words, and what about them may surprise."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from holdfast.domain.explain import explain, lint, upcoming
from holdfast.domain.schedule import spec_of

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
        ("every 5m", "every 5 minutes"),
        ("every 1d", "every day"),
        ("every 90s", "every 90 seconds"),
    ],
)
def test_in_plain_words(expression, words):
    assert explain(spec_of(expression)) == words


@pytest.mark.parametrize(
    ("expression", "tz", "said"),
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
        ("30 2 * * *", "Europe/Berlin", "02:30 does not exist"),
        ("30 2 * * *", "Europe/Berlin", "02:30 comes twice"),
        ("every 7h", "UTC", "counted from 1970"),
    ],
)
def test_what_may_surprise_is_told(expression, tz, said):
    assert any(said in finding for finding in lint(spec_of(expression, tz=tz), NOW))


@pytest.mark.parametrize("expression", ["*/5 * * * *", "@daily", "0 9 * * 1-5", "0 9 L * *", "0 9 28 * *", "every 6h"])
def test_what_is_plain_is_not_complained_of(expression):
    assert lint(spec_of(expression), NOW) == []


@pytest.mark.parametrize("tz", ["UTC", "Asia/Kolkata"])
def test_a_zone_that_never_changes_has_no_gaps(tz):
    assert lint(spec_of("30 2 * * *", tz=tz), NOW) == []


def test_what_comes_next_keeps_to_start_and_end():
    spec = spec_of("@daily", start=NOW + timedelta(days=3), end=NOW + timedelta(days=4))
    assert upcoming(spec, NOW, 5) == [NOW + timedelta(days=3), NOW + timedelta(days=4)]
