"""A service thread survives failed ticks and never overlaps them."""

from __future__ import annotations

import threading

from holdfast.errors import StoreUnavailable
from holdfast.worker.service import ServiceThread, TickResult


def test_a_failed_tick_is_counted_and_survived():
    """The next tick follows after a pause that grows with each failure."""
    ticks = []

    class Flaky:
        name = "flaky"
        wake = threading.Event()
        failing = True

        def tick(self):
            if self.failing:
                raise ValueError
            assert thread.tick().skipped
            return TickResult(7.0)

    thread = ServiceThread(service := Flaky(), on_tick=lambda name, result: ticks.append((name, result)))
    assert [thread.tick().next_in for _ in range(3)] == [0.1, 0.2, 0.5]
    service.failing = False
    assert thread.tick().next_in == 7.0
    assert ticks == [("flaky", "error")] * 3 + [("flaky", "skipped"), ("flaky", "processed")]


def test_an_outage_is_logged_once_per_service_and_interval(caplog, monkeypatch):
    now = 0.0
    monkeypatch.setattr("holdfast.worker.service.clock.now", lambda: now)

    class Cut:
        name = "cut"
        wake = threading.Event()
        failing = True

        def tick(self):
            if self.failing:
                raise StoreUnavailable("the database does not answer")
            return TickResult(7.0)

    thread = ServiceThread(service := Cut(), on_tick=lambda name, result: None)
    for now in range(61):  # noqa: B007 - the clock above reads it
        thread.tick()
    assert caplog.text.count("a tick of cut failed") == 3  # at 0, 30 and 60 s
    service.failing = False
    thread.tick()
    service.failing = True
    thread.tick()
    assert caplog.text.count("a tick of cut failed") == 4, "a new outage is logged at once"


def test_a_stop_ends_a_tick_that_clears_its_wake_up():
    """The settler waits for its own wake-ups while it collects; one of them may be that of the stop."""
    begun = threading.Event()

    class Collects:
        name = "collects"
        wake = threading.Event()

        def tick(self):
            begun.set()
            self.wake.wait(60)
            self.wake.clear()
            return TickResult(60.0)

    thread = ServiceThread(Collects(), on_tick=lambda name, result: None)
    thread.start()
    assert begun.wait(60)
    thread.stop(20)
    assert not thread._thread.is_alive()
