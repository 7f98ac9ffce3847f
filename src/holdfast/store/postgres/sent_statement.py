"""A statement that the server works on while its caller does something else."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from datetime import timedelta
from typing import Any

import psycopg
from psycopg import errors

from holdfast.store.engine.operation import Query
from holdfast.store.postgres.connections import is_conflict, translate, translated
from holdfast.store.postgres.pool import Pool
from holdfast.store.postgres.statements import Statements


class SentStatement:
    """Holds a connection from the send to the answer."""

    def __init__(
        self, pool: Pool, statements: Statements, query: Query, *, timeout: timedelta, again: Callable[[], list[Any]]
    ) -> None:
        """*again* runs the statement once more."""
        self._again = again
        with translated(), ExitStack() as call:
            connection = call.enter_context(pool.connection(limit=timeout.total_seconds()))
            self._receive = statements.send(connection, query)
            self._call = call.pop_all()

    def rows(self) -> list[Any]:
        """Wait for its rows, once. It runs again if the server has rolled it back, or has forgotten it."""
        try:
            with self._call:
                return self._receive()
        except psycopg.Error as error:
            if not (is_conflict(error) or isinstance(error, errors.InvalidSqlStatementName)):
                raise translate(error) from error
        return self._again()
