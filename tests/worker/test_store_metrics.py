"""The metrics of the store: from memory, whatever the store does; the worst faults fire an alert."""

from __future__ import annotations

import os
import shutil
import socket
import struct
import threading
import time
from contextlib import ExitStack, closing

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

import holdfast
from holdfast.domain.jobs.job import WorkerId
from holdfast.domain.jobs.verdict import Unreadable
from holdfast.store import open_store
from holdfast.worker.metrics import MetricsServer, WorkerCollector
from holdfast.worker.store_metrics import StoreMetrics
from tests.chaos.sites import fill_disk, small_disk
from tests.cli.ops.test_worker import APP, fetch
from tests.support.alerts import firing
from tests.support.jobs import put, take_one
from tests.support.postgres import QUICK, bundled_programs, running
from tests.support.processes import wait_until
from tests.support.program import program
from tests.support.programs import cli_jobs
from tests.support.proxy import proxy_to

pytestmark = pytest.mark.usefixtures("patient_scrapes")
needs_promtool = pytest.mark.skipif(shutil.which("promtool") is None, reason="make services installs promtool")


def text_of(collector):
    registry = CollectorRegistry(auto_describe=False)
    registry.register(collector)
    return generate_latest(registry).decode()


def values(text, name):
    """The values of a metric by its labels, sorted."""
    families = text_string_to_metric_families(text)
    samples = [sample for family in families for sample in family.samples if sample.name == f"holdfast_{name}"]
    return {tuple(sample.labels[label] for label in sorted(sample.labels)): sample.value for sample in samples}


def announce(store, kinds=("mail",)):
    store.workers.announce(WorkerId("w"), host="h", pid=1, queues=["default"], kinds=[*kinds], version=None)


@needs_promtool
def test_dead_workers_are_alerted(store, clock, tmp_path):
    """E10.2: all workers were dead with 1,933 ready jobs, and nothing fired."""
    metrics = StoreMetrics(lambda: store)
    announce(store)
    put(store)
    assert firing(tmp_path, text_of(metrics)) == set()
    clock.advance(seconds=61)  # without a heartbeat
    text = text_of(metrics)
    assert (values(text, "workers_alive"), values(text, "jobs")["ready",]) == ({(): 0.0}, 1.0)
    assert firing(tmp_path, text) == {"HoldfastNoWorkers", "HoldfastWorkerDown"}


@needs_promtool
def test_a_lost_worker_is_alerted_although_others_live(store, clock, tmp_path):
    """O5: nothing fired, and no metric showed it."""
    metrics = StoreMetrics(lambda: store)
    announce(store)
    clock.advance(seconds=61)
    alive = {"host": "h", "pid": 2, "kinds": ["mail"], "version": None}
    store.workers.announce(WorkerId("other"), queues=["other"], **alive)
    text = text_of(metrics)
    assert (values(text, "workers_alive"), values(text, "workers_lost")) == ({(): 1.0}, {(): 1.0})
    assert firing(tmp_path, text) == {"HoldfastWorkerDown"}
    store.workers.announce(WorkerId("again"), queues=["default"], **alive)
    assert values(text_of(metrics), "workers_lost") == {(): 0.0}
    store.workers.announce(WorkerId("third"), queues=["default"], **alive)
    clock.advance(seconds=3601)
    assert values(text_of(metrics), "workers_lost") == {(): 0.0}


@needs_promtool
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small disk")
@pytest.mark.parametrize("backend", ["sqlite", "postgres"])
def test_a_full_disk_is_alerted(backend, tmp_path, monkeypatch):
    """O4, O9: every metric was as on a sound store."""
    monkeypatch.setattr("holdfast.worker.store_metrics.SERVER_INTERVAL_S", 0.0)
    with ExitStack() as stack:
        disk = stack.enter_context(small_disk(150 if backend == "postgres" else 8))
        url = f"sqlite:///{disk}/jobs.db"
        if backend == "postgres":
            url = stack.enter_context(running(bundled_programs(), settings=QUICK, root=disk)).url()
        store = stack.enter_context(closing(open_store(url)))
        metrics = StoreMetrics(lambda: store)
        assert values(text_of(metrics), "store_disk_full") == {(): 0.0}
        filling = fill_disk(disk)
        text = text_of(metrics)
        assert values(text, "store_disk_full") == {(): 1.0}
        assert "HoldfastStoreFull" in firing(tmp_path, text)
        filling.unlink()
        assert values(text_of(metrics), "store_disk_full") == {(): 0.0}


