"""The store: the database of jobs, batches and schedules. One implementation over two backends.

Each noun is a class whose docstrings are promises; the conformance suite in tests/store
has a test for each of them and runs on SQLite and PostgreSQL.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import parse_qsl

from holdfast.domain.store_url import SqliteUrl, without_driver
from holdfast.errors import ConfigurationError, MissingDriver, UnknownScheme
from holdfast.settings import sqlite_file, user_data
from holdfast.store.engine import forks
from holdfast.store.engine.interrupts import import_alone

if TYPE_CHECKING:
    from holdfast.domain.jobs.job import WorkerId
    from holdfast.store.access.audit import AuditedAction, AuditLog
    from holdfast.store.access.credentials import Credentials
    from holdfast.store.access.idempotency_keys import IdempotencyKeys
    from holdfast.store.access.saved_filters import SavedFilters
    from holdfast.store.access.sessions import Sessions
    from holdfast.store.batches.batches import Batches
    from holdfast.store.batches.inbox import InboxStore
    from holdfast.store.batches.queries import LedgerQueries
    from holdfast.store.engine.backend import Backend
    from holdfast.store.engine.database import Database
    from holdfast.store.fleet.autoscaler import AutoscalerStore
    from holdfast.store.fleet.dashboard import DashboardQueries
    from holdfast.store.fleet.registry import Kinds, Queues, Workers
    from holdfast.store.fleet.stop_switch import CommandSwitch, StopSwitches
    from holdfast.store.jobs.control import JobControl
    from holdfast.store.jobs.enqueue import Jobs
    from holdfast.store.jobs.leases import Leases
    from holdfast.store.jobs.queries import JobQueries, Traces
    from holdfast.store.jobs.retention import Pruner
    from holdfast.store.jobs.steps import Steps
    from holdfast.store.schedules.plans import Plans
    from holdfast.store.schedules.schedules import ScheduleStore


class LazyAttribute:
    """Imports a class of *package* at the first use and makes the attribute: a short command imports few modules.

    *argument* returns what the class is made with, from the owner of the attribute.
    """

    def __init__(self, package: str, argument: Callable[[Any], Any], place: str) -> None:
        module, self._class = place.split(":")
        self._module = f"{package}.{module}"
        self._argument = argument

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, owner: Any, owner_type: type) -> Any:
        if owner is None:
            return self
        made = getattr(import_alone(self._module), self._class)(self._argument(owner))
        owner.__dict__[self._name] = made  # takes precedence over this non-data descriptor
        return made


noun: Any = partial(LazyAttribute, "holdfast.store", attrgetter("backend"))  # each noun below has its own type


class _RolledBack(Exception):
    """Ends the transaction of a dry run."""


class Store:
    """All nouns of one database."""

    jobs: Jobs = noun("jobs.enqueue:Jobs")
    leases: Leases = noun("jobs.leases:Leases")
    steps: Steps = noun("jobs.steps:Steps")
    control: JobControl = noun("jobs.control:JobControl")
    views: JobQueries = noun("jobs.queries:JobQueries")
    pruner: Pruner = noun("jobs.retention:Pruner")
    traces: Traces = noun("jobs.queries:Traces")
    queues: Queues = noun("fleet.registry:Queues")
    kinds: Kinds = noun("fleet.registry:Kinds")
    workers: Workers = noun("fleet.registry:Workers")
    stop_switch: StopSwitches = noun("fleet.stop_switch:StopSwitches")
    autoscaler: AutoscalerStore = noun("fleet.autoscaler:AutoscalerStore")
    dashboard: DashboardQueries = noun("fleet.dashboard:DashboardQueries")
    batches: Batches = noun("batches.batches:Batches")
    ledger: LedgerQueries = noun("batches.queries:LedgerQueries")
    inbox: InboxStore = noun("batches.inbox:InboxStore")
    schedules: ScheduleStore = noun("schedules.schedules:ScheduleStore")
    plans: Plans = noun("schedules.plans:Plans")
    audit_log: AuditLog = noun("access.audit:AuditLog")
    credentials: Credentials = noun("access.credentials:Credentials")
    command_switch: CommandSwitch = noun("fleet.stop_switch:CommandSwitch")
    sessions: Sessions = noun("access.sessions:Sessions")
    saved_filters: SavedFilters = noun("access.saved_filters:SavedFilters")
    idempotency_keys: IdempotencyKeys = noun("access.idempotency_keys:IdempotencyKeys")
    database: Database = noun("engine.database:Database")

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        #: The workers that hold it, and the fork in which they run.
        self._holders: set[tuple[str, int]] = set()
        self._close_requested = False

    def audited(self, action: AuditedAction) -> Store:
        """The same store for one action of a person: its changes and its audit entry are one transaction."""
        from holdfast.store.access.audit import AuditedBackend

        return Store(cast("Backend", AuditedBackend(self.backend, action)))

    @contextmanager
    def single_transaction(self) -> Iterator[Store]:
        """The same store in one transaction: all that happens inside is committed at the end, or nothing is.

        Raises:
            StoreUnavailable: It took too long, or the connection broke; nothing was changed.
        """
        from holdfast.store.engine.wrapper import MAX_TRANSACTION, SingleTransactionBackend

        with self.backend.transaction(limit=MAX_TRANSACTION) as connection:
            backend = SingleTransactionBackend(self.backend, connection)
            yield Store(cast("Backend", backend))
        if backend.wakes:
            self.backend.notify(backend.wakes)

    @contextmanager
    def dry_run(self) -> Iterator[Store]:
        """The same store in one transaction that is rolled back at the end: it answers and refuses as usual.

        Each call sees the changes before it, and no worker is woken. It holds the locks of the real changes until its
        end, at most 15 s. The ids that it draws belong to no job.
        """
        from holdfast.store.engine.wrapper import MAX_TRANSACTION, SingleTransactionBackend

        with suppress(_RolledBack), self.backend.transaction(limit=MAX_TRANSACTION) as connection:
            yield Store(cast("Backend", SingleTransactionBackend(self.backend, connection)))
            raise _RolledBack

    def reserved_store(self) -> Store:
        """The same store on connections that no handler can use up, for the services that keep leases."""
        return Store(self.backend.reserved)

    def hold(self, worker: WorkerId) -> None:
        """Keep the connections open until this worker releases them, also if the store is closed meanwhile."""
        self._holders.add((worker, forks.depth))

    def release(self, worker: WorkerId) -> None:
        """End a hold; idempotent."""
        self._holders.discard((worker, forks.depth))
        if self._close_requested:
            self.close()

    def close(self) -> None:
        """Close all connections, or let the last worker that holds them close them; idempotent."""
        self._close_requested = True
        if not any(depth == forks.depth for _, depth in list(self._holders)):
            self.backend.close()


def open_store(
    url: str,
    *,
    create: bool = True,
    may_migrate: bool = False,
    any_schema: bool = False,
    patience: timedelta | None = None,
) -> Store:
    """Open the store that *url* names; its query may hold ``durability``, ``schema``, ``prepare``, ``connections``.

    A URL of SQLAlchemy (``postgresql+psycopg://``) names the same store as one without the driver.

    *patience* limits the time of each statement, for servers whose users wait for a page. *may_migrate*: an older
    schema is brought up to date, as the owner of a store or a worker does it. *any_schema*: the store of a development
    version is opened, too, for a copy.

    Raises:
        SchemaMismatch: A development version made the store, and *any_schema* is false.
        SchemaMissing: The database holds no store, and *create* is false.
        SchemaOutdated: The schema is older than this code needs, and *may_migrate* is false.
        UnknownScheme: No backend handles this scheme.
        MissingDriver: The driver is not installed.
    """
    url = without_driver(url)
    scheme = url.partition(":")[0]
    opening = {"create": create, "may_migrate": may_migrate, "any_schema": any_schema, "patience": patience}
    match scheme:
        case "sqlite":
            return _open_sqlite(url, **opening)
        case "postgresql" | "postgres":
            return _open_postgres(url, **opening)
        case _:
            if not re.fullmatch(r"[a-z][a-z0-9+]{0,20}", scheme):
                raise UnknownScheme("this is not a URL")  # not repeated: it may hold a password
            raise UnknownScheme(f"there is no store for {scheme!r} URLs", scheme=scheme)


def _open_sqlite(url: str, **opening: Any) -> Store:
    import_alone("holdfast.store.sqlite.backend")
    from holdfast.store.sqlite.backend import SqliteBackend

    options = dict(SqliteUrl.parse(url).options)
    durability = options.pop("durability", "full")
    if durability not in ("full", "fast"):
        raise ConfigurationError(f"durability is 'full' or 'fast', not {durability!r}")
    if options:
        raise ConfigurationError(f"the URL has an unknown option {min(options)!r}")
    file = sqlite_file(url)
    if opening["create"]:
        _require_folder(file.parent)
    return Store(SqliteBackend(file, durability=durability, **opening))


def _require_folder(folder: Path) -> None:
    """Refuse a missing folder, unless it is the default one: a mistyped path must not become a new, empty store."""
    if not folder.exists() and folder != user_data(os.environ):
        hint = f"Check the URL of the store, or create the folder: mkdir -p {shlex.quote(str(folder))}"
        raise ConfigurationError(f"the folder {folder} does not exist", hint=hint)


def _open_postgres(url: str, **opening: Any) -> Store:
    try:
        import_alone("holdfast.store.postgres.backend")
        from holdfast.store.postgres.backend import DEFAULT_CONNECTIONS, MIN_CONNECTIONS, PostgresBackend
        from holdfast.store.postgres.connections import is_readable
    except ImportError as error:
        raise MissingDriver(f"PostgreSQL needs psycopg: {error}") from error

    server, _, text = url.partition("?")
    options = dict(parse_qsl(text, keep_blank_values=True))
    schema = options.pop("schema", "holdfast")
    prepare = options.pop("prepare", "on")
    connections = options.pop("connections", str(DEFAULT_CONNECTIONS))
    # The names of roles and of the notification channel are longer, and PostgreSQL cuts names after 63 bytes.
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,49}", schema):
        hint = "Use at most 50 letters, digits and underscores."
        raise ConfigurationError(f"{schema!r} is not a valid name for a schema", hint=hint)
    if prepare not in ("on", "off"):
        raise ConfigurationError(f"prepare is 'on' or 'off', not {prepare!r}")
    if not re.fullmatch(r"[0-9]{1,4}", connections) or int(connections) < MIN_CONNECTIONS:
        raise ConfigurationError(f"connections is a number from {MIN_CONNECTIONS} to 9999, not {connections!r}")
    ours = ("schema", "prepare", "connections")
    rest = "&".join(pair for pair in text.split("&") if pair.split("=")[0] not in ours)
    target = f"{server}?{rest}" if rest else server
    if not is_readable(target):
        raise ConfigurationError(
            "the URL of the database cannot be read", hint="Write @, : and / in a password as %40, %3A and %2F."
        )
    settings: dict[str, Any] = {"schema": schema, "prepare": prepare == "on", "connections": int(connections)}
    return Store(PostgresBackend(target, **settings, **opening))
