"""Holdfast: a durable job system for long-running work."""

from holdfast._version import __version__
from holdfast.app import Holdfast
from holdfast.domain.job import Job, State
from holdfast.domain.kind import Context
from holdfast.domain.needs import After
from holdfast.domain.selector import Selector
from holdfast.errors import HoldfastError, LeaseLost
from holdfast.ref import JobRef

__all__ = [
    "After",
    "Context",
    "Holdfast",
    "HoldfastError",
    "Job",
    "JobRef",
    "LeaseLost",
    "Selector",
    "State",
    "__version__",
]
