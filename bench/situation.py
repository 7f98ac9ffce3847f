"""What the situations share: the server, the databases, and a figure with its ratio."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import psycopg
from tests.support.postgres import DURABLE, PostgresServer, bundled_programs, running

from bench.runs import record
from bench.samples import Spread

#: The target of a ratio to the empty store.
FLAT = ">= 0.9"


class Finding(NamedTuple):
    """One row of the page. *value* is a text; *ratio* compares it with the empty store of one kind."""

    situation: str
    figure: str
    value: str
    ratio: Spread | None = None
    #: What the ratio should be, such as ``>= 0.9``.
    target: str = ""

    def record(self) -> None:
        if self.target and self.ratio is not None:
            record(f"{self.situation}: {self.figure}, ratio", self.ratio.middle, self.target)

    def cells(self) -> list[str]:
        ratio = f"{self.ratio.middle:.2f} ({self.ratio.low:.2f} to {self.ratio.high:.2f})" if self.ratio else ""
        return [self.situation, self.figure, self.value, ratio]


@contextmanager
def server_of(*databases: str, **settings: str) -> Iterator[PostgresServer]:
    with running(bundled_programs(), settings={**DURABLE, **settings}) as server:
        with psycopg.connect(server.url(), autocommit=True) as connection:
            for name in databases:
                connection.execute(f"CREATE DATABASE {name}".encode())
        yield server
