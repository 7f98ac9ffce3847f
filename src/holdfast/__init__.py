"""Holdfast: a durable job system for long-running work."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from holdfast._version import __version__ as __version__

if TYPE_CHECKING:
    from holdfast.app import Holdfast
    from holdfast.domain.jobs.context import Context
    from holdfast.domain.jobs.dependencies import After
    from holdfast.domain.jobs.handler_exceptions import Cancelled, Fail, Fatal, Release, Retry, Skip, Snooze
    from holdfast.domain.jobs.job import State
    from holdfast.domain.jobs.selector import Selector
    from holdfast.domain.schedules.plan import Plan
    from holdfast.errors import HoldfastError
    from holdfast.worker.batches.unit import Unit

__all__ = [
    "After",
    "Cancelled",
    "Context",
    "Fail",
    "Fatal",
    "Holdfast",
    "HoldfastError",
    "Plan",
    "Release",
    "Retry",
    "Selector",
    "Skip",
    "Snooze",
    "State",
    "Unit",
]

#: Where each name lives: a program that only asks for help need not load them all.
_HOMES = {
    "After": "domain.jobs.dependencies",
    "Cancelled": "domain.jobs.handler_exceptions",
    "Context": "domain.jobs.context",
    "Fail": "domain.jobs.handler_exceptions",
    "Fatal": "domain.jobs.handler_exceptions",
    "Holdfast": "app",
    "HoldfastError": "errors",
    "Plan": "domain.schedules.plan",
    "Release": "domain.jobs.handler_exceptions",
    "Retry": "domain.jobs.handler_exceptions",
    "Selector": "domain.jobs.selector",
    "Skip": "domain.jobs.handler_exceptions",
    "Snooze": "domain.jobs.handler_exceptions",
    "State": "domain.jobs.job",
    "Unit": "worker.batches.unit",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'holdfast' has no attribute {name!r}")
    value = getattr(import_module(f"holdfast.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