@needs_promtool
def test_a_limit_of_connections_is_alerted(postgres_database, tmp_path):
    """O10: the metric of connections counts one process."""
    execute = postgres_database.execute
    store = postgres_database.open()
    text = text_of(StoreMetrics(lambda: store))
    assert set(values(text, "server_connections")) == {("server",)}
    assert firing(tmp_path, text) == set()
    (name,) = execute("SELECT current_database()")[0]
    execute(f'ALTER DATABASE "{name}" CONNECTION LIMIT {int(values(text, "server_connections")["server",])}')
    try:
        text = text_of(StoreMetrics(lambda: store))
        assert set(values(text, "server_connections_limit")) == {("server",), ("database",)}
        assert firing(tmp_path, text) == {"HoldfastConnectionsNearLimit"}
    finally:
        execute(f'ALTER DATABASE "{name}" CONNECTION LIMIT -1')


@needs_promtool
def test_unserved_jobs_are_alerted(store, clock, tmp_path):
    """E10.2: a queue or a kind that no worker serves was silent for 35 minutes. A paused queue is."""
    put(store, kind="mail")
    put(store, kind="post")
    put(store, queue="later")
    put(store, queue="paused")
    store.queues.pause("paused")
    clock.advance(seconds=121)
    announce(store)
    text = text_of(StoreMetrics(lambda: store))
    assert values(text, "unserved_seconds") == {("mail", "later"): 121.0, ("post", "default"): 121.0}
    assert firing(tmp_path, text) == {"HoldfastUnserved"}


@needs_promtool
def test_jobs_that_wait_for_other_code_are_alerted(store, tmp_path):
    announce(store)
    put(store, kind_version=3)
    store.leases.settle(take_one(store, build="old"), Unreadable(error="no field `cc`", version=1, build="old"))
    text = text_of(StoreMetrics(lambda: store))
    assert values(text, "unreadable_jobs") == {("mail",): 1.0}
    assert firing(tmp_path, text) == {"HoldfastUnreadableJobs"}


@needs_promtool
def test_a_backlog_and_expired_leases_are_alerted(store, clock, tmp_path):
    put(store)
    put(store)
    take_one(store)
    clock.advance(minutes=16)
    announce(store)
    text = text_of(StoreMetrics(lambda: store))
    assert values(text, "queue_depth")["default", "running"] == values(text, "running_expired")[()] == 1.0
    assert firing(tmp_path, text) == {"HoldfastQueueWaits", "HoldfastExpiredLeases"}


def test_a_store_that_fails_is_down_and_its_old_values_go(store, monkeypatch):
    """Its last values are shown for a minute."""
    metrics = StoreMetrics(lambda: store)
    assert values(text_of(metrics), "store_up") == {(): 1.0}
    store.close()
    text = text_of(metrics)
    assert (values(text, "store_up"), values(text, "workers_alive")) == ({(): 0.0}, {(): 0.0})
    monkeypatch.setattr("holdfast.worker.store_metrics.MAX_AGE_S", 0.0)
    assert values(text_of(metrics), "workers_alive") == {}


def seconds_of_scrape(port, token):
    began = time.monotonic()
    status, text = fetch(port, "/metrics", token=token)
    assert status == 200, text
    return time.monotonic() - began, text


@needs_promtool
@pytest.mark.parametrize("line", [(*APP, "--metrics", "127.0.0.1:0"), ("web", "--listen", "127.0.0.1:0")], ids=str)
def test_a_black_hole_does_not_silence_metrics(postgres_database, tmp_path, line):
    """E10.2: a scrape took 15 s, and timed out. Now it takes less than one, and an alert fires."""
    store = postgres_database.open()
    put(store, kind="double")
    token = {"HOLDFAST_METRICS_TOKEN": "secret"}
    with proxy_to(postgres_database.url) as proxy, program(*line, url=proxy.uri, **token) as process:
        notice = process.said("metrics on port" if line[0] == "worker" else "the dashboard of")
        port = notice.split()[-1].rpartition(":")[2].strip("/") if line[0] == "web" else notice.split()[-1]
        wait_until(lambda: "holdfast_workers_alive" in fetch(port, "/metrics", token="secret")[1])
        proxy.black_hole()

        def fault_shows():
            taken, text = seconds_of_scrape(port, "secret")
            assert taken < 1.0
            return text if values(text, "store_up") == {(): 0.0} else None

        text = wait_until(fault_shows)
        assert "HoldfastStoreUnreachable" in firing(tmp_path, text)


