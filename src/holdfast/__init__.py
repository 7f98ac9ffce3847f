"""Holdfast: a durable job system for long-running work."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from holdfast._version import __version__ as __version__

if TYPE_CHECKING:
    from holdfast.app import Holdfast
    from holdfast.domain.context import Context
    from holdfast.domain.job import State
    from holdfast.domain.needs import After
    from holdfast.domain.plan import Plan
    from holdfast.domain.raised import Cancelled, Fail, Fatal, Release, Retry, Skip, Snooze
    from holdfast.domain.selector import Selector
    from holdfast.errors import HoldfastError
    from holdfast.run.batch.unit import Unit

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
    "After": "domain.needs",
    "Cancelled": "domain.raised",
    "Context": "domain.context",
    "Fail": "domain.raised",
    "Fatal": "domain.raised",
    "Holdfast": "app",
    "HoldfastError": "errors",
    "Plan": "domain.plan",
    "Release": "domain.raised",
    "Retry": "domain.raised",
    "Selector": "domain.selector",
    "Skip": "domain.raised",
    "Snooze": "domain.raised",
    "State": "domain.job",
    "Unit": "run.batch.unit",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'holdfast' has no attribute {name!r}")
    value = getattr(import_module(f"holdfast.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
