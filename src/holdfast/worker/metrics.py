"""The HTTP endpoint of a worker for metrics and health."""

from __future__ import annotations

import hmac
import os
import socket
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import accumulate
from socketserver import TCPServer
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from holdfast.domain.access.masking import mask_text
from holdfast.domain.names import is_loopback, parse_address
from holdfast.domain.schedules.decision import SkipReason
from holdfast.errors import ConfigurationError
from holdfast.store import Store
from holdfast.store.engine.forks import close_in_forks
from holdfast.worker.stats import Histogram
from holdfast.worker.store_metrics import StoreMetrics, Values, counter, gauge

if TYPE_CHECKING:  # the dashboard reads addresses here, and runs no worker
    from holdfast.worker.worker import Worker

TOKEN = "HOLDFAST_METRICS_TOKEN"  # noqa: S105 - a variable name
#: A client that sends nothing for this long is disconnected, in seconds. Never the default of the program.
SILENT_CLIENT_S = 60.0


class WorkerCollector(Collector):
    """Reads the counts of one worker from memory at each scrape, and the metrics of its store."""

    def __init__(self, worker: Worker, store: Store) -> None:
        self._worker = worker
        self._store = store
        self._store_metrics = StoreMetrics(lambda: store, queues=lambda: worker.served.queues)

    def collect(self) -> Iterable[Metric]:
        counts = self._worker.counts
        yield counter("ticks", "Ticks of the worker's services.", ["service", "result"], counts.ticks.items())
        completed = counts.completed.items()
        yield counter("jobs_completed", "Finished runs of jobs, by result.", ["queue", "kind", "result"], completed)
        yield counter("jobs_enqueued", "Jobs that the jobs of this worker enqueued.", [], _one(counts.enqueued))
        yield counter("lease_lost", "Leases lost while a handler ran.", [], _one(counts.lost))
        yield counter("fence_rejected", "Outcomes refused because the job had a new holder.", [], _one(counts.refused))
        rows = _by_label(counts.maintained)
        yield counter("maintenance_rows", "Rows that maintenance moved or deleted.", ["table"], rows)
        yield _histogram("job_wait_seconds", "Time between due and start of a job.", ["queue", "kind"], counts.waits)
        yield _histogram("job_run_seconds", "Run time of jobs.", ["queue", "kind"], counts.runs)
        yield counter("units", "Finished units of batches, by result.", ["kind", "result"], counts.units.items())
        labels: Counter[tuple[str, ...]] = Counter()
        for (kind, label), count in list(counts.unit_labels.items()):
            labels[kind, mask_text(label)] += count
        yield counter("unit_labels", "Finished units of batches, by label.", ["kind", "label"], labels.items())
        yield _histogram("unit_seconds", "Run time of units.", ["kind"], counts.unit_runs)
        yield counter("plans", "Plans that fired or were skipped.", ["decision"], _by_label(counts.plans))
        # Every reason has a value, also 0: an increase from a missing one would be invisible.
        missed = _by_label(dict.fromkeys(map(str, SkipReason), 0.0) | counts.missed)
        yield counter("plans_missed", "Plans that did not fire, by reason.", ["reason"], missed)
        yield counter("schedules_set_back", "Failed attempts to plan a schedule.", [], _one(counts.set_back))
        calls = _by_label(counts.scope_calls)
        yield gauge("scope_calls", "Calls of scope functions that have not returned yet.", ["state"], calls)
        yield _histogram("planner_seconds", "Duration of a tick of the planner.", [], counts.planner)
        yield gauge("heartbeat_age_seconds", "Age of the last heartbeat.", [], _one(self._worker.health.heartbeat_age))
        yield from self._standing()
        yield from self._connections()
        yield from self._store_metrics.collect()

    def _standing(self) -> Iterator[Metric]:
        """The activity of the worker: these gauges alone show which worker is stuck, and in which service."""
        worker, health = self._worker, self._worker.health
        labels = {"worker": worker.id, "version": health.version or "", "build": worker.served.build}
        info = [(tuple(labels.values()), 1.0)]
        yield gauge("worker_info", "The worker, the version of its code, and its build.", list(labels), info)
        yield gauge("worker_ready", "1 if it can claim jobs, as /readyz reports.", [], _one(health.not_ready() is None))
        yield gauge("slots", "Maximum number of jobs at the same time.", [], _one(health.slots))
        yield gauge("slots_busy", "Jobs that the worker is running.", [], _one(worker.running))
        oldest = health.oldest_runs().items()
        yield gauge("oldest_run_seconds", "Age of the oldest run.", ["queue", "kind"], oldest)
        ages = _by_label(health.tick_ages())
        yield gauge("tick_age_seconds", "Time since the last tick of a service.", ["service"], ages)
        yield gauge("notifier_up", "1 if notifications of new jobs arrive.", [], _one(health.is_notified))

    def _connections(self) -> Iterator[Metric]:
        """Connections to PostgreSQL. With SQLite there are none to count."""
        pool = self._store.backend.pool_stats()
        rows = _by_label(pool.connections)
        yield gauge("connections", "Connections of this process to PostgreSQL.", ["state"], rows)
        yield gauge("connections_limit", "Maximum number of connections.", [], _one(pool.limit))
        yield counter("pool_waits", "Calls that waited for a connection.", [], _one(pool.waits))
        yield counter("pool_wait_seconds", "Time spent waiting for a connection.", [], _one(pool.wait_seconds))


