"""Values of any class in the calls of a handler: threads, coroutines and children treat them alike."""

from __future__ import annotations

import re

import pytest

import holdfast
from holdfast import Selector, State
from holdfast.domain.jobs.enqueue_options import EnqueueOptions
from tests.support.programs.value_jobs import CALLS, OPTIONS, VALUES, register
from tests.support.workers import drain

#: The values that each call accepts; other values are refused with an error of the handler.
TEXTS = {"str", "str subclass", "StrEnum", "str and Enum"}
NUMBERS = {"int", "int subclass", "IntEnum"}
JSON = {"str", "StrEnum", "str and Enum", "int", "IntEnum", "bool", "float"}
JSON |= {"dict subclass", "list subclass", "namedtuple"}
DELAYS = NUMBERS | {"bool", "float", "float subclass", "timedelta subclass", "large"}
ACCEPTED = {
    "step name": TEXTS,
    "step value": JSON,
    "progress done": NUMBERS | {"large"},
    "progress total": NUMBERS | {"large"},
    "progress message": TEXTS | {"half of a character"},
    "checkpoint": JSON,
    "sleep": set(),
    "kind": set(),
    "payload": {"int", "IntEnum"},
    "option after": TEXTS,
    "tag": TEXTS,
    "queue": TEXTS,
    "label": TEXTS,
    "tags": TEXTS | {"dict subclass"},
    "key": TEXTS,
    "priority": NUMBERS | {"bool"},
    "max_attempts": NUMBERS | {"bool"},
    "after": NUMBERS | {"bool", "list subclass", "namedtuple"},
    "delay": DELAYS - {"large"},
    "run_at": {"datetime subclass"},
    "timeout": DELAYS - {"large"},
    "retry": {"list subclass", "namedtuple"},
    "hold": set(VALUES),
    "actor": TEXTS,
    "on_conflict": set(),
}


@pytest.fixture
def app(real_database):
    with holdfast.Holdfast(real_database.url) as app:
        register(app)
        yield app


def test_the_table_has_every_option_of_an_enqueue():
    assert {*EnqueueOptions.__struct_fields__} <= {*OPTIONS, "key_for"}
    assert ACCEPTED.keys() == CALLS.keys()


def test_every_executor_treats_a_value_in_the_same_way(app):
    """K91: a subclass of str or int once hung the handler of a child until its timeout."""
    dependency = app.enqueue("sink", {"x": 1}, hold=True)
    assert dependency.id == 1
    for label in ("v", "w", "x", "y"):
        app.enqueue("sink", {"x": 1}, label=label, hold=True)
    refs = {
        (call, executor): app.enqueue(f"in_{executor}", {"call": call})
        for call in CALLS
        for executor in ("thread", "coroutine", "process")
    }
    drain(app, slots=3, queues=["default"])
    for call in CALLS:
        thread, *others = (refs[call, executor].result() for executor in ("thread", "coroutine", "process"))
        expected = [_plain(line) for line in thread]
        assert [[_plain(line) for line in answers] for answers in others] == [expected] * 2, f"K91 is broken: {call}"
        accepted = {name for name, line in zip(VALUES, thread, strict=True) if line.startswith("ok")}
        assert accepted == ACCEPTED[call], call


def _plain(line: str) -> str:
    """An answer without what differs from run to run."""
    return re.sub(r"0x[0-9a-f]+|job \d+|step \d+", "…", line)


def test_every_executor_stores_the_same_result(app):
    refs = {
        (value, executor): app.enqueue(f"result_of_{executor}", {"value": value})
        for value in VALUES
        for executor in ("thread", "coroutine", "process")
    }
    drain(app, slots=3)
    for value in VALUES:
        jobs = [refs[value, executor].job() for executor in ("thread", "coroutine", "process")]
        assert {job.state for job in jobs} == {State.DONE}
        assert len({(job.result, re.sub(r"0x\w+", "…", job.note or "")) for job in jobs}) == 1, value


def test_values_of_subclasses_are_stored_as_plain_ones(app):
    """A child's call leaves the same row as a call with plain values."""
    app.enqueue("in_process", {"call": "key"})
    app.enqueue("in_process", {"call": "queue"})
    app.enqueue("in_process", {"call": "label"})
    drain(app, slots=1, queues=["default"])
    jobs = list(app.views.all(Selector(kinds=("sink",))))
    texts = {"v", "w", "x", "y"}
    assert {job.queue for job in jobs} == {"elsewhere", *texts}
    assert {job.label for job in jobs} == {None, *texts}
    assert {job.key for job in jobs} == {None, *texts}
