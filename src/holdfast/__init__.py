"""Holdfast: a durable job system for long-running work."""

from holdfast._version import __version__
from holdfast.app import Holdfast
from holdfast.domain.context import Context
from holdfast.domain.job import Job, State
from holdfast.domain.needs import After
from holdfast.domain.raised import Cancelled, Fail, Release, Retry, Snooze
from holdfast.domain.selector import Selector
from holdfast.errors import HoldfastError, LeaseLost
from holdfast.ref import JobRef

__all__ = [
    "After",
    "Cancelled",
    "Context",
    "Fail",
    "Holdfast",
    "HoldfastError",
    "Job",
    "JobRef",
    "LeaseLost",
    "Release",
    "Retry",
    "Selector",
    "Snooze",
    "State",
    "__version__",
]
