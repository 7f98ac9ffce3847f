"""A drain among finished jobs, among waiting jobs, and over 4,000 lanes, beside the drain of an empty store."""

from __future__ import annotations

import argparse
import json

import psutil
import psycopg
from tests.support.postgres import PostgresServer

from bench.fill import fill_postgres
from bench.meter import Meter
from bench.peers import Process
from bench.samples import Samples
from bench.situation import FLAT, Finding, server_of
from bench.systems import OURS

EMPTY, LANES = "empty", "lanes"
KINDS, QUEUES = 200, 20
RATE, CPU, SERVER_CPU = "jobs a second", "CPU of the worker, µs a job", "CPU of the server, µs a job"


def measure(options: argparse.Namespace) -> list[Finding]:
    samples, crowds = Samples(), {"finished": options.finished, "waiting": options.waiting}
    with server_of(EMPTY, LANES, *crowds, autovacuum="off") as server:
        for name, count in crowds.items():
            fill_postgres(server.url(name), name, count)
        lanes = json.dumps({"kinds": KINDS, "queues": QUEUES})
        racers = {name: OURS.start(server.url(name)) for name in (EMPTY, *crowds)}
        racers[LANES] = OURS.start(server.url(LANES), lanes)
        for turn in range(options.rounds + 1):
            _vacuum(server, list(racers))
            for name, racer in racers.items():
                _drain(name, racer, Meter(server, server.url()), options if turn else _warm_up(options), samples)
            if turn == 0:
                samples.clear()
                began = _memory_mb(racers[EMPTY])
        growth = _memory_mb(racers[EMPTY]) - began
        for racer in racers.values():
            racer.close()
    labels = {EMPTY: "an empty store", LANES: f"{KINDS} kinds in {QUEUES} queues, {KINDS * QUEUES:,} lanes with jobs"}
    labels |= {name: f"among {count:,} {name} jobs" for name, count in crowds.items()}
    found = [_finding(samples, name, labels[name], figure) for name in racers for figure in (RATE, CPU, SERVER_CPU)]
    jobs = options.rounds * options.jobs
    return [*found, Finding(labels[EMPTY], f"growth of the worker over {jobs:,} jobs, MB", f"{growth:.1f}")]


def _warm_up(options: argparse.Namespace) -> argparse.Namespace:
    return argparse.Namespace(jobs=options.jobs // 10, lane_jobs=options.lane_jobs // 10)


def _drain(name: str, racer: Process, meter: Meter, options: argparse.Namespace, samples: Samples) -> None:
    jobs = options.lane_jobs if name == LANES else options.jobs
    racer.perform("lanes" if name == LANES else "bulk", jobs, 1000)
    before = meter.read()
    answer = racer.perform("drain")
    used = meter.read().since(before)
    if answer["jobs"] != jobs:
        raise RuntimeError(f"{name}: drained {answer['jobs']} of {jobs} jobs")
    samples.add(name, RATE, jobs / answer["seconds"])
    samples.add(name, CPU, answer["cpu"] / jobs * 1e6)
    samples.add(name, SERVER_CPU, used.cpu_s / jobs * 1e6)


def _memory_mb(racer: Process) -> float:
    return float(psutil.Process(racer.pid).memory_info().rss / 1024**2)


def _finding(samples: Samples, name: str, label: str, figure: str) -> Finding:
    spread = samples.spread(name, figure)
    assert spread is not None
    ratio = samples.ratio(name, EMPTY, figure) if name != EMPTY else None
    target = FLAT if figure == RATE else ""
    return Finding(label, f"drain by one worker, {figure}", f"{spread.middle:,.0f}", ratio, target)


def _vacuum(server: PostgresServer, names: list[str]) -> None:
    """Not on the millions of rows that no round has changed: the tables of live jobs are small."""
    for name in names:
        with psycopg.connect(server.url(name), autocommit=True) as connection:
            connection.execute("VACUUM ANALYZE holdfast.live")
            connection.execute("CHECKPOINT")
