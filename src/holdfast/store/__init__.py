"""The store: where jobs live. One implementation over two backends.

Each noun is a class whose docstrings are promises; the conformance suite in tests/store
has a test for each of them and runs on SQLite and PostgreSQL.
"""

from __future__ import annotations

from holdfast.store.backend import Backend
from holdfast.store.control import Control
from holdfast.store.jobs import Jobs
from holdfast.store.leases import Leases
from holdfast.store.queues import Kinds, Queues, Workers
from holdfast.store.retention import Pruner
from holdfast.store.steps import Steps
from holdfast.store.views import Views


class Store:
    """All nouns of one database."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self.jobs = Jobs(backend)
        self.leases = Leases(backend)
        self.steps = Steps(backend)
        self.control = Control(backend)
        self.queues = Queues(backend)
        self.kinds = Kinds(backend)
        self.workers = Workers(backend)
        self.views = Views(backend)
        self.pruner = Pruner(backend)

    def close(self) -> None:
        """Close all connections; idempotent."""
        self.backend.close()