def test_the_metrics_name_the_stuck_worker(real_database, tmp_path):
    """E10.3: which worker is stuck, and in what, is known from the metrics alone."""
    real_database.open()
    with holdfast.Holdfast(real_database.url) as app:
        for kind in cli_jobs.app.kinds.values():
            app._registry.add(kind)
        app.enqueue("deaf", {"path": str(tmp_path / "begun")})
        options = ("--slots", "1", "--grace", "1s", "--metrics", "127.0.0.1:0")
        with program(*APP, *options, url=real_database.url) as stuck:
            stuck_port = stuck.said("metrics on port").split()[-1]
            wait_until((tmp_path / "begun").exists)
            with program(*APP, *options, "--version", "9", url=real_database.url) as free:
                free_port = free.said("metrics on port").split()[-1]
                wait_until(lambda: values(fetch(free_port, "/metrics")[1], "worker_ready") == {(): 1.0})
                wait_until(
                    lambda: (
                        values(fetch(stuck_port, "/metrics")[1], "oldest_run_seconds").get(("deaf", "default"), 0) > 0.5
                    )
                )
                busy, idle = (fetch(port, "/metrics")[1] for port in (stuck_port, free_port))
        for text, used in ((busy, 1.0), (idle, 0.0)):
            assert (values(text, "slots"), values(text, "slots_busy")) == ({(): 1.0}, {(): used})
            assert values(text, "notifier_up") == {(): 1.0}
            assert {"claimer", "heartbeat", "maintenance", "planner"} <= {
                s for (s,) in values(text, "tick_age_seconds")
            }
        assert values(idle, "oldest_run_seconds") == {}
        assert [(version, worker[:1] != "") for _, version, worker in values(idle, "worker_info")] == [("9", True)]
        assert values(busy, "workers_alive") == {(): 2.0}


def test_pool_and_connections_are_metrics(postgres_database):
    """E10.3: its limit, and how long calls wait for a connection."""
    with holdfast.Holdfast(postgres_database.url) as app:
        app.job("mail")(lambda: None)
        text = text_of(WorkerCollector(app.worker(), app.store))
    assert {("abandoned",), ("idle",), ("in_use",)} == set(values(text, "connections"))
    assert values(text, "connections_limit")[()] > 1
    assert values(text, "pool_wait_seconds_total").keys() == values(text, "pool_waits_total").keys() == {()}
    assert values(text, "store_latency_seconds")[()] > 0


@pytest.mark.one_backend
def test_a_scraper_that_hangs_up_leaves_no_traceback(real_database, capfd, monkeypatch):
    """It hangs up while its answer is made: the worker's log had a BrokenPipeError."""
    hung_up, answered = threading.Event(), threading.Event()

    def make(_registry):
        assert hung_up.wait(60)
        return b"x" * 10_000_000

    def finish(_server, request):
        request.close()
        answered.set()

    monkeypatch.setattr("holdfast.worker.metrics.generate_latest", make)
    monkeypatch.setattr("holdfast.worker.metrics._Server.shutdown_request", finish)
    with holdfast.Holdfast(real_database.url) as app:
        server = MetricsServer("127.0.0.1:0", app.worker(), app.store)
        scraper = socket.create_connection(("127.0.0.1", server.port))
        scraper.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
        scraper.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # close with a reset
        scraper.close()
        hung_up.set()
        assert answered.wait(60)
        server.close()
    assert "Traceback" not in capfd.readouterr().err


@pytest.mark.one_backend  # databases of PostgreSQL serve several tests
def test_failing_ticks_are_counted(real_database):
    """E10.2: the planner cannot read its table."""
    with holdfast.Holdfast(real_database.url) as app:
        app.job("mail")(lambda: None)
        worker = app.worker()
        real_database.execute("ALTER TABLE holdfast.schedule RENAME TO elsewhere")
        worker.tick()
        text = text_of(WorkerCollector(worker, app.store))
    assert values(text, "ticks_total")["error", "planner"] == 1.0
    assert values(text, "store_up") == {(): 0.0}
