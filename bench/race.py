"""One system of the comparison on its database of PostgreSQL."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

from tests.support.postgres import PostgresServer

from bench.meter import Meter, StatementLog
from bench.peers import Process
from bench.samples import Samples, percentile
from bench.systems import System

ONE, THOUSANDS, TEN_THOUSANDS = "enqueue, one by one", "enqueue, 1,000 a call", "enqueue, 10,000 a call"
DRAIN, DRAIN_TWO = "drain, one worker", "drain, two workers"
RATES = (ONE, THOUSANDS, TEN_THOUSANDS, DRAIN, DRAIN_TWO)
P50, P99 = "enqueue to start, p50, ms", "enqueue to start, p99, ms"
WORKER_CPU, SERVER_CPU = "CPU of the worker, µs", "CPU of the server, µs"
WAL, TRANSACTIONS = "write-ahead log, bytes", "transactions"
ENQUEUE_STATEMENTS, STATEMENTS = "statements, enqueue one by one", "statements, drain"
#: The turns of each system within a round that enqueue one by one: the disk changes its speed from second to second.
ONE_TURNS = 8
COSTS = (WORKER_CPU, SERVER_CPU, WAL, TRANSACTIONS, STATEMENTS, ENQUEUE_STATEMENTS)


class Race:
    """Two processes of one system: one worker and a second one, or a worker and a producer."""

    def __init__(self, system: System, server: PostgresServer, options: argparse.Namespace, samples: Samples) -> None:
        self._name, self._samples = system.name, samples
        url = server.url(system.database)
        self._system, self._options = system, options
        self.set_part(1.0)
        self._meter, self._statements = Meter(server, url), StatementLog(server)
        self._transactions, self._drained = 0.0, 0
        self._racers = [system.start(url), system.start(url)]

    def set_part(self, part: float) -> None:
        """Do this part of all jobs from now on."""
        share = self._system.share * part
        self._jobs = int(self._options.jobs * share)
        self._one_turn = max(1, int(self._options.ones * share / ONE_TURNS))
        self._ones = ONE_TURNS * self._one_turn
        self._latencies = int(self._options.latencies * part)

    def steps(self) -> dict[str, Callable[[], None]]:
        return {
            ONE: lambda: self._enqueue(ONE, "one", self._one_turn),
            THOUSANDS: lambda: self._enqueue(THOUSANDS, "bulk", self._jobs, 1000),
            DRAIN: self._drain,
            TEN_THOUSANDS: lambda: self._enqueue(TEN_THOUSANDS, "bulk", self._jobs, 10_000),
            DRAIN_TWO: self._drain_by_two,
            P50: lambda: add_latency(self._samples, self._name, *self._racers, self._latencies),
        }

    def count_enqueue(self) -> None:
        """Apart from the rounds: the log of the server costs time."""
        with self._statements.open():
            before = self._statements.count()
            self._racers[0].perform("one", self._ones)
            self._add(ENQUEUE_STATEMENTS, (self._statements.count() - before) / self._ones)
        self._racers[0].perform("bulk", self._jobs, 1000)

    def count_drain(self) -> None:
        """Statements of a drain, and the transactions before it: its sessions have rested."""
        self._transactions = self._meter.transactions()
        with self._statements.open():
            before = self._statements.count()
            self._drained = self._racers[0].perform("drain")["jobs"]
            self._add(STATEMENTS, (self._statements.count() - before) / self._drained)

    def count_transactions(self) -> None:
        """Those of the last drain, after its sessions have rested again."""
        self._add(TRANSACTIONS, (self._meter.transactions() - self._transactions) / self._drained)

    def close(self) -> None:
        for racer in self._racers:
            racer.close()

    def _add(self, figure: str, value: float) -> None:
        self._samples.add(self._name, figure, value)

    def _enqueue(self, step: str, act: str, count: int, size: int = 1) -> None:
        self._add(step, count / self._racers[0].perform(act, count, size)["seconds"])

    def _drain(self) -> None:
        before = self._meter.read()
        answer = self._racers[0].perform("drain")
        used, jobs = self._meter.read().since(before), self._done([answer])
        self._add(DRAIN, jobs / answer["seconds"])
        self._add(WORKER_CPU, answer["cpu"] / jobs * 1e6)
        self._add(SERVER_CPU, used.cpu_s / jobs * 1e6)
        self._add(WAL, used.wal_bytes / jobs)

    def _drain_by_two(self) -> None:
        for racer in self._racers:
            racer.order(act="drain", count=0)
        answers = [racer.answer() for racer in self._racers]
        self._add(DRAIN_TWO, self._done(answers) / max(answer["seconds"] for answer in answers))

    def _done(self, answers: list[dict[str, Any]]) -> int:
        """The jobs of a drain. A system that leaves jobs behind is not measured."""
        done: int = sum(answer["jobs"] for answer in answers)
        expected = {self._jobs, self._jobs + self._ones}
        if done not in expected:
            raise RuntimeError(f"{self._name} drained {done} jobs; {expected} were expected")
        return done


def add_latency(samples: Samples, name: str, worker: Process, sender: Process, count: int) -> None:
    worker.order(act="serve", count=count)
    time.sleep(0.5)  # the worker listens
    sender.perform("send", count)
    waits = [wait * 1000 for wait in worker.answer()["waits"]]
    samples.add(name, P50, percentile(waits, 50))
    samples.add(name, P99, percentile(waits, 99))
