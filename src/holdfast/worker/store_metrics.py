"""Metrics of the store: read in a thread of their own, so that a scrape never waits for the store."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator

import msgspec
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from holdfast.domain.batches.batch import BatchState
from holdfast.domain.fleet.lost_workers import REPORTED_FOR, unreplaced
from holdfast.domain.fleet.queue import WORKER_SILENCE, serves_queue
from holdfast.errors import StoreFull
from holdfast.store import Store
from holdfast.store.fleet.dashboard import LaneCount
from holdfast.store.fleet.registry import WorkerRow
from holdfast.worker import clock

log = logging.getLogger("holdfast")

#: A scrape waits this long for new values; then it has those of the last read.
SCRAPE_WAIT_S = 0.5
#: A read that takes longer means that the store does not answer.
SLOW_READ_S = 5.0
#: A read that takes longer is given up, and another one begins: every call to the store has a shorter limit.
STUCK_READ_S = 120.0
#: Values that are older are left out: the store has other ones by now.
MAX_AGE_S = 60.0
#: What needs a connection of its own is read this often. A server without a free one keeps its last values for longer.
SERVER_INTERVAL_S, MAX_SERVER_AGE_S = 60.0, 600.0
#: Counts of jobs stop here.
COUNT_CAP = 10_000
#: States of batches that have not ended.
UNENDED = (BatchState.READY, BatchState.RUNNING)

#: Values by the values of their labels.
Values = Iterable[tuple[tuple[str, ...], float]]


class StoreMetrics(Collector):
    """Keeps the values of the last read. Every scrape starts a read, unless one is running.

    All processes of a store report the same values: aggregate them by maximum, not by sum.
    """

    def __init__(
        self,
        store: Callable[[], Store],
        *,
        queues: Callable[[], Collection[str]] = tuple,
        more: Callable[[Store], Iterable[Metric]] = lambda _: (),
    ) -> None:
        """*queues* are reported although no job is in them; *more* reads further metrics."""
        self._store = store
        self._more = more
        self._queues = queues
        self._lock = threading.Lock()
        self._finished = threading.Event()
        #: When the running read started.
        self._began_at: float | None = None
        self._read_at = -MAX_AGE_S
        self._values: list[Metric] = []
        self._server_tried_at = -SERVER_INTERVAL_S
        self._server_at = -MAX_SERVER_AGE_S
        self._server: list[Metric] = []
        self._up = True

    def collect(self) -> Iterator[Metric]:
        """The newest values, after :data:`SCRAPE_WAIT_S` at most."""
        self._start_read()
        self._finished.wait(SCRAPE_WAIT_S)
        with self._lock:
            began_at, values, age = self._began_at, self._values, clock.now() - self._read_at
            server, server_age = self._server, clock.now() - self._server_at
            up = self._up and (began_at is None or clock.now() - began_at < SLOW_READ_S)
        yield gauge("store_up", "1 if the store answers this process.", [], [((), float(up))])
        if server_age < MAX_SERVER_AGE_S:
            yield from server
        if age < MAX_AGE_S:
            yield gauge("store_age_seconds", "Age of the values of the store.", [], [((), age)])
            yield from values

    def _start_read(self) -> None:
        with self._lock:
            if self._began_at is not None and clock.now() - self._began_at < STUCK_READ_S:
                return
            self._began_at = clock.now()
            self._finished.clear()
        threading.Thread(target=self._read, name="holdfast-store-metrics", daemon=True).start()

    def _read(self) -> None:
        try:
            store = self._store()
            values = [*read_store(store, self._queues()), *self._more(store)]
        except Exception as error:  # noqa: BLE001 - the scrape reports any error
            log.warning("reading the metrics of the store failed: %s", error)
            values = None
        with self._lock:
            self._began_at, self._up = None, values is not None
            if values is not None:
                self._values, self._read_at = values, clock.now()
        self._read_server()
        self._finished.set()

    def _read_server(self) -> None:
        """Read what a full disk and a full server show, also while other calls fail."""
        with self._lock:
            if clock.now() - self._server_tried_at < SERVER_INTERVAL_S:
                return
            self._server_tried_at = clock.now()
        try:
            server = list(read_server(self._store()))
        except StoreFull:
            server = [disk_full(True)]
        except Exception as error:  # noqa: BLE001 - the scrape reports any error
            log.warning("reading the metrics of the server failed: %s", error)
            return
        with self._lock:
            self._server, self._server_at = server, clock.now()


def read_server(store: Store) -> Iterator[Metric]:
    """Read whether the disk of the store is full, and the connections to its server."""
    yield disk_full(store.database.tools.is_disk_full())
    uses = store.database.tools.connection_use()
    text = "Connections in use: of the server, the database and the user, where they have a limit."
    yield gauge("server_connections", text, ["scope"], [((use.scope,), float(use.used)) for use in uses])
    limits = [((use.scope,), float(use.limit)) for use in uses]
    yield gauge("server_connections_limit", "Limit of these connections.", ["scope"], limits)


def disk_full(full: bool) -> Metric:  # noqa: FBT001 - the value of a gauge
    return gauge("store_disk_full", "1 if the disk of the store has no room; healthy: 0.", [], [((), float(full))])


def read_store(store: Store, queues: Collection[str] = ()) -> Iterator[Metric]:
    """Read all metrics of a store, with a constant number of statements."""
    began_at = clock.now()
    store.schedules.now()
    latency = clock.now() - began_at
    yield gauge("store_latency_seconds", "Response time of the store.", [], [((), latency)])
    seen, lanes = store.workers.list(silence=REPORTED_FOR), store.dashboard.lanes(cap=COUNT_CAP)
    workers = [worker for worker in seen if worker.silent_for < WORKER_SILENCE]
    yield gauge("workers_alive", "Workers that are alive.", [], [((), float(len(workers)))])
    lost = unreplaced([worker for worker in seen if worker.silent_for >= WORKER_SILENCE], workers)
    text = "Workers lost within the last hour that no later worker of the same queues has replaced; healthy: 0."
    yield gauge("workers_lost", text, [], [((), float(len(lost)))])
    lag = store.schedules.lag().total_seconds()
    yield gauge("schedule_lag_seconds", "Time that the oldest due plan has waited for a planner.", [], [((), lag)])
    tallies = store.dashboard.tallies(cap=COUNT_CAP, most=0)
    jobs = [((str(tally.state),), float(tally.count)) for tally in tallies if tally.slot == -1]
    yield gauge("jobs", "Jobs by state, counted up to 10,000.", ["state"], jobs)
    ends = store.ledger.count_ends()
    # Every state has a value, also 0: an increase from a missing one would be invisible.
    rows = [((str(state),), float(ends.get(state, 0))) for state in BatchState if state not in UNENDED]
    yield counter("batches_completed", "Batches that ended, by the state in which they did.", ["result"], rows)
    trouble = store.dashboard.trouble()
    overdue = Counter((each.detail or "",) for each in trouble if each.category == "overdue")
    yield gauge("overdue_runs", "Runs that go on after their timeout; healthy: 0.", ["worker"], overdue.items())
    unreadable = [((each.name,), float(each.count)) for each in trouble if each.category == "unreadable"]
    yield gauge("unreadable_jobs", "Jobs that no live worker can read, up to 1,000; healthy: 0.", ["kind"], unreadable)
    yield from _queues(store, lanes, workers, queues)


def _queues(store: Store, lanes: list[LaneCount], alive: list[WorkerRow], served: Collection[str]) -> Iterator[Metric]:
    active = {queue.name: queue for queue in store.dashboard.queues(cap=COUNT_CAP)}
    ready = Counter[str]()
    for lane in lanes:
        ready[lane.queue] += lane.ready
    # Lanes know only their first priorities, and jobs of the last ones wait longest.
    oldest = store.queues.oldest_ready(sorted(ready), sorted({lane.kind for lane in lanes}))
    names = sorted({*served, *active, *ready})
    depth: dict[tuple[str, ...], float] = {(name, "ready"): ready[name] for name in names}
    depth |= {(name, "running"): active[name].running if name in active else 0.0 for name in names}
    yield gauge("queue_depth", "Jobs in a queue, counted up to 10,000.", ["queue", "state"], depth.items())
    ages = [((name,), oldest[name].total_seconds() if name in oldest else 0.0) for name in names]
    yield gauge("queue_oldest_ready_seconds", "Time that the oldest ready job has waited.", ["queue"], ages)
    paused = {name for name, queue in active.items() if queue.paused}
    yield gauge("queue_paused", "1 if the queue is paused.", ["queue"], [((name,), name in paused) for name in names])
    unserved = [
        ((lane.queue, lane.kind), lane.waited.total_seconds())
        for lane in unserved_lanes(lanes, alive)
        if lane.queue not in paused
    ]
    text = "Time that the oldest ready job without a live worker has waited."
    yield gauge("unserved_seconds", text, ["queue", "kind"], unserved)
    expired = float(sum(queue.expired for queue in active.values()))
    yield gauge("running_expired", "Running jobs whose lease has expired; healthy: 0.", [], [((), expired)])


def unserved_lanes(lanes: Iterable[LaneCount], workers: Iterable[WorkerRow]) -> list[LaneCount]:
    """The lanes whose queue and kind no worker serves."""
    served = [(msgspec.json.decode(worker.queues), msgspec.json.decode(worker.kinds)) for worker in workers]
    return [
        lane
        for lane in lanes
        if not any(serves_queue(queues, lane.queue) and lane.kind in kinds for queues, kinds in served)
    ]


def counter(name: str, text: str, labels: list[str], values: Values) -> Metric:
    family = CounterMetricFamily(f"holdfast_{name}", text, labels=labels)
    for label_values, value in list(values):
        family.add_metric(label_values, value)
    return family


def gauge(name: str, text: str, labels: list[str], values: Values) -> Metric:
    family = GaugeMetricFamily(f"holdfast_{name}", text, labels=labels)
    for label_values, value in values:
        family.add_metric(label_values, value)
    return family
