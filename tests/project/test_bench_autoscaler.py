"""The simulation of a host, with the rules that workers run by."""

from __future__ import annotations

from bench import autoscaler


def test_the_forecast_kills_fewer_than_the_rule_it_replaces(monkeypatch):
    """In six simulated hours of one mix; and the oracle, which knows everything, is beaten by nobody."""
    monkeypatch.setattr(autoscaler, "DAY", 6 * 3600)
    found = autoscaler.compare([1])
    ours, before, oracle = found["forecast (ours)"], found["±1 rule"], found["oracle"]
    assert ours.killed < before.killed
    assert ours.killed == 0
    assert 0 < ours.done <= oracle.done
    assert autoscaler.compare([1]) == found
