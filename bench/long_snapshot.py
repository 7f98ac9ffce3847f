"""Throughput while another session holds a snapshot open, so that no dead row can be removed.

One worker drains what a producer sends, at its highest rate, with 5,000 to 20,000 jobs waiting. After a clean time a
transaction of REPEATABLE READ begins in the same database, and stays. Autovacuum is on. The systems take turns, or run
at the same time on a server each, where half an hour each would be too long.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

import psycopg

from bench.racer import Tally
from bench.samples import Spread
from bench.situation import FLAT, Finding, server_of
from bench.systems import HOLDFAST, SYSTEMS, System

STARTUP_S = 3
#: The last part of the pinned time is compared with the clean time; both are at most this long.
COMPARED_S = 60


def measure(options: argparse.Namespace) -> list[Finding]:
    systems = [system for system in SYSTEMS if system.name in (HOLDFAST, "PgQueuer")]
    with ThreadPoolExecutor(len(systems) if options.together else 1) as threads:
        return [*threads.map(lambda system: _measured(system, options), systems)]


def _measured(system: System, options: argparse.Namespace) -> Finding:
    clean, pinned = _windows(system, options)
    last = statistics.mean(pinned[-max(1, round(COMPARED_S / options.window)) :][-len(clean) :])
    first, whole = statistics.mean(clean), statistics.mean(pinned)
    ratio = last / first
    label = f"a snapshot open for {options.pinned:.0f} s"
    value = f"{first:,.0f} before, {whole:,.0f} with it, {last:,.0f} at the end"
    return Finding(label, f"{system.name}: jobs a second, one worker", value, Spread(ratio, ratio, ratio), FLAT)


def _windows(system: System, options: argparse.Namespace) -> tuple[list[float], list[float]]:
    """Jobs a second of each window, before the snapshot and after."""
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
        print(f"  {system.name}: clean {_text(clean)}, pinned {_text(pinned)}", flush=True)
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
