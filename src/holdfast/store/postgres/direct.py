"""Statements that pass by the cursor of the driver, which takes longer than all the rest of a short call.

This is the only module that reaches into psycopg. If a name that it needs is missing, statements run on a cursor.
"""

from __future__ import annotations

import re
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from hashlib import blake2b
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import errors

from holdfast.store.postgres.connections import Connection, roll_back

if TYPE_CHECKING:
    from psycopg.abc import PQGen
    from psycopg.pq.abc import PGconn, PGresult

#: What a cursor of psycopg would hide. The tests find all of it in the versions that pyproject.toml admits.
NEEDED = {
    "psycopg": "Connection.wait ConnectionInfo.encoding",
    "psycopg.adapt": "Transformer.load_rows Transformer.set_pgresult",
    "psycopg.errors": "error_from_result",
    "psycopg.pq": "ExecStatus.FATAL_ERROR ExecStatus.PIPELINE_SYNC Format.BINARY PGconn.consume_input PGconn.flush"
    " PGconn.enter_pipeline_mode PGconn.exit_pipeline_mode PGconn.get_result PGconn.is_busy PGconn.pipeline_sync"
    " PGconn.send_prepare PGconn.send_query_prepared PGresult.fname PGresult.nfields PGresult.ntuples PGresult.status",
    "psycopg.waiting": "Ready.R Wait.R Wait.RW",
}
with suppress(ImportError):  # one of them is missing, and nothing below runs
    from psycopg.adapt import Transformer
    from psycopg.pq import ExecStatus, Format
    from psycopg.waiting import Ready, Wait


def missing() -> list[str]:
    """The needed names that the installed psycopg lacks."""
    absent = [f"{module}:{name}" for module, names in NEEDED.items() for name in names.split()]
    for name in list(absent):
        with suppress(ImportError, AttributeError):
            resolve_name(name)
            absent.remove(name)
    return absent


_PARAMETER = re.compile(r"%\(([\w.]+)\)s")
#: The names of the statements that each session has prepared.
_prepared: weakref.WeakKeyDictionary[Connection, set[bytes]] = weakref.WeakKeyDictionary()


class DirectStatement:
    """A statement that each connection prepares once, under a name that no other text has."""

    def __init__(self, name: str, text: bytes) -> None:
        """*text* is the statement as psycopg wants it; its values are sent in the order of :attr:`parameters`."""
        self.parameters = tuple(dict.fromkeys(_PARAMETER.findall(text.decode())))
        places = {parameter: f"${place}" for place, parameter in enumerate(self.parameters, start=1)}
        self._text = _PARAMETER.sub(lambda match: places[match[1]], text.decode()).replace("%%", "%").encode()
        # PostgreSQL compares 63 bytes. A pooler may pass on a session with the statements of another program.
        self.name = f"holdfast_{name:.37}_{blake2b(self._text, digest_size=8).hexdigest()}".encode()
        #: The columns of its results, after the first.
        self.columns: tuple[str, ...] = ()

    def prepare(self, connection: Connection) -> None:
        """Prepare it, unless the session has. An interrupt may have hidden that it has: then the server refuses."""
        known = _prepared.setdefault(connection, set())
        if self.name not in known:
            with suppress(errors.DuplicatePreparedStatement):
                _exchange(connection, lambda: connection.pgconn.send_prepare(self.name, self._text))
            known.add(self.name)

    def send(self, connection: Connection, values: list[bytes | None]) -> None:
        connection.pgconn.send_query_prepared(self.name, values, result_format=Format.BINARY)

    def read(self, connection: Connection, result: PGresult) -> list[Any]:
        if not self.columns:
            self.columns = tuple((result.fname(place) or b"").decode() for place in range(result.nfields))
        if not result.ntuples:
            return []
        rows = Transformer(connection)
        rows.set_pgresult(result, format=Format.BINARY)
        return rows.load_rows(0, result.ntuples, tuple)


#: The level is named: behind a lock, a statement must see what others have committed meanwhile.
_BEGIN = DirectStatement("begin", b"BEGIN ISOLATION LEVEL READ COMMITTED")
_COMMIT = DirectStatement("commit", b"COMMIT")
#: Statements with their values, in the order in which the server runs them.
Steps = Sequence[tuple[DirectStatement, list[bytes | None]]]


def run(connection: Connection, steps: Steps) -> list[Any]:
    """Run statements in a transaction of their own, and return the rows of the last one. One before it takes locks.

    The connection is in autocommit. After an error of the server it is as before; after any other it is closed.
    """
    try:
        return _run(connection, steps)
    except errors.InvalidSqlStatementName:  # the driver has deallocated its own statements, and these with them
        _prepared.pop(connection, None)
        return _run(connection, steps)


def _run(connection: Connection, steps: Steps) -> list[Any]:
    statement, values = steps[-1]
    if len(steps) == 1:
        statement.prepare(connection)
        return statement.read(connection, _exchange(connection, lambda: statement.send(connection, values))[0])
    steps = [(_BEGIN, []), *steps, (_COMMIT, [])]
    for each, _ in steps:
        each.prepare(connection)

    def send() -> None:
        connection.pgconn.enter_pipeline_mode()
        for each, values in steps:
            each.send(connection, values)
        connection.pgconn.pipeline_sync()

    results = _exchange(connection, send, len(steps) + 1)
    return statement.read(connection, results[-3])  # behind it are the commit and the end of the pipeline


def _exchange(connection: Connection, send: Callable[[], None], answers: int = 1) -> list[PGresult]:
    """Send, and wait for the results. An interrupt closes the connection: parts may still be on their way."""
    try:
        send()
        results = connection.wait(_receive(connection.pgconn, answers))
        if answers > 1 and results[-1].status == ExecStatus.PIPELINE_SYNC:  # else the session has ended before
            connection.pgconn.exit_pipeline_mode()
    except BaseException:
        connection.close()
        raise
    for result in results:  # the error of a commit may follow an answer
        if result.status == ExecStatus.FATAL_ERROR:
            with suppress(psycopg.Error):
                roll_back(connection)
            raise errors.error_from_result(result, connection.info.encoding)
    return results


def _receive(pgconn: PGconn, answers: int) -> PQGen[list[PGresult]]:
    """Send what is left to send, and receive the results of *answers* statements.

    Other threads run only while it waits for the server. The driver lets them run at each step, for 5 ms or more.
    """
    while pgconn.flush():
        if ((yield Wait.RW) or 0) & Ready.R:
            pgconn.consume_input()
    results: list[PGresult] = []
    while answers:
        try:
            while pgconn.is_busy():
                if (yield Wait.R):
                    pgconn.consume_input()
        except psycopg.OperationalError:
            # Without an error, the server may have ended before it committed what it has answered.
            if not results or results[-1].status != ExecStatus.FATAL_ERROR:
                raise
            break  # the last result says why the server has ended the session
        result = pgconn.get_result()
        if result is not None:
            results.append(result)
        answers -= result is None or result.status == ExecStatus.PIPELINE_SYNC
    return results
