"""The hosts of a URL: which of them is the primary now, and what each of them answered."""

from __future__ import annotations

import threading
from typing import Any

import psycopg
from msgspec import Struct
from psycopg import errors
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


class Mark(Struct, frozen=True):
    """The history that a server writes."""

    system: int
    timeline: int


class Hosts:
    """Opens connections. With several hosts in the URL, it opens them on the newest primary.

    Two servers may call themselves primary after a failover, when the old one returns. The one with the highest
    timeline is right. This process never steps back to a lower timeline than it has worked on.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._hosts = split_hosts(url)
        self._lock = threading.Lock()
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


def split_hosts(url: str) -> dict[str, str]:
    """The connection string of each host, and its name; no host if the driver should choose."""
    parts = conninfo_to_dict(url)
    names = str(parts.get("host") or "").split(",")
    addresses = str(parts.get("hostaddr") or "").split(",")
    ports = str(parts.get("port") or "").split(",")
    count = max(len(names), len(addresses))
    if count < 2 or parts.get("target_session_attrs", "read-write") not in _WRITING:
        return {}
    hosts = {}
    for i in range(count):
        name, address, port = (each[i] if len(each) > 1 else each[0] for each in (names, addresses, ports))
        single = make_conninfo(url, host=name or None, hostaddr=address or None, port=port or None)
        hosts[single] = f"{name or address}:{port or 5432}"
    return hosts


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
    """The last line of an error: the lines before repeat the address."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[-1].strip().removeprefix("- ")
