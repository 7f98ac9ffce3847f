"""Holdfast: a durable job system for long-running work."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from holdfast._version import __version__ as __version__

if TYPE_CHECKING:
    from holdfast.app import Holdfast
    from holdfast.client.batches.function import BoundFunction, UnitFunction
    from holdfast.client.batches.inbox import Inbox, InboxResult
    from holdfast.client.batches.registry import BatchRegistry
    from holdfast.client.batches.result import BatchResult
    from holdfast.client.batches.session import BatchSession
    from holdfast.client.jobs.handler import Enqueuer, Handler
    from holdfast.client.jobs.job_ref import JobRef
    from holdfast.client.schedules.api import Backfilled, Schedules
    from holdfast.client.schedules.definition import ScheduleOptions
    from holdfast.domain.batches.batch import Batch, BatchState, Summary
    from holdfast.domain.batches.unit import UnitOutcome
    from holdfast.domain.fleet.autoscaler import Bounds
    from holdfast.domain.fleet.queue import Queue
    from holdfast.domain.jobs.context import Context
    from holdfast.domain.jobs.dependencies import After, DependencyState
    from holdfast.domain.jobs.handler_exceptions import Cancelled, Fail, Fatal, Release, Retry, Skip, Snooze
    from holdfast.domain.jobs.history import Attempt, Event
    from holdfast.domain.jobs.job import Job, JobId, State
    from holdfast.domain.jobs.kind import Kind
    from holdfast.domain.jobs.new_job import NewJob
    from holdfast.domain.jobs.selector import Selector
    from holdfast.domain.jobs.why import WhyReason
    from holdfast.domain.schedules.definition import Condition, DeclarationResult, Definition, Schedule
    from holdfast.domain.schedules.overlap import Overlap
    from holdfast.domain.schedules.plan import Plan
    from holdfast.errors import HoldfastError
    from holdfast.options import BatchArguments
    from holdfast.store import Store
    from holdfast.store.fleet.registry import Depth, Queues
    from holdfast.store.jobs.control import JobControl
    from holdfast.store.jobs.queries import Count, JobQueries, Page
    from holdfast.store.jobs.settlement import Settlement
    from holdfast.store.schedules.firing import FiredPlan
    from holdfast.store.schedules.plans import SkippedPlans
    from holdfast.testing import Clock, FakeContext
    from holdfast.worker.batches.unit import Unit
    from holdfast.worker.commands.run import Completed
    from holdfast.worker.worker import Worker

__all__ = [
    "After",
    "Attempt",
    "Backfilled",
    "Batch",
    "BatchArguments",
    "BatchRegistry",
    "BatchResult",
    "BatchSession",
    "BatchState",
    "BoundFunction",
    "Bounds",
    "Cancelled",
    "Clock",
    "Completed",
    "Condition",
    "Context",
    "Count",
    "DeclarationResult",
    "Definition",
    "DependencyState",
    "Depth",
    "Enqueuer",
    "Event",
    "Fail",
    "FakeContext",
    "Fatal",
    "FiredPlan",
    "Handler",
    "Holdfast",
    "HoldfastError",
    "Inbox",
    "InboxResult",
    "Job",
    "JobControl",
    "JobId",
    "JobQueries",
    "JobRef",
    "Kind",
    "NewJob",
    "Overlap",
    "Page",
    "Plan",
    "Queue",
    "Queues",
    "Release",
    "Retry",
    "Schedule",
    "ScheduleOptions",
    "Schedules",
    "Selector",
    "Settlement",
    "Skip",
    "SkippedPlans",
    "Snooze",
    "State",
    "Store",
    "Summary",
    "Unit",
    "UnitFunction",
    "UnitOutcome",
    "WhyReason",
    "Worker",
]

#: The names of each module; a name is imported when it is first used, so that `import holdfast` is quick.
_NAMES = {
    "holdfast.domain.schedules.overlap": ("Overlap",),
    "holdfast.app": ("Holdfast",),
    "holdfast.client.batches.function": ("BoundFunction", "UnitFunction"),
    "holdfast.client.batches.inbox": ("Inbox", "InboxResult"),
    "holdfast.client.batches.registry": ("BatchRegistry",),
    "holdfast.client.batches.result": ("BatchResult",),
    "holdfast.client.batches.session": ("BatchSession",),
    "holdfast.client.jobs.handler": ("Enqueuer", "Handler"),
    "holdfast.client.jobs.job_ref": ("JobRef",),
    "holdfast.client.schedules.api": ("Backfilled", "Schedules"),
    "holdfast.client.schedules.definition": ("ScheduleOptions",),
    "holdfast.domain.batches.batch": ("Batch", "BatchState", "Summary", "UnitOutcome"),
    "holdfast.domain.fleet.autoscaler": ("Bounds",),
    "holdfast.domain.fleet.queue": ("Queue",),
    "holdfast.domain.jobs.context": ("Context",),
    "holdfast.domain.jobs.dependencies": ("After", "DependencyState"),
    "holdfast.domain.jobs.handler_exceptions": ("Cancelled", "Fail", "Fatal", "Release", "Retry", "Skip", "Snooze"),
    "holdfast.domain.jobs.history": ("Attempt", "Event"),
    "holdfast.domain.jobs.job": ("Job", "JobId", "State"),
    "holdfast.domain.jobs.kind": ("Kind",),
    "holdfast.domain.jobs.new_job": ("NewJob",),
    "holdfast.domain.jobs.selector": ("Selector",),
    "holdfast.domain.jobs.why": ("WhyReason",),
    "holdfast.domain.schedules.definition": ("Condition", "DeclarationResult", "Definition", "Schedule"),
    "holdfast.domain.schedules.plan": ("Plan",),
    "holdfast.errors": ("HoldfastError",),
    "holdfast.options": ("BatchArguments",),
    "holdfast.store": ("Store",),
    "holdfast.store.fleet.registry": ("Depth", "Queues"),
    "holdfast.store.jobs.control": ("JobControl",),
    "holdfast.store.jobs.queries": ("Count", "JobQueries", "Page"),
    "holdfast.store.jobs.settlement": ("Settlement",),
    "holdfast.store.schedules.firing": ("FiredPlan",),
    "holdfast.store.schedules.plans": ("SkippedPlans",),
    "holdfast.testing": ("Clock", "FakeContext"),
    "holdfast.worker.batches.unit": ("Unit",),
    "holdfast.worker.commands.run": ("Completed",),
    "holdfast.worker.worker": ("Worker",),
}
_HOMES = {name: module for module, names in _NAMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'holdfast' has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
