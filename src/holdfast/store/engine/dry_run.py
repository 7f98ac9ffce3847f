"""Dry runs: a backend that rolls every transaction back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from holdfast.store.engine.changes import Changes
from holdfast.store.engine.operation import Operation, OperationFunction, P, T
from holdfast.store.engine.wrapper import BackendWrapper


class DryRunBackend(BackendWrapper):
    """Runs statements on a real backend and rolls each transaction back; answers and errors are the real ones.

    - A method of several transactions, or of a read, does not see its own earlier writes. No worker is woken.
    - A dry run costs as much as the real run, locks included. The ids that it draws are of no job.
    """

    def write(self, operation: OperationFunction[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run an operation and roll it back."""
        try:
            self._backend.write(_rolled_back, lambda: operation(*args, **kwargs))
        except _RolledBack as rollback:
            return cast("T", rollback.answer)
        raise AssertionError("a dry run was kept")

    def notify(self, changes: Changes) -> None:
        """Do nothing: nothing has changed."""


class _RolledBack(Exception):
    """Rolls a transaction back and carries its answer."""

    def __init__(self, answer: Any) -> None:
        super().__init__("this was a dry run")
        self.answer = answer


def _rolled_back(operation: Callable[[], Operation[Any]]) -> Operation[None]:
    raise _RolledBack((yield from operation()))
