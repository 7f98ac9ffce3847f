"""What a step costs a PostgreSQL server: CPU, write-ahead log, transactions and statements."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import LiteralString, NamedTuple

import psutil
import psycopg
from tests.support.postgres import PostgresServer

#: A session reports its statistics once a second while it works, and after ten seconds without work.
ACTIVE_STATISTICS_S, IDLE_STATISTICS_S = 1.2, 10.5
#: Processes of the server finish what a step has left to them.
REST_S = 0.2
#: What the server writes to its log before the text of a statement, in both protocols.
MARKS = (b"LOG:  statement: ", b"LOG:  execute ")


class Reading(NamedTuple):
    """Counters of the server, and of the write-ahead log."""

    cpu_s: float
    wal_bytes: float

    def since(self, earlier: Reading) -> Reading:
        return Reading(*(now - then for now, then in zip(self, earlier, strict=True)))


class Meter:
    """Reads what a server has used; transactions are those of one database."""

    def __init__(self, server: PostgresServer, url: str) -> None:
        self._pid = int((Path(server.data) / "postmaster.pid").read_text().splitlines()[0])
        self._url = url

    def read(self) -> Reading:
        time.sleep(REST_S)
        return Reading(self._cpu(), self._value("SELECT (pg_current_wal_insert_lsn() - '0/0')::float8"))

    def transactions(self) -> float:
        """Those that the sessions have reported: wait before."""
        return self._value("SELECT xact_commit::float8 FROM pg_stat_database WHERE datname = current_database()")

    def _value(self, query: LiteralString) -> float:
        with psycopg.connect(self._url, autocommit=True) as connection:
            (value,) = connection.execute(query).fetchone() or (0.0,)
        return float(value)

    def _cpu(self) -> float:
        postmaster = psutil.Process(self._pid)
        used = postmaster.cpu_times()
        total = used.user + used.system + used.children_user + used.children_system
        for child in postmaster.children(recursive=True):
            with suppress(psutil.Error):  # it has just ended
                times = child.cpu_times()
                total += times.user + times.system
        return float(total)


class StatementLog:
    """Counts statements by the server's own log. The server of the development wheel has no pg_stat_statements."""

    def __init__(self, server: PostgresServer) -> None:
        self._url, self._log = server.url(), server.home / "log"

    @contextmanager
    def open(self) -> Iterator[None]:
        """Log every statement. That costs time: measure no rates meanwhile."""
        self._set("'all'", "0")
        try:
            yield
        finally:
            self._set("DEFAULT", "DEFAULT")

    def count(self) -> int:
        """Statements so far, of all databases."""
        with self._log.open("rb") as lines:
            return sum(any(mark in line for mark in MARKS) for line in lines)

    def _set(self, statement: str, parameters: str) -> None:
        with psycopg.connect(self._url, autocommit=True) as connection:
            connection.execute(f"ALTER SYSTEM SET log_statement = {statement}".encode())
            connection.execute(f"ALTER SYSTEM SET log_parameter_max_length = {parameters}".encode())
            connection.execute("SELECT pg_reload_conf()")
        time.sleep(0.2)  # sessions read it before their next statement
