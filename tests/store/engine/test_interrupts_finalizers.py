"""Finalizers that call the store: a garbage collection runs them in any thread, in the middle of another call too."""

from __future__ import annotations

import sys
import threading

from holdfast.domain.jobs.new_job import NewJob
from holdfast.errors import StoreInUse

JOB = NewJob(kind="mail")
#: The longest wait of a test for another thread.
PATIENCE_S = 60.0


def run_at_line(number, call, nested):
    """Run *call*, and *nested* at that of its lines in the store; returns whether it has so many."""
    seen = 0

    def trace(frame, event, _):
        nonlocal seen
        if "/holdfast/store/" not in frame.f_code.co_filename:
            return None
        if event == "line":
            seen += 1
            if seen == number:
                sys.settrace(None)
                nested()
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
    return seen >= number


def in_thread(work):
    """The result of *work* in another thread; None if it fails or hangs."""
    results, ended = [], threading.Event()

    def run():
        try:
            results.append(work())
        finally:
            ended.set()

    threading.Thread(target=run, daemon=True).start()
    ended.wait(PATIENCE_S)
    return results[0] if results else None


def test_a_finalizer_at_any_line_of_a_call_may_enqueue(real_database):
    """It writes, or is refused. On SQLite it waited for ever for the call in which it ran, with the file locked."""
    store, enqueued, refused = real_database.open(), [], []
    store.jobs.enqueue(JOB)

    def enqueue():
        enqueued.append(store.jobs.enqueue(JOB).id)

    def finalize():
        try:
            enqueue()
        except StoreInUse as error:
            refused.append(error)

    def work():
        number = 1
        while run_at_line(number, enqueue, finalize):
            number += 1
        return True

    assert in_thread(work), "I18 is broken: a finalizer disturbs the call in which it runs, or waits for it"
    assert len(set(enqueued)) == len(enqueued) > 50
    assert bool(refused) == (store.backend.name == "sqlite")
    enqueue()


def test_a_finalizer_may_enqueue_while_its_thread_closes_a_store(real_database):
    answers = []

    def finalize(store):
        try:
            store.jobs.enqueue(JOB)
        except Exception as error:  # noqa: BLE001 - the store may be closed already
            answers.append(error)

    def work():
        number, more = 1, True
        while more:
            store = real_database.open()
            store.jobs.enqueue(JOB)
            more = run_at_line(number, store.close, lambda store=store: finalize(store))
            number += 5
        return True

    assert in_thread(work), "I18 is broken: a finalizer disturbs the call in which it runs, or waits for it"
    assert answers
