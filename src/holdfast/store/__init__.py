"""The store: the database of jobs, batches and schedules. One implementation over two backends.

Each noun is a class whose docstrings are promises; the conformance suite in tests/store
has a test for each of them and runs on SQLite and PostgreSQL.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from holdfast.store.access.audit import AuditLog
    from holdfast.store.access.credentials import Credentials
    from holdfast.store.access.idempotency import IdempotencyKeys
    from holdfast.store.access.saved_filters import SavedFilters
    from holdfast.store.batches.batches import Batches
    from holdfast.store.batches.inbox import InboxStore
    from holdfast.store.batches.queries import LedgerQueries
    from holdfast.store.engine.backend import Backend
    from holdfast.store.engine.database import Database
    from holdfast.store.fleet.autoscaler import AutoscalerStore
    from holdfast.store.fleet.dashboard import DashboardQueries
    from holdfast.store.fleet.kinds import Kinds
    from holdfast.store.fleet.queues import Queues
    from holdfast.store.fleet.workers import Workers
    from holdfast.store.jobs.control import JobControl
    from holdfast.store.jobs.enqueue import Jobs
    from holdfast.store.jobs.leases import Leases
    from holdfast.store.jobs.queries import JobQueries, Traces
    from holdfast.store.jobs.retention import Pruner
    from holdfast.store.jobs.steps import Steps
    from holdfast.store.schedules.plans import Plans
    from holdfast.store.schedules.schedules import ScheduleStore


class _LazyNoun:
    """Imports and creates a noun at its first use, so that a short command imports few modules."""

    def __init__(self, place: str) -> None:
        self._module, self._class = place.split(":")

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, store: Store | None, owner: type) -> Any:
        if store is None:
            return self
        noun = getattr(import_module(f"holdfast.store.{self._module}"), self._class)(store.backend)
        store.__dict__[self._name] = noun  # takes precedence over this non-data descriptor
        return noun


def noun(place: str) -> Any:
    return _LazyNoun(place)


class Store:
    """All nouns of one database."""

    jobs: Jobs = noun("jobs.enqueue:Jobs")
    leases: Leases = noun("jobs.leases:Leases")
    steps: Steps = noun("jobs.steps:Steps")
    control: JobControl = noun("jobs.control:JobControl")
    views: JobQueries = noun("jobs.queries:JobQueries")
    pruner: Pruner = noun("jobs.retention:Pruner")
    traces: Traces = noun("jobs.queries:Traces")
    queues: Queues = noun("fleet.queues:Queues")
    kinds: Kinds = noun("fleet.kinds:Kinds")
    workers: Workers = noun("fleet.workers:Workers")
    autoscaler: AutoscalerStore = noun("fleet.autoscaler:AutoscalerStore")
    dashboard: DashboardQueries = noun("fleet.dashboard:DashboardQueries")
    batches: Batches = noun("batches.batches:Batches")
    ledger: LedgerQueries = noun("batches.queries:LedgerQueries")
    inbox: InboxStore = noun("batches.inbox:InboxStore")
    schedules: ScheduleStore = noun("schedules.schedules:ScheduleStore")
    plans: Plans = noun("schedules.plans:Plans")
    audit_log: AuditLog = noun("access.audit:AuditLog")
    credentials: Credentials = noun("access.credentials:Credentials")
    saved_filters: SavedFilters = noun("access.saved_filters:SavedFilters")
    idempotency_keys: IdempotencyKeys = noun("access.idempotency:IdempotencyKeys")
    database: Database = noun("engine.database:Database")

    def __init__(self, backend: Backend) -> None:
        self.backend = backend

    def dry_run_store(self) -> Store:
        """The same store for dry runs: transactions answer and refuse as usual, and are rolled back."""
        from holdfast.store.engine.dry_run import DryRunBackend

        return Store(cast("Backend", DryRunBackend(self.backend)))

    def close(self) -> None:
        """Close all connections; idempotent."""
        self.backend.close()
