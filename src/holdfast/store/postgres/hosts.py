"""The hosts of a URL: which of them is the primary now, and what each of them answered."""

from __future__ import annotations

import os
import threading
from enum import StrEnum
from typing import Any

import psycopg
from msgspec import Struct
from psycopg import errors, pq
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from holdfast.store.postgres.connections import Connection, FormerPrimaryError, connect

#: The timeline of a primary rises with each promotion. The system identifier is common to a primary and its standbys.
MARK = """
SELECT (SELECT system_identifier FROM pg_control_system()),
    ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::int
WHERE NOT pg_is_in_recovery()
"""
#: Sessions that may write; URLs that request others are left to the driver.
_WRITING = ("read-write", "primary")
#: The port that an empty entry of a list means.
DEFAULT_PORT = 5432


class Mark(Struct, frozen=True):
    """The history that a server writes."""

    system: int
    timeline: int


class HostRole(StrEnum):
    PRIMARY = "primary"
    FORMER_PRIMARY = "former primary"
    STANDBY = "standby"
    UNREACHABLE = "out of reach"


class HostState(Struct, frozen=True):
    """What a host of the URL is now: a primary, a former one that still takes writes, a standby, or out of reach.

    *error* is the answer of a host that cannot be used.
    """

    name: str
    role: HostRole
    error: str = ""


class Hosts:
    """Opens connections. With several hosts in the URL, it opens them on the newest primary.

    Two servers may call themselves primary after a failover, when the old one returns. The one with the highest
    timeline is right. This process never steps back to a lower timeline than it has worked on.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._hosts = split_hosts(url)
        self._lock = threading.RLock()  # a finalizer that runs in its block may call the store
        self._current: str | None = None
        #: The highest timeline of each system.
        self._newest: dict[int, int] = {}

    def connect(self, **options: Any) -> Connection:
        """Open a connection.

        Raises:
            FormerPrimaryError: No other server than a former primary can be reached.
            psycopg.OperationalError: No server can be used; the text names the error of each.
        """
        if len(self._hosts) < 2:
            return connect(self._url, **options)
        current, failures = self._current, {}
        if current is not None:
            try:
                return self._accepted(current, self._open(current, options))
            except psycopg.OperationalError as error:
                failures[current] = error
        return self._search(failures, options)

    def _search(self, failures: dict[str, psycopg.OperationalError], options: dict[str, Any]) -> Connection:
        """Connect to every host that has not just failed, and keep the connection to the newest primary."""
        candidates: list[tuple[int, str, Connection]] = []
        for host in self._hosts:
            if host not in failures:
                try:
                    connection = self._open(host, options)
                    candidates.append((_read_mark(connection).timeline, host, connection))
                except psycopg.OperationalError as error:
                    failures[host] = error
        candidates.sort(key=lambda each: each[0])
        for _, _, connection in candidates[:-1]:
            connection.close()
        if candidates:
            _, host, connection = candidates[-1]
            try:
                return self._accepted(host, connection)
            except FormerPrimaryError as error:
                failures[host] = error
        texts = "; ".join(f"{self._hosts[host]}: {_reason(failures[host])}" for host in self._hosts)
        former = any(isinstance(error, FormerPrimaryError) for error in failures.values())
        raise (FormerPrimaryError if former else psycopg.OperationalError)(f"no host can be used: {texts}")

    def states(self, **options: Any) -> list[HostState]:
        """What each host of the URL is now; an empty list if the URL has only one, or the driver chooses."""
        marks: dict[str, Mark | None] = {}
        errors_of: dict[str, str] = {}
        for host in self._hosts:
            try:
                with self._open(host, {**options, "target_session_attrs": "any"}) as connection:
                    (standby,) = connection.execute("SELECT pg_is_in_recovery()").fetchone() or (True,)
                    marks[host] = None if standby else _read_mark(connection)
            except psycopg.OperationalError as error:
                errors_of[host] = _reason(error)
        newest = max((mark.timeline for mark in marks.values() if mark is not None), default=0)
        return [
            HostState(name, host_role(host in marks, marks.get(host), newest), errors_of.get(host, ""))
            for host, name in self._hosts.items()
        ]

    def _open(self, host: str, options: dict[str, Any]) -> Connection:
        return connect(host, **{"target_session_attrs": "read-write", **options})

    def _accepted(self, host: str, connection: Connection) -> Connection:
        """The connection, unless its server is older than one on which this process has worked."""
        mark = _read_mark(connection)
        with self._lock:
            newest = self._newest.get(mark.system, 0)
            if mark.timeline >= newest:
                self._newest[mark.system] = mark.timeline
                self._current = host
                return connection
        connection.close()
        text = f"a former primary, on timeline {mark.timeline}; this process has worked on timeline {newest}"
        raise FormerPrimaryError(text)


def host_role(reachable: bool, mark: Mark | None, newest: int) -> HostRole:  # noqa: FBT001 - see HostState
    """The role of a host: *mark* is that of a server that takes writes, *newest* the highest timeline of all hosts."""
    if not reachable:
        return HostRole.UNREACHABLE
    if mark is None:
        return HostRole.STANDBY
    return HostRole.PRIMARY if mark.timeline == newest else HostRole.FORMER_PRIMARY


def split_hosts(url: str) -> dict[str, str]:
    """The connection string of each host, and its name; no host if the driver should choose.

    The rules are those of libpq. Lists that do not match are left to it: it refuses them.
    """
    options = _effective_options(url)
    if options["target_session_attrs"] not in _WRITING:
        return {}
    names, addresses = (_listed(options.get(name, "")) for name in ("host", "hostaddr"))
    ports = options["port"].split(",")
    count = len(addresses) or len(names)
    if count < 2 or len(names) not in (0, count) or len(ports) not in (1, count):
        return {}
    hosts = {}
    for i in range(count):
        name, address = (each[i] if each else "" for each in (names, addresses))
        port = ports[i] if len(ports) == count else ports[0]
        # An empty option, not a missing one: a missing one would be that of the environment.
        single = make_conninfo(url, host=name, hostaddr=address, port=port)
        place = name or address
        hosts[single] = f"{f'[{place}]' if ':' in place else place}:{port or DEFAULT_PORT}"
    return hosts


def _effective_options(url: str) -> dict[str, str]:
    """The options that libpq uses for *url*: its own, those of its service, of the environment, and defaults."""
    # libpq refuses the unknown mode before it connects to anything, and has completed the options by then.
    refused = pq.PGconn.connect_start(make_conninfo(url, sslmode="none of them").encode())
    options = {each.keyword.decode(): each.val.decode() for each in refused.info if each.val is not None}
    refused.finish()
    attribute = "target_session_attrs"
    if attribute not in conninfo_to_dict(url) and "PGTARGETSESSIONATTRS" not in os.environ:
        options[attribute] = options[attribute].replace("any", "read-write")  # "any" is the default of libpq
    return options


def _listed(option: str) -> list[str]:
    return option.split(",") if option else []


def _read_mark(connection: Connection) -> Mark:
    """The history of a primary. A server that does not show it counts as the oldest."""
    try:
        row = connection.execute(MARK).fetchone()
    except errors.InsufficientPrivilege:
        row = None
    if not connection.autocommit:
        connection.rollback()
    return Mark(0, 0) if row is None else Mark(*row)


def _reason(error: psycopg.Error) -> str:
    """The last line of an error, without the address and the advice of libpq."""
    lines = [line for line in str(error).splitlines() if line.strip() and not line.startswith("\t")]
    return (lines or [type(error).__name__])[-1].strip().removeprefix("- ").rpartition(" failed: ")[2]
