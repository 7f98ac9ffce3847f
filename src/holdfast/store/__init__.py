"""The store: where jobs live. One implementation over two backends.

Each noun is a class whose docstrings are promises; the conformance suite in tests/store
has a test for each of them and runs on SQLite and PostgreSQL.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from holdfast.store.access.records import AuditLog, Credentials, IdempotencyKeys, SavedFilters, Traces
    from holdfast.store.batches.batches import Batches
    from holdfast.store.batches.inbox import InboxStore
    from holdfast.store.batches.queries import LedgerQueries
    from holdfast.store.engine.backend import Backend
    from holdfast.store.engine.database import Database
    from holdfast.store.fleet.autoscaler import AutoscalerStore
    from holdfast.store.fleet.dashboard import DashboardQueries
    from holdfast.store.fleet.queues import Kinds, Queues, Workers
    from holdfast.store.jobs.control import JobControl
    from holdfast.store.jobs.enqueue import Jobs
    from holdfast.store.jobs.leases import Leases
    from holdfast.store.jobs.queries import JobQueries
    from holdfast.store.jobs.retention import Pruner
    from holdfast.store.jobs.steps import Steps
    from holdfast.store.schedules.plans import Plans
    from holdfast.store.schedules.schedules import ScheduleStore


class Store:
    """All nouns of one database. Each loads when it is first used: a program that lists jobs answers sooner."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend

    def dry_run_store(self) -> Store:
        """The same store for dry runs: each transaction answers and refuses as it would, and is taken back."""
        from holdfast.store.engine.dry_run import DryRunBackend

        return Store(cast("Backend", DryRunBackend(self.backend)))

    @cached_property
    def jobs(self) -> Jobs:
        from holdfast.store.jobs.enqueue import Jobs

        return Jobs(self.backend)

    @cached_property
    def leases(self) -> Leases:
        from holdfast.store.jobs.leases import Leases

        return Leases(self.backend)

    @cached_property
    def steps(self) -> Steps:
        from holdfast.store.jobs.steps import Steps

        return Steps(self.backend)

    @cached_property
    def control(self) -> JobControl:
        from holdfast.store.jobs.control import JobControl

        return JobControl(self.backend)

    @cached_property
    def queues(self) -> Queues:
        from holdfast.store.fleet.queues import Queues

        return Queues(self.backend)

    @cached_property
    def kinds(self) -> Kinds:
        from holdfast.store.fleet.queues import Kinds

        return Kinds(self.backend)

    @cached_property
    def workers(self) -> Workers:
        from holdfast.store.fleet.queues import Workers

        return Workers(self.backend)

    @cached_property
    def views(self) -> JobQueries:
        from holdfast.store.jobs.queries import JobQueries

        return JobQueries(self.backend)

    @cached_property
    def pruner(self) -> Pruner:
        from holdfast.store.jobs.retention import Pruner

        return Pruner(self.backend)

    @cached_property
    def autoscaler(self) -> AutoscalerStore:
        """What autoscalers read and write."""
        from holdfast.store.fleet.autoscaler import AutoscalerStore

        return AutoscalerStore(self.backend)

    @cached_property
    def inbox(self) -> InboxStore:
        """Results of units that wait for their consumer."""
        from holdfast.store.batches.inbox import InboxStore

        return InboxStore(self.backend)

    @cached_property
    def batches(self) -> Batches:
        from holdfast.store.batches.batches import Batches

        return Batches(self.backend)

    @cached_property
    def ledger(self) -> LedgerQueries:
        """A look into the ledgers of batches."""
        from holdfast.store.batches.queries import LedgerQueries

        return LedgerQueries(self.backend)

    @cached_property
    def schedules(self) -> ScheduleStore:
        from holdfast.store.schedules.schedules import ScheduleStore

        return ScheduleStore(self.backend)

    @cached_property
    def plans(self) -> Plans:
        """The ledger of what schedules have fired and skipped."""
        from holdfast.store.schedules.plans import Plans

        return Plans(self.backend)

    @cached_property
    def dashboard(self) -> DashboardQueries:
        """What the dashboard shows in one look."""
        from holdfast.store.fleet.dashboard import DashboardQueries

        return DashboardQueries(self.backend)

    @cached_property
    def audit_log(self) -> AuditLog:
        """What people did."""
        from holdfast.store.access.records import AuditLog

        return AuditLog(self.backend)

    @cached_property
    def credentials(self) -> Credentials:
        from holdfast.store.access.records import Credentials

        return Credentials(self.backend)

    @cached_property
    def saved_filters(self) -> SavedFilters:
        from holdfast.store.access.records import SavedFilters

        return SavedFilters(self.backend)

    @cached_property
    def idempotency_keys(self) -> IdempotencyKeys:
        from holdfast.store.access.records import IdempotencyKeys

        return IdempotencyKeys(self.backend)

    @cached_property
    def traces(self) -> Traces:
        from holdfast.store.access.records import Traces

        return Traces(self.backend)

    @cached_property
    def database(self) -> Database:
        from holdfast.store.engine.database import Database

        return Database(self.backend)

    def close(self) -> None:
        """Close all connections; idempotent."""
        self.backend.close()
