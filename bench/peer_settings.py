"""Which settings serve each peer best: ``python -m bench.peer_settings [PEER …] [--rounds 3] [--jobs 10000]``.

One worker drains no-ops with each setting in turn, each in a database of its own. The racers have the best as their
defaults; docs/performance.md names them.
"""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

import psycopg
from tests.support.postgres import bundled_programs, running

from bench.comparison import SETTINGS
from bench.samples import Samples
from bench.systems import HOLDFAST, System, present

#: The first of each is the default of the racer.
TRIED: dict[str, list[dict[str, Any]]] = {
    HOLDFAST: [{}, {"slots": 4}, {"slots": 32}],
    "PgQueuer": [{}, {"batch": 100}, {"batch": 300}, {"batch": 3000}],
    "Procrastinate": [{}, {"concurrency": 10}, {"concurrency": 30}, {"concurrency": 300}, {"pool": 5}, {"pool": 50}],
    "oban-py": [{}, {"limit": 500}, {"limit": 1000}, {"debounce": 0.005}, {"debounce": 0.05}],
    "Awa": [
        *({}, {"workers": 256}, {"workers": 4096}, {"claimers": 1}, {"claimers": 4}, {"claim": 128}, {"claim": 1024}),
        *({"connections": 10}, {"poll": 200}),
    ],
}


def attempt(system: System, options: argparse.Namespace) -> None:
    """Print the rate and the CPU of a drain with each setting."""
    samples, jobs = Samples(), int(options.jobs * system.share)
    with running(bundled_programs(), settings=SETTINGS) as server:
        racers = {}
        for place, setting in enumerate(TRIED[system.name]):
            with psycopg.connect(server.url(), autocommit=True) as connection:
                connection.execute(f"CREATE DATABASE trial_{place}".encode())
            racers[json.dumps(setting)] = system.start(server.url(f"trial_{place}"), json.dumps(setting))
        for turn in range(options.rounds + 1):
            for setting, racer in racers.items():
                racer.perform("bulk", jobs, 1000)
                answer = racer.perform("drain")
                samples.add(setting, "rate", answer["jobs"] / answer["seconds"])
                samples.add(setting, "cpu", answer["cpu"] / answer["jobs"] * 1e6)
            if turn == 0:
                samples.clear()
        for racer in racers.values():
            racer.close()
    for setting in racers:
        rate, cpu = samples.spread(setting, "rate"), samples.spread(setting, "cpu")
        assert rate is not None
        assert cpu is not None
        print(
            f"{system.name:14}{setting:24}{rate.middle:>8,.0f} a second ({rate.low:,.0f} to {rate.high:,.0f}),"
            f" {cpu.middle:,.0f} µs of CPU a job",
            flush=True,
        )


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("peers", nargs="*")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=10_000)
    options = parser.parse_args(arguments)
    for system in present()[0]:
        if system.name in (options.peers or TRIED):
            attempt(system, options)


if __name__ == "__main__":
    main(sys.argv[1:])
