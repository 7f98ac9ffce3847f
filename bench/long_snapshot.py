"""Throughput while another session holds a snapshot open, so that no dead row can be removed.

One worker drains what a producer sends, at its highest rate, with 5,000 to 20,000 jobs waiting. After a clean time a
transaction of REPEATABLE READ begins in the same database, and stays. Autovacuum is on. The systems take turns.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time

import psycopg

from bench.racer import Tally
from bench.samples import Spread
from bench.situation import FLAT, Finding, server_of
from bench.systems import HOLDFAST, SYSTEMS

STARTUP_S = 3
#: The last part of the pinned time is compared with the clean time; both are at most this long.
COMPARED_S = 60


def measure(options: argparse.Namespace) -> list[Finding]:
    found = list[Finding]()
    for system in SYSTEMS:
        if system.name in (HOLDFAST, "PgQueuer"):
            clean, pinned = _windows(system.name, options)
            print(f"  {system.name}: clean {_text(clean)}, pinned {_text(pinned)}", flush=True)
            last = statistics.mean(pinned[-max(1, round(COMPARED_S / options.window)) :][-len(clean) :])
            first = statistics.mean(clean)
            ratio = last / first
            label = f"a snapshot open for {options.pinned:.0f} s"
            value = f"{first:,.0f} before, {last:,.0f} at the end"
            found.append(
                Finding(label, f"{system.name}: jobs a second, one worker", value, Spread(ratio, ratio, ratio), FLAT)
            )
    return found


def _windows(name: str, options: argparse.Namespace) -> tuple[list[float], list[float]]:
    """Jobs a second of each window, before the snapshot and after."""
    system = next(system for system in SYSTEMS if system.name == name)
    with server_of(system.database) as server, tempfile.NamedTemporaryFile(prefix="holdfast-tally-") as file:
        url, settings = server.url(system.database), json.dumps({"tally": file.name})
        worker, producer = system.start(url, settings), system.start(url, settings)
        seconds = round(STARTUP_S + options.clean + options.pinned + options.window)
        for process, act in ((worker, "work"), (producer, "feed")):
            process.order(act=act, count=seconds, size=1)
        time.sleep(STARTUP_S)
        tally = Tally(file.name)
        clean = _observe(tally, options.clean, options.window)
        with psycopg.connect(url) as reader:
            reader.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            reader.execute("SELECT 1 FROM pg_class LIMIT 1").fetchall()
            pinned = _observe(tally, options.pinned, options.window)
        for process in (producer, worker):
            process.answer()
            process.close()
    return clean, pinned


def _observe(tally: Tally, seconds: float, window: float) -> list[float]:
    rates = []
    done, moment = tally.read(), time.monotonic()
    for _ in range(max(1, round(seconds / window))):
        time.sleep(window)
        now, reached = time.monotonic(), tally.read()
        rates.append((reached - done) / (now - moment))
        done, moment = reached, now
    return rates


def _text(rates: list[float]) -> str:
    return " ".join(f"{rate:,.0f}" for rate in rates)
