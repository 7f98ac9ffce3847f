"""The store: where jobs live. One implementation over two backends.

Each noun is a class whose docstrings are promises; the conformance suite in tests/store
has a test for each of them and runs on SQLite and PostgreSQL.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from holdfast.store.access import Acts, Answers, Credentials, Filters, Traces
    from holdfast.store.backend import Backend
    from holdfast.store.batches import Batches
    from holdfast.store.board import Board
    from holdfast.store.control import Control
    from holdfast.store.inbox import Inbox
    from holdfast.store.jobs import Jobs
    from holdfast.store.leases import Leases
    from holdfast.store.looking import Ledger
    from holdfast.store.plans import Plans
    from holdfast.store.queues import Kinds, Queues, Workers
    from holdfast.store.retention import Pruner
    from holdfast.store.scaling import ScalingStore
    from holdfast.store.schedules import Schedules
    from holdfast.store.steps import Steps
    from holdfast.store.upkeep import Upkeep
    from holdfast.store.views import Views


class Store:
    """All nouns of one database. Each loads when it is first used: a program that lists jobs answers sooner."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend

    def rehearsal(self) -> Store:
        """The same store for dry runs: each transaction answers and refuses as it would, and is taken back."""
        from holdfast.store.rehearsal import Rehearsal

        return Store(cast("Backend", Rehearsal(self.backend)))

    @cached_property
    def jobs(self) -> Jobs:
        from holdfast.store.jobs import Jobs

        return Jobs(self.backend)

    @cached_property
    def leases(self) -> Leases:
        from holdfast.store.leases import Leases

        return Leases(self.backend)

    @cached_property
    def steps(self) -> Steps:
        from holdfast.store.steps import Steps

        return Steps(self.backend)

    @cached_property
    def control(self) -> Control:
        from holdfast.store.control import Control

        return Control(self.backend)

    @cached_property
    def queues(self) -> Queues:
        from holdfast.store.queues import Queues

        return Queues(self.backend)

    @cached_property
    def kinds(self) -> Kinds:
        from holdfast.store.queues import Kinds

        return Kinds(self.backend)

    @cached_property
    def workers(self) -> Workers:
        from holdfast.store.queues import Workers

        return Workers(self.backend)

    @cached_property
    def views(self) -> Views:
        from holdfast.store.views import Views

        return Views(self.backend)

    @cached_property
    def pruner(self) -> Pruner:
        from holdfast.store.retention import Pruner

        return Pruner(self.backend)

    @cached_property
    def scaling(self) -> ScalingStore:
        """What autoscalers read and write."""
        from holdfast.store.scaling import ScalingStore

        return ScalingStore(self.backend)

    @cached_property
    def inbox(self) -> Inbox:
        """Results of units that wait for their consumer."""
        from holdfast.store.inbox import Inbox

        return Inbox(self.backend)

    @cached_property
    def batches(self) -> Batches:
        from holdfast.store.batches import Batches

        return Batches(self.backend)

    @cached_property
    def ledger(self) -> Ledger:
        """A look into the ledgers of batches."""
        from holdfast.store.looking import Ledger

        return Ledger(self.backend)

    @cached_property
    def schedules(self) -> Schedules:
        from holdfast.store.schedules import Schedules

        return Schedules(self.backend)

    @cached_property
    def plans(self) -> Plans:
        """The ledger of what schedules have fired and skipped."""
        from holdfast.store.plans import Plans

        return Plans(self.backend)

    @cached_property
    def board(self) -> Board:
        """What the dashboard shows in one look."""
        from holdfast.store.board import Board

        return Board(self.backend)

    @cached_property
    def acts(self) -> Acts:
        """What people did."""
        from holdfast.store.access import Acts

        return Acts(self.backend)

    @cached_property
    def credentials(self) -> Credentials:
        from holdfast.store.access import Credentials

        return Credentials(self.backend)

    @cached_property
    def filters(self) -> Filters:
        from holdfast.store.access import Filters

        return Filters(self.backend)

    @cached_property
    def answers(self) -> Answers:
        from holdfast.store.access import Answers

        return Answers(self.backend)

    @cached_property
    def traces(self) -> Traces:
        from holdfast.store.access import Traces

        return Traces(self.backend)

    @cached_property
    def upkeep(self) -> Upkeep:
        from holdfast.store.upkeep import Upkeep

        return Upkeep(self.backend)

    def close(self) -> None:
        """Close all connections; idempotent."""
        self.backend.close()
