"""Flags, and what finalizers may call: they run in any thread, and at the exit, where the other threads have stopped."""

from __future__ import annotations

import gc
import sys
import threading
import time
import weakref

import pytest

from holdfast.domain.jobs.new_job import NewJob
from holdfast.store import open_store
from holdfast.store.engine.flags import Flag

#: The longest wait of a test for another thread.
PATIENCE_S = 60.0


@pytest.mark.parametrize("sets", [1, 2])
def test_a_flag_that_is_set_stays_so(sets):
    flag = Flag()
    for _ in range(sets):
        flag.set()
    assert [flag.wait(PATIENCE_S), flag.wait(), flag.is_set()] == [True, True, True]


@pytest.mark.parametrize("sets", [0, 1, 2])
def test_a_flag_that_is_cleared_is_waited_for(sets):
    flag = Flag()
    for _ in range(sets):
        flag.set()
    flag.clear()
    began = time.monotonic()
    assert not flag.is_set()
    assert not flag.wait(0.02)
    assert time.monotonic() - began >= 0.02


def test_a_flag_wakes_its_thread():
    flag, woken = Flag(), threading.Event()

    def wait():
        while not flag.wait():
            pass
        woken.set()

    threading.Thread(target=wait, daemon=True).start()
    flag.set()
    assert woken.wait(PATIENCE_S)


def locks_that_are_taken(action):
    """The functions of ``threading`` and the locks that *action* uses in this thread."""
    used = []

    def note(frame, event, argument):
        if event == "call" and frame.f_globals.get("__name__") == "threading":
            used.append(frame.f_code.co_qualname)
        elif event == "c_call" and getattr(argument, "__name__", "") in ("acquire", "__enter__"):
            used.append(f"{frame.f_code.co_qualname} calls {argument.__qualname__}")

    sys.setprofile(note)
    try:
        action()
    finally:
        sys.setprofile(None)
    return used


def test_the_note_of_locks_sees_an_event():
    assert "Event.set" in locks_that_are_taken(threading.Event().set)


def test_no_finalizer_of_a_store_waits_for_a_lock(real_database):
    """One of the pool did: every fiftieth ``holdfast log`` on PostgreSQL never ended, at the exit of the interpreter."""
    stores = [open_store(real_database.url)]
    stores[0].jobs.enqueue(NewJob(kind="mail"))
    gone = weakref.ref(stores[0].backend)

    def drop():
        stores.clear()
        gc.collect()

    gc.collect()
    assert locks_that_are_taken(drop) == [], "E6 is broken: a finalizer takes a lock"
    assert gone() is None
