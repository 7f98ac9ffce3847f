"""Plans: their keys and their jitter."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec

from holdfast.domain.schedules.plan import Plan, jittered

HOUR = timedelta(hours=1)
T0 = datetime(2030, 1, 1, tzinfo=UTC)


def test_jitter_is_the_same_everywhere():
    first = jittered(Plan("mail", T0), HOUR)
    assert first == jittered(Plan("mail", T0, "global"), HOUR) != jittered(Plan("mail", T0, "other"), HOUR)
    assert timedelta(0) <= first < HOUR
    assert jittered(Plan("mail", T0), timedelta(0)) == timedelta(0)


def test_a_plan_has_one_key_wherever_it_is_read():
    plan = Plan("mail", T0, "a")
    assert msgspec.json.decode(msgspec.json.encode(plan), type=Plan).key == plan.key
    others = [Plan("post", T0, "a"), Plan("mail", T0 + HOUR, "a"), Plan("mail", T0, "b")]
    assert len({plan.key, *(other.key for other in others)}) == 4