class MetricsServer:
    """``/metrics``, ``/livez`` and ``/readyz`` on one address.

    Beyond the loopback, ``/metrics`` requires the bearer token in ``HOLDFAST_METRICS_TOKEN``.
    """

    def __init__(self, address: str, worker: Worker, store: Store) -> None:
        host, port = parse_address(address)
        token = os.environ.get(TOKEN) or None
        if token is None and not is_loopback(host):
            hint = f"Set {TOKEN}, or listen on 127.0.0.1."
            raise ConfigurationError(f"metrics on {host} would be open to everyone", hint=hint)
        registry = CollectorRegistry(auto_describe=False)
        registry.register(WorkerCollector(worker, store))
        pages: dict[str, Callable[[], tuple[int, bytes]]] = {
            "/metrics": lambda: (200, generate_latest(registry)),
            "/livez": lambda: _health(worker.health.not_alive()),
            "/readyz": lambda: _health(worker.health.not_ready()),
        }
        try:
            kind = _Server6 if ":" in host else _Server
            self._server = kind((host, port), _handler(pages, token))
        except OSError as error:
            hint = "Is another worker using the port? Port 0 takes any that is free."
            raise ConfigurationError(f"cannot listen on {address}: {error}", hint=hint) from None
        close_in_forks(self._server.socket)
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, name="holdfast-metrics", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(2)


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A scraper that hangs up is no error of this worker."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)

    def server_bind(self) -> None:
        """Bind without the look-up of the host name, which may query the network."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]


class _Server6(_Server):
    address_family = socket.AF_INET6


def _health(problem: str | None) -> tuple[int, bytes]:
    return (200, b"ok\n") if problem is None else (503, f"not ok: {mask_text(problem)}\n".encode())


def _handler(pages: dict[str, Callable[[], tuple[int, bytes]]], token: str | None) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = SILENT_CLIENT_S

        def do_GET(self) -> None:
            page = pages.get(self.path.partition("?")[0])
            if page is None:
                self._answer(404, b"not found\n")
            elif self.path.startswith("/metrics") and not self._allowed():
                self._answer(401, b"a bearer token is needed\n")
            else:
                self._answer(*page())

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name in the base class
            del format, args

        def _allowed(self) -> bool:
            received = (self.headers.get("Authorization") or "").removeprefix("Bearer ")
            return token is None or hmac.compare_digest(received.encode(), token.encode())

        def _answer(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    return Handler


def _one(value: float) -> Values:
    return [((), value)]


def _by_label(counts: Mapping[str, float]) -> Values:
    return [((label,), count) for label, count in counts.items()]


def _histogram(name: str, text: str, labels: list[str], histogram: Histogram) -> Metric:
    family = HistogramMetricFamily(f"holdfast_{name}", text, labels=labels)
    bounds = [*map(str, histogram.buckets), "+Inf"]
    for label_values, counts in list(histogram.counts.items()):
        buckets = list(zip(bounds, accumulate(counts), strict=True))
        family.add_metric(label_values, buckets, histogram.sums[label_values])
    return family
