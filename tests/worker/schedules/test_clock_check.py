"""The check of the store's clock."""

from __future__ import annotations

import logging
from datetime import timedelta

from holdfast.worker.schedules.clock_check import ClockCheck
from tests.support.backends import START


def test_a_clock_that_jumps_ahead_briefly_fires_nothing(caplog):
    """The clock is trusted after it has kept its new time for a minute."""
    check, later = ClockCheck(), START + timedelta(days=400)
    assert check.trusts(START, 0.0)
    with caplog.at_level(logging.WARNING, logger="holdfast"):
        assert not check.trusts(later, 10.0)
        assert not check.trusts(later + timedelta(seconds=30), 40.0)
    assert len(caplog.records) == 1
    assert check.trusts(START + timedelta(seconds=50), 50.0)
    assert not check.trusts(later, 60.0)
    assert check.trusts(later + timedelta(seconds=61), 121.0)
    assert check.trusts(START, 122.0)
