"""The store: where jobs live. One implementation over two backends.

Each noun is a class whose docstrings are promises; the conformance suite in tests/store
has a test for each of them and runs on SQLite and PostgreSQL.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from holdfast.store.access.records import Acts, Answers, Credentials, Filters, Traces
    from holdfast.store.batches.batches import Batches
    from holdfast.store.batches.inbox import Inbox
    from holdfast.store.batches.queries import Ledger
    from holdfast.store.engine.backend import Backend
    from holdfast.store.engine.database import Upkeep
    from holdfast.store.fleet.autoscaler import ScalingStore
    from holdfast.store.fleet.dashboard import Board
    from holdfast.store.fleet.queues import Kinds, Queues, Workers
    from holdfast.store.jobs.control import Control
    from holdfast.store.jobs.enqueue import Jobs
    from holdfast.store.jobs.leases import Leases
    from holdfast.store.jobs.queries import Views
    from holdfast.store.jobs.retention import Pruner
    from holdfast.store.jobs.steps import Steps
    from holdfast.store.schedules.plans import Plans
    from holdfast.store.schedules.schedules import Schedules


class Store:
    """All nouns of one database. Each loads when it is first used: a program that lists jobs answers sooner."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend

    def rehearsal(self) -> Store:
        """The same store for dry runs: each transaction answers and refuses as it would, and is taken back."""
        from holdfast.store.engine.dry_run import Rehearsal

        return Store(cast("Backend", Rehearsal(self.backend)))

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
    def control(self) -> Control:
        from holdfast.store.jobs.control import Control

        return Control(self.backend)

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
    def views(self) -> Views:
        from holdfast.store.jobs.queries import Views

        return Views(self.backend)

    @cached_property
    def pruner(self) -> Pruner:
        from holdfast.store.jobs.retention import Pruner

        return Pruner(self.backend)

    @cached_property
    def scaling(self) -> ScalingStore:
        """What autoscalers read and write."""
        from holdfast.store.fleet.autoscaler import ScalingStore

        return ScalingStore(self.backend)

    @cached_property
    def inbox(self) -> Inbox:
        """Results of units that wait for their consumer."""
        from holdfast.store.batches.inbox import Inbox

        return Inbox(self.backend)

    @cached_property
    def batches(self) -> Batches:
        from holdfast.store.batches.batches import Batches

        return Batches(self.backend)

    @cached_property
    def ledger(self) -> Ledger:
        """A look into the ledgers of batches."""
        from holdfast.store.batches.queries import Ledger

        return Ledger(self.backend)

    @cached_property
    def schedules(self) -> Schedules:
        from holdfast.store.schedules.schedules import Schedules

        return Schedules(self.backend)

    @cached_property
    def plans(self) -> Plans:
        """The ledger of what schedules have fired and skipped."""
        from holdfast.store.schedules.plans import Plans

        return Plans(self.backend)

    @cached_property
    def board(self) -> Board:
        """What the dashboard shows in one look."""
        from holdfast.store.fleet.dashboard import Board

        return Board(self.backend)

    @cached_property
    def acts(self) -> Acts:
        """What people did."""
        from holdfast.store.access.records import Acts

        return Acts(self.backend)

    @cached_property
    def credentials(self) -> Credentials:
        from holdfast.store.access.records import Credentials

        return Credentials(self.backend)

    @cached_property
    def filters(self) -> Filters:
        from holdfast.store.access.records import Filters

        return Filters(self.backend)

    @cached_property
    def answers(self) -> Answers:
        from holdfast.store.access.records import Answers

        return Answers(self.backend)

    @cached_property
    def traces(self) -> Traces:
        from holdfast.store.access.records import Traces

        return Traces(self.backend)

    @cached_property
    def upkeep(self) -> Upkeep:
        from holdfast.store.engine.database import Upkeep

        return Upkeep(self.backend)

    def close(self) -> None:
        """Close all connections; idempotent."""
        self.backend.close()
