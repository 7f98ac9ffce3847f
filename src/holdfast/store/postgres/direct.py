"""Statements that are sent without a cursor of the driver, which takes longer than all the rest of a short call."""

from __future__ import annotations

import re
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any

import psycopg
from psycopg import errors
from psycopg.abc import PQGen
from psycopg.adapt import Transformer
from psycopg.pq import ExecStatus, Format
from psycopg.pq.abc import PGconn, PGresult
from psycopg.waiting import Ready, Wait

Connection = psycopg.Connection[Any]
Values = Mapping[str, Any]
#: Statements with their values, in the order in which the server runs them.
Steps = Sequence[tuple["PreparedStatement", Values]]
_PARAMETER = re.compile(r"%\(([\w.]+)\)s")


class PreparedStatement:
    """A statement that each connection prepares once."""

    def __init__(self, name: str, text: bytes) -> None:
        """*text* is the statement as psycopg wants it."""
        self._name = f"holdfast_{name}".encode()
        self._parameters = tuple(dict.fromkeys(_PARAMETER.findall(text.decode())))
        places = {parameter: f"${place}" for place, parameter in enumerate(self._parameters, start=1)}
        self._text = _PARAMETER.sub(lambda match: places[match[1]], text.decode()).replace("%%", "%").encode()
        self._prepared: weakref.WeakSet[Connection] = weakref.WeakSet()
        #: The columns of its results, after the first.
        self.columns: tuple[str, ...] = ()

    def run(self, connection: Connection, steps: Steps) -> list[Any]:
        """Run statements, of which this is the last, in a transaction of their own, and return its rows.

        The connection is in autocommit. A statement before this one takes locks.
        """
        try:
            return self.receive(connection, self.start(connection, steps))
        except errors.InvalidSqlStatementName:  # the driver has forgotten its own statements, and these with them
            return self.receive(connection, self.start(connection, steps, again=True))

    def start(self, connection: Connection, steps: Steps, *, again: bool = False) -> int:
        """Send statements, of which this is the last; returns how many answers will come.

        The server begins at once. *again*: prepare them again.
        """
        for statement, _ in steps:
            statement.prepare(connection, again=again)
        return _send(connection, steps)

    def receive(self, connection: Connection, answers: int) -> list[Any]:
        """Wait for the rows of a statement that was sent before."""
        return self._rows(connection, _receive(connection, answers))

    def prepare(self, connection: Connection, *, again: bool = False) -> None:
        if again or connection not in self._prepared:
            connection.pgconn.send_prepare(self._name, self._text)
            _wait(connection)
            self._prepared.add(connection)

    def send(self, connection: Connection, values: Values) -> None:
        """Send it without waiting for its result."""
        encoding = connection.info.encoding
        parameters = [None if (value := values[name]) is None else _text(value, encoding) for name in self._parameters]
        connection.pgconn.send_query_prepared(self._name, parameters, result_format=Format.BINARY)

    def _rows(self, connection: Connection, result: PGresult) -> list[Any]:
        if not self.columns:
            self.columns = tuple((result.fname(place) or b"").decode() for place in range(result.nfields))
        if not result.ntuples:
            return []
        rows = Transformer(connection)
        rows.set_pgresult(result, format=Format.BINARY)
        return rows.load_rows(0, result.ntuples, tuple)


def _send(connection: Connection, steps: Steps) -> int:
    """Send statements at once; returns the number of answers. The server commits when it has run the last one."""
    pgconn = connection.pgconn
    if len(steps) == 1:
        ((statement, values),) = steps
        statement.send(connection, values)
    else:
        with _closed_on_error(connection):
            pgconn.enter_pipeline_mode()
            for statement, values in steps:
                statement.send(connection, values)
            pgconn.pipeline_sync()
    with _closed_on_error(connection):
        connection.wait(_flush(pgconn))  # the server may begin
    return 1 if len(steps) == 1 else len(steps) + 1


def _receive(connection: Connection, count: int) -> PGresult:
    """The result of the last statement that was sent."""
    if count == 1:
        return _wait(connection)
    with _closed_on_error(connection):
        *answers, end = connection.wait(_answers(connection.pgconn, count))
        _checked(connection, end)
        connection.pgconn.exit_pipeline_mode()
    return [_checked(connection, each) for each in answers][-1]


@contextmanager
def _closed_on_error(connection: Connection) -> Iterator[None]:
    """Close the connection after an error: a part of a statement or of an answer may still be on its way."""
    try:
        yield
    except BaseException:
        connection.close()
        raise


def _wait(connection: Connection) -> PGresult:
    (answer,) = connection.wait(_answers(connection.pgconn, 1))
    return _checked(connection, answer)


def _answers(pgconn: PGconn, count: int) -> PQGen[list[list[PGresult]]]:
    """Send what is left to send, and receive *count* answers.

    The generators of the driver let other threads run at each step. While handlers compute, each step then takes 5 ms
    or more. This one lets them run only while it waits for the server.
    """
    yield from _flush(pgconn)
    answers: list[list[PGresult]] = []
    while len(answers) < count:
        answers.append((yield from _answer(pgconn)))
    return answers


def _flush(pgconn: PGconn) -> PQGen[None]:
    while pgconn.flush():
        if (yield Wait.RW) & Ready.R:
            pgconn.consume_input()


def _answer(pgconn: PGconn) -> PQGen[list[PGresult]]:
    """The results of a statement, or that of the end of a pipeline."""
    results: list[PGresult] = []
    while not results or results[-1].status != ExecStatus.PIPELINE_SYNC:
        try:
            while pgconn.is_busy():
                if (yield Wait.R):
                    pgconn.consume_input()
        except psycopg.OperationalError:
            # Without an error, the server may have ended before it committed what it has answered.
            if not results or results[-1].status != ExecStatus.FATAL_ERROR:
                raise
            break  # the last result says why the server has ended the session
        if (result := pgconn.get_result()) is None:
            break
        results.append(result)
    return results


def _checked(connection: Connection, results: list[PGresult]) -> PGresult:
    """The answer of a statement, which the error of a commit may follow."""
    for result in results:
        if result.status == ExecStatus.FATAL_ERROR:
            raise errors.error_from_result(result, connection.info.encoding)
    return results[0]


def _text(value: Any, encoding: str) -> bytes:
    """A value as PostgreSQL reads it, whatever the settings of the session are."""
    if isinstance(value, str):
        return value.encode(encoding)
    if isinstance(value, bool):
        return b"t" if value else b"f"
    if isinstance(value, int):
        return b"%d" % value
    if isinstance(value, list) and not value:
        return b"{}"
    if isinstance(value, timedelta):
        return f"{value.days:+d} days {value.seconds:+d} seconds {value.microseconds:+d} microseconds".encode()
    return (value.isoformat() if isinstance(value, datetime) else str(value)).encode(encoding)
