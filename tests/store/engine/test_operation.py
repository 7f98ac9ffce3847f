"""Methods that are operations: how they run, and how other operations use them."""

from __future__ import annotations

import inspect

import pytest

from holdfast.store.engine.changes import QUEUES, SCHEDULES
from holdfast.store.engine.operation import Noun, Operation, delegate, query, read, run_operation, transaction


class RecordingBackend:
    """Answers every statement with one row, and records the calls."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def write(self, operation, /, *args, **kwargs):
        self.calls.append("write")
        return run_operation(operation(*args, **kwargs), lambda statement: [(statement.name,)])

    def read(self, operation, /, *args, **kwargs):
        self.calls.append("read")
        return run_operation(operation(*args, **kwargs), lambda statement: [(statement.name,)])

    def notify(self, changes: frozenset[str]) -> None:
        self.calls.append(f"notify {' '.join(sorted(changes))}")


def launch(size: int, *, label: str = "none") -> Operation[str]:
    """Launch."""
    rows = yield query("launch", size=size)
    return f"{rows[0][0]} {size} {label}"


class Things(Noun):
    @transaction(wakes=QUEUES)
    def change(self, count: int, *, note: str | None = None) -> Operation[int]:
        """Change things."""
        yield query("change", count=count, note=note)
        return count

    @read
    def get(self, name: str) -> Operation[str]:
        rows = yield query(name)
        return str(rows[0][0])

    @transaction()
    def change_twice(self, count: int) -> Operation[int]:
        first = yield from Things.change.operation(self, count)
        return first + (yield from Things.change.operation(self, count, note="again"))

    launch = delegate(launch, wakes=SCHEDULES)


@pytest.fixture
def backend():
    return RecordingBackend()


@pytest.fixture
def things(backend):
    return Things(backend)


def test_a_call_runs_in_one_transaction_and_then_wakes_workers(things, backend):
    assert things.change(3) == 3
    assert backend.calls == ["write", "notify queues"]


def test_a_call_that_changes_nothing_wakes_nobody(things, backend):
    assert things.change(0, note="none") == 0
    assert backend.calls == ["write"]


def test_a_read_writes_nothing(things, backend):
    assert things.get("name") == "name"
    assert backend.calls == ["read"]


def test_an_operation_is_a_part_of_another(things, backend):
    """In its transaction, and without a wake-up of its own."""
    assert things.change_twice(2) == 4
    assert backend.calls == ["write"]


def test_an_operation_of_another_module_is_a_method(things, backend):
    assert things.launch(5, label="x") == "launch 5 x"
    assert backend.calls == ["write", "notify schedules"]


def test_a_method_keeps_its_promise_and_its_parameters(things):
    """For help() and for editors."""
    assert things.change.__doc__ == "Change things."
    assert list(inspect.signature(things.change).parameters) == ["count", "note"]
    assert things.launch.__doc__ == "Launch."


def test_a_wrong_call_is_refused(things):
    with pytest.raises(TypeError):
        things.change()
