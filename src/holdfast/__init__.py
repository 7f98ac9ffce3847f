"""Holdfast: a durable job system for long-running work."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from holdfast import errors
from holdfast.errors import *  # noqa: F403 - every error of a public call is a public name

__version__ = "0.1.0"

if TYPE_CHECKING:
    from holdfast.app import Holdfast
    from holdfast.client.batches.function import BoundFunction, UnitFunction
    from holdfast.client.batches.inbox import Inbox, InboxResult
    from holdfast.client.batches.registry import BatchRegistry
    from holdfast.client.batches.report import BatchResult
    from holdfast.client.batches.session import BatchSession
    from holdfast.client.jobs.handler import Enqueuer, Handler
    from holdfast.client.jobs.job_ref import JobRef
    from holdfast.client.schedules.api import Backfilled, Schedules
    from holdfast.client.schedules.definition import ScheduleOptions
    from holdfast.domain.batches.batch import Batch, BatchState, Summary
    from holdfast.domain.batches.unit import UnitOutcome
    from holdfast.domain.fleet.queue import Bounds, Queue
    from holdfast.domain.jobs.context import Cancelled, Context, Fail, Fatal, Release, Retry, Skip, Snooze
    from holdfast.domain.jobs.dependencies import After, DependencyState
    from holdfast.domain.jobs.history import Attempt, Event
    from holdfast.domain.jobs.job import Job, JobId, State
    from holdfast.domain.jobs.kind import Kind
    from holdfast.domain.jobs.new_job import EnqueueOutcome, NewJob
    from holdfast.domain.jobs.selector import Count, Selector
    from holdfast.domain.jobs.why import WhyReason
    from holdfast.domain.schedules.definition import Condition, DeclarationResult, Definition, Schedule
    from holdfast.domain.schedules.plan import Overlap, Plan
    from holdfast.options import BatchArguments
    from holdfast.store import Store
    from holdfast.store.fleet.registry import Depth, Queues
    from holdfast.store.jobs.control import ChangedJobs, JobControl
    from holdfast.store.jobs.queries import JobPage, JobQueries
    from holdfast.store.jobs.settlement import Settlement
    from holdfast.store.schedules.fired_plans import FiredPlan
    from holdfast.store.schedules.plans import SkippedPlans
    from holdfast.testing import Clock, FakeContext
    from holdfast.worker.batches.unit import Unit, UnitResult
    from holdfast.worker.commands.run import Completed
    from holdfast.worker.worker import Worker

__all__ = [
    "After", "Attempt", "Backfilled", "Batch", "BatchArguments", "BatchRegistry", "BatchResult", "BatchSession",
    "BatchState", "BoundFunction", "Bounds", "Cancelled", "ChangedJobs", "Clock", "Completed", "Condition",
    "Context", "Count", "DeclarationResult", "Definition", "DependencyState", "Depth", "EnqueueOutcome",
    "Enqueuer", "Event", "Fail", "FakeContext", "Fatal", "FiredPlan", "Handler", "Holdfast",
    "Inbox", "InboxResult", "Job", "JobControl", "JobId", "JobPage", "JobQueries", "JobRef", "Kind", "NewJob",
    "Overlap", "Plan", "Queue", "Queues", "Release", "Retry", "Schedule", "ScheduleOptions", "Schedules", "Selector",
    "Settlement", "Skip", "SkippedPlans", "Snooze", "State", "Store", "Summary", "Unit", "UnitFunction",
    "UnitOutcome", "UnitResult", "WhyReason", "Worker",
]  # fmt: skip
__all__ += errors.__all__

#: The names of each module; a name is imported when it is first used, so that `import holdfast` is quick.
_NAMES = {
    "app": "Holdfast",
    "client.batches.function": "BoundFunction UnitFunction",
    "client.batches.inbox": "Inbox InboxResult",
    "client.batches.registry": "BatchRegistry",
    "client.batches.report": "BatchResult",
    "client.batches.session": "BatchSession",
    "client.jobs.handler": "Enqueuer Handler",
    "client.jobs.job_ref": "JobRef",
    "client.schedules.api": "Backfilled Schedules",
    "client.schedules.definition": "ScheduleOptions",
    "domain.batches.batch": "Batch BatchState Summary",
    "domain.batches.unit": "UnitOutcome",
    "domain.fleet.queue": "Bounds Queue",
    "domain.jobs.context": "Cancelled Context Fail Fatal Release Retry Skip Snooze",
    "domain.jobs.dependencies": "After DependencyState",
    "domain.jobs.history": "Attempt Event",
    "domain.jobs.job": "Job JobId State",
    "domain.jobs.kind": "Kind",
    "domain.jobs.new_job": "EnqueueOutcome NewJob",
    "domain.jobs.selector": "Count Selector",
    "domain.jobs.why": "WhyReason",
    "domain.schedules.definition": "Condition DeclarationResult Definition Schedule",
    "domain.schedules.plan": "Overlap Plan",
    "options": "BatchArguments",
    "store": "Store",
    "store.fleet.registry": "Depth Queues",
    "store.jobs.control": "ChangedJobs JobControl",
    "store.jobs.queries": "JobPage JobQueries",
    "store.jobs.settlement": "Settlement",
    "store.schedules.fired_plans": "FiredPlan",
    "store.schedules.plans": "SkippedPlans",
    "testing": "Clock FakeContext",
    "worker.batches.unit": "Unit UnitResult",
    "worker.commands.run": "Completed",
    "worker.worker": "Worker",
}
_HOMES = {name: f"holdfast.{module}" for module, names in _NAMES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'holdfast' has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
