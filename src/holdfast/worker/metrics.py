"""Metrics and health of a worker, over HTTP."""

from __future__ import annotations

import hmac
import ipaddress
import os
import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import accumulate
from socketserver import TCPServer

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from holdfast.errors import ConfigurationError, HoldfastError, InvalidInput
from holdfast.store import Store
from holdfast.worker.stats import Spread
from holdfast.worker.worker import Worker

TOKEN = "HOLDFAST_METRICS_TOKEN"  # noqa: S105 - the name of a variable


class WorkerCollector(Collector):
    """Reads the worker's own counts, and the queues that it serves, when somebody asks.

    Every worker tells what it did itself, so that sums over workers are right. The depth of a
    queue is the store's: all workers tell the same, so take the maximum, not the sum.
    """

    def __init__(self, worker: Worker, store: Store) -> None:
        self._worker = worker
        self._store = store

    def collect(self) -> Iterable[Metric]:
        counts = self._worker.counts
        yield _counter("ticks", "Ticks of the worker's parts.", ["part", "result"], counts.ticks.items())
        yield _counter(
            "jobs_completed", "Runs by how they ended.", ["queue", "kind", "result"], counts.completed.items()
        )
        yield _counter("jobs_enqueued", "Children enqueued by jobs of this worker.", [], [((), counts.enqueued)])
        yield _counter("lease_lost", "Leases lost while a handler ran.", [], [((), counts.lost)])
        yield _counter("fence_rejected", "Outcomes refused: the job had a new holder.", [], [((), counts.refused)])
        swept = [((table,), count) for table, count in counts.swept.items()]
        yield _counter("swept_rows", "Rows that the sweep had to move or remove.", ["table"], swept)
        yield _histogram("job_wait_seconds", "From being due to being begun.", ["queue", "kind"], counts.waits)
        yield _histogram("job_run_seconds", "From begin to end of a run.", ["queue", "kind"], counts.runs)
        yield _counter("units", "Units of batches by how they ended.", ["kind", "result"], counts.units.items())
        yield _histogram("unit_seconds", "From begin to end of a unit.", ["kind"], counts.unit_runs)
        finished = [((state,), count) for state, count in counts.batches.items()]
        yield _counter("batches_completed", "Batches whose last shard ended here.", ["result"], finished)
        decided = [((decision,), count) for decision, count in counts.plans.items()]
        yield _counter("plans", "Plans that were fired, or skipped.", ["decision"], decided)
        missed = [((reason,), count) for reason, count in counts.missed.items()]
        yield _counter("plans_missed", "Plans that were not fired, and why.", ["reason"], missed)
        yield _counter("schedules_set_back", "Failed tries to plan a schedule.", [], [((), counts.set_back)])
        yield _histogram("planner_seconds", "From begin to end of a planner's tick.", [], counts.planner)
        yield gauge("heartbeat_age_seconds", "Since the last heartbeat.", [], [((), self._worker.heartbeat_age)])
        yield from self._queues()

    def _queues(self) -> Iterator[Metric]:
        try:
            depths = self._store.queues.depths(self._worker.queues)
            ages = self._store.queues.oldest_ready(self._worker.queues, self._worker.kinds)
            lag = self._store.schedules.lag().total_seconds()
        except HoldfastError:
            return  # the store is gone for now: what the worker knows by itself is still told
        depth = [((found.queue, "ready"), found.ready) for found in depths]
        depth += [((found.queue, "running"), found.running) for found in depths]
        yield gauge("queue_depth", "Jobs in a queue, counted up to 10,000.", ["queue", "state"], depth)
        oldest = [((name,), ages[name].total_seconds() if name in ages else 0.0) for name in self._worker.queues]
        yield gauge("queue_oldest_ready_seconds", "How long the oldest ready job has waited.", ["queue"], oldest)
        yield gauge("schedule_lag_seconds", "How long the oldest due plan has waited for a planner.", [], [((), lag)])
        expired = sum(found.expired for found in depths)
        yield gauge("running_lapsed", "Running jobs whose lease has lapsed; healthy: 0.", [], [((), expired)])


class MetricsServer:
    """``/metrics``, ``/livez`` and ``/readyz`` on one address.

    Beyond the loopback a token is asked for: ``HOLDFAST_METRICS_TOKEN``, sent as a bearer token.
    Health needs none.
    """

    def __init__(self, address: str, worker: Worker, store: Store) -> None:
        host, port = parse_address(address)
        token = os.environ.get(TOKEN) or None
        if token is None and not is_loopback(host):
            raise ConfigurationError(
                f"metrics on {host} would be open to everyone", hint=f"Set {TOKEN}, or listen on 127.0.0.1."
            )
        registry = CollectorRegistry(auto_describe=False)
        registry.register(WorkerCollector(worker, store))
        pages: dict[str, Callable[[], tuple[int, bytes]]] = {
            "/metrics": lambda: (200, generate_latest(registry)),
            "/livez": lambda: _health(worker.alive),
            "/readyz": lambda: _health(worker.ready),
        }
        try:
            kind = _Server6 if ":" in host else _Server
            self._server = kind((host, port), _handler(pages, token))
        except OSError as error:
            hint = "Is another worker using the port? Port 0 takes any that is free."
            raise ConfigurationError(f"cannot listen on {address}: {error}", hint=hint) from None
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, name="holdfast-metrics", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(2)


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def server_bind(self) -> None:
        """Without the look-up of the host's name, which may ask the network."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]


class _Server6(_Server):
    address_family = socket.AF_INET6


def parse_address(address: str) -> tuple[str, int]:
    """``HOST:PORT`` as two values; ``:PORT`` alone is the loopback."""
    host, _, port = address.rpartition(":")
    if not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise InvalidInput(f"{address!r} is no HOST:PORT", hint="For example 127.0.0.1:9100.")
    return host.strip("[]") or "127.0.0.1", int(port)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _health(well: bool) -> tuple[int, bytes]:  # noqa: FBT001 - the answer itself
    return (200, b"ok\n") if well else (503, b"not ok\n")


def _handler(pages: dict[str, Callable[[], tuple[int, bytes]]], token: str | None) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            page = pages.get(self.path.partition("?")[0])
            if page is None:
                self._answer(404, b"not found\n")
            elif self.path.startswith("/metrics") and not self._allowed():
                self._answer(401, b"a bearer token is needed\n")
            else:
                self._answer(*page())

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's own name
            del format, args

        def _allowed(self) -> bool:
            given = (self.headers.get("Authorization") or "").removeprefix("Bearer ")
            return token is None or hmac.compare_digest(given.encode(), token.encode())

        def _answer(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    return Handler


Values = Iterable[tuple[tuple[str, ...], float]]


def _counter(name: str, text: str, labels: list[str], values: Values) -> Metric:
    family = CounterMetricFamily(f"holdfast_{name}", text, labels=labels)
    for found, value in list(values):
        family.add_metric(found, value)
    return family


def gauge(name: str, text: str, labels: list[str], values: Values) -> Metric:
    """A metric that goes up and down, with its values by labels."""
    family = GaugeMetricFamily(f"holdfast_{name}", text, labels=labels)
    for found, value in values:
        family.add_metric(found, value)
    return family


def _histogram(name: str, text: str, labels: list[str], spread: Spread) -> Metric:
    family = HistogramMetricFamily(f"holdfast_{name}", text, labels=labels)
    for found, counts in list(spread.counts.items()):
        bounds = [*map(str, spread.buckets), "+Inf"]
        family.add_metric(found, list(zip(bounds, accumulate(counts), strict=True)), spread.sums[found])
    return family
