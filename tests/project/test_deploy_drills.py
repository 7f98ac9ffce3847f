"""Every alert rule in a real fault: what processes report then fires it, after the time that the guide says (E10.2)."""

from __future__ import annotations

import re
import shutil
import signal
import sys
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from urllib.error import URLError

import pytest

import holdfast
from holdfast.domain.jobs.job import WorkerId
from holdfast.worker import clock
from holdfast.worker.metrics import WorkerCollector
from holdfast.worker.schedules.planner import Planner
from holdfast.worker.service import TickResult
from tests.cli.ops.test_worker import APP, fetch
from tests.store.batches.test_batches import begin, take
from tests.store.batches.test_inbox import hand_over
from tests.support.alerts import Before, firing, rules
from tests.support.jobs import claim_jobs, put
from tests.support.processes import wait_until
from tests.support.program import program
from tests.support.programs import cli_jobs
from tests.support.proxy import proxy_to
from tests.worker.test_store_metrics import text_of, values

pytestmark = [
    pytest.mark.usefixtures("patient_scrapes"),
    pytest.mark.skipif(shutil.which("promtool") is None, reason="make services installs promtool"),
]
TOKEN = "drill"
GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "workers.md"
#: Rows of the guide: the rule, the seconds until its metric shows the fault, its ``for``, and the sum.
ROW = re.compile(r"^\| `(Holdfast\w+)` \| [^|]+ \| (\d+) s \| (\d+) s \| (\d+) s \|$", re.MULTILINE)
UNITS = {"s": 1, "m": 60, "h": 3600}


def documented() -> dict[str, tuple[int, int, int]]:
    """The table of the guide."""
    return {name: (int(shown), int(held), int(fires)) for name, shown, held, fires in ROW.findall(GUIDE.read_text())}


def test_the_guide_has_the_time_of_every_rule():
    table = documented()
    assert list(table) == list(rules())
    for name, rule in rules().items():
        shown, held, fires = table[name]
        text = str(rule.get("for", "0s"))
        assert (held, fires) == (int(text[:-1]) * UNITS[text[-1]], shown + held), name


class Drill:
    """A store with real processes, whose rows can be put back in time: no drill waits for an hour."""

    def __init__(self, database, folder):
        self.database, self.folder, self.store = database, folder, database.open()
        self.app = holdfast.Holdfast(database.url)
        self._stack = ExitStack()
        self._stack.enter_context(self.app)
        for kind in cli_jobs.app.kinds.values():
            self.app._registry.add(kind)

    def start(self, *line):
        """Start a process that reports metrics; returns it with its port."""
        running = self._stack.enter_context(
            program(*line, url=self.database.url, HOLDFAST_METRICS_TOKEN=TOKEN, HOLDFAST_LOG_LEVEL="info")
        )
        if line[0] == "web":
            return running, running.said("the dashboard of").split()[-1].rpartition(":")[2].strip("/")
        return running, running.said("metrics on port").split()[-1]

    def web(self):
        return self.start("web", "--listen", "127.0.0.1:0")[1]

    def worker(self, *options):
        return self.start(*APP, "--metrics", "127.0.0.1:0", "--grace", "1s", *options)

    def scrape(self, port):
        status, text = fetch(port, "/metrics", token=TOKEN)
        assert status == 200, text
        return text

    def scrape_with(self, port, line):
        """A scrape that has read *line* from the store: on a slow machine the first one may have no values yet."""
        return wait_until(lambda: text if line in (text := self.scrape(port)) else None)

    def put_back(self, seconds, table, *columns, where="true"):
        """Set times of all rows to *seconds* ago, which may be ahead."""
        if self.database.name == "sqlite":
            at, sign = int((time.time() - seconds) * 1_000_000), "?"
        else:
            at, sign = time.time() - seconds, "to_timestamp(%s)"
        for column in columns:
            self.database.execute(f"UPDATE holdfast.{table} SET {column} = {sign} WHERE {where}", (at,))

    def times_until_shown(self, *names, port, passed=0.0, before=None):
        """Check the seconds from a fault, now, until what is scraped fires each rule, if it lasts, against the guide.

        *passed* of them were spared by putting rows back.
        """
        shown, since = dict[str, float](), time.monotonic()

        def all_shown():
            text, elapsed = self.scrape(port), time.monotonic() - since
            began = None if before is None else Before([before], elapsed)
            for name in set(names) & firing(self.folder, text, before=began):
                shown.setdefault(name, passed + elapsed)
            return len(shown) == len(names)

        wait_until(all_shown, every=0.5)
        for name, seconds in shown.items():
            sys.stdout.write(f"{name}: shown after {seconds:.1f} s\n")  # pytest -s, for the table of the guide
            assert seconds <= documented()[name][0] + 60, "more than a slow machine explains"

    def close(self):
        self._stack.close()


@pytest.fixture
def drill(real_database, tmp_path):
    drill = Drill(real_database, tmp_path)
    yield drill
    drill.close()


def test_a_killed_worker(drill):
    """The only worker and planner is killed while it runs a job; another job waits, and a plan is due."""
    port = drill.web()
    drill.app.schedules.create("hourly", "double", "@hourly", payload={"n": 1})
    drill.app.enqueue("deaf", {"path": str(drill.folder / "begun")}, priority=1)
    drill.app.enqueue("double", {"n": 1})
    worker, _ = drill.worker("--slots", "1")
    wait_until((drill.folder / "begun").exists)
    assert firing(drill.folder, drill.scrape(port)) == set()
    worker.send(signal.SIGKILL)
    drill.put_back(56, "worker", "seen_at")
    drill.put_back(-4, "live", "lease_expires_at", where="state = 'running'")
    drill.times_until_shown("HoldfastNoWorkers", "HoldfastExpiredLeases", port=port, passed=56)
    drill.put_back(116, "schedule", "check_at", "next_at")
    drill.times_until_shown("HoldfastSchedulesLate", port=port, passed=116)


@pytest.mark.one_backend
def test_a_killed_worker_beside_another(drill):
    """O5: jobs go on, so that no other rule fires; only the lost worker shows."""
    port = drill.web()
    worker, _ = drill.worker()
    other, _ = drill.worker()
    wait_until(lambda: len(drill.store.workers.list()) == 2)
    other.send(signal.SIGKILL)
    assert other.code == -signal.SIGKILL
    drill.put_back(3600, "worker", "started_at")
    drill.put_back(57, "worker", "seen_at", where=f"pid = {other.pid}")
    drill.times_until_shown("HoldfastWorkerDown", port=port, passed=57)
    assert drill.store.workers.list()[0].pid == worker.pid


@pytest.mark.one_backend
def test_nothing_reports(drill):
    """Worker and dashboard are gone: Prometheus has no series any more."""
    processes = [drill.start("web", "--listen", "127.0.0.1:0"), drill.worker()]
    assert "HoldfastNothingReports" not in firing(drill.folder, *(drill.scrape(port) for _, port in processes))
    since = time.monotonic()
    for process, port in processes:
        process.send(signal.SIGKILL)
        assert process.code == -signal.SIGKILL
        with pytest.raises(URLError):
            drill.scrape(port)
    seconds = time.monotonic() - since
    assert firing(drill.folder) == {"HoldfastNothingReports"}
    assert seconds <= documented()["HoldfastNothingReports"][0] + 60


@pytest.mark.one_backend
def test_work_that_waits(drill):
    """A kind that no worker serves, a queue that is not drained, an inbox without a consumer."""
    port, store = drill.web(), drill.store
    store.workers.announce(WorkerId("w"), host="h", pid=1, queues=["default"], kinds=["mail"], version=None)
    put(store, kind="mail")
    put(store, kind="post")
    hand_over(store, 1)
    assert firing(drill.folder, drill.scrape(port)) == set()
    for passed, rule, (table, column, where) in (
        (117, "HoldfastUnserved", ("live", "due_at", "kind = 'post'")),
        (897, "HoldfastQueueWaits", ("live", "due_at", "kind = 'mail'")),
        (3597, "HoldfastInboxWaits", ("inbox", "available_at", "true")),
    ):
        drill.put_back(passed, table, column, where=where)
        drill.times_until_shown(rule, port=port, passed=passed)


@pytest.mark.one_backend
def test_work_that_fails(drill):
    """Jobs fail, a lost run leaves units in doubt, other workers die, plans are missed, a lease is lost."""
    _, port = drill.worker("--slots", "2")
    web, store = drill.web(), drill.store
    drill.app.schedules.create("hourly", "double", "@hourly", payload={"n": 1})
    before, web_before = drill.scrape(port), drill.scrape_with(web, "holdfast_store_batches")
    assert firing(drill.folder, before, web_before) == set()
    for _ in range(3):
        drill.app.enqueue("broken")
    drill.times_until_shown("HoldfastJobsFail", port=port, before=before)
    drill.put_back(7200, "schedule", "cursor", "check_at", "next_at")
    drill.times_until_shown("HoldfastPlansMissed", port=port, before=before)
    put(store, kind="post")
    claim_jobs(store, "lost", queues=["default"], kinds=["post"], started=True)
    take(store, begin(store), 1, in_doubt_if_lost=True)
    drill.put_back(1, "live", "lease_expires_at", where="worker <> 'none'")
    drill.times_until_shown("HoldfastSteadyMaintenance", port=port, before=before)
    drill.times_until_shown("HoldfastUnitsInDoubt", port=web, before=web_before)
    drill.app.enqueue("obedient", {"path": str(drill.folder / "begun")})
    wait_until((drill.folder / "begun").exists)
    drill.database.execute("UPDATE holdfast.live SET token = token + 1 WHERE kind = 'obedient'")
    drill.times_until_shown("HoldfastLeasesLost", port=port, before=before)


@pytest.mark.one_backend
def test_work_that_no_code_can_do(drill):
    """A payload of a newer version is refused by the only worker, and a thread goes on after its timeout."""
    _, port = drill.worker()
    put(drill.store, kind="double", kind_version=99, payload='{"n": 1}')
    drill.times_until_shown("HoldfastUnreadableJobs", port=port)
    drill.app.enqueue("deaf", {"path": str(drill.folder / "begun")}, timeout=0.5)
    wait_until((drill.folder / "begun").exists)
    drill.times_until_shown("HoldfastOverdueRuns", port=port)


@pytest.mark.one_backend
def test_units_that_fail(drill):
    """A breaker stops one batch; another runs to its end with most of its units failed."""
    port = drill.web()

    @drill.app.unit()
    def resync(key: int) -> None:
        if key > 3:
            raise ValueError("no row")

    assert drill.app.run(resync, range(4), output="none").exit_code == 0
    before = drill.scrape_with(port, 'store_units{function="resync",result="done"} 4.0')
    assert firing(drill.folder, before) == set()
    assert drill.app.run(resync, range(20), name="stopped", output="none").exit_code == 8
    assert drill.app.run(resync, range(20), name="failing", max_failures=0, output="none").exit_code == 6
    drill.times_until_shown("HoldfastBatchesStopped", "HoldfastUnitsFail", port=port, before=before)


def test_a_black_hole(postgres_database, tmp_path):
    """The store does not answer any more; connections stay open. A minute later heartbeats are missing."""
    drill = Drill(postgres_database, tmp_path)
    with proxy_to(postgres_database.url) as proxy:
        line = (*APP, "--metrics", "127.0.0.1:0")
        with program(*line, url=proxy.uri, HOLDFAST_METRICS_TOKEN=TOKEN) as worker:
            port = worker.said("metrics on port").split()[-1]
            wait_until(lambda: "holdfast_workers_alive" in drill.scrape(port))
            assert firing(tmp_path, drill.scrape(port)) == set()
            proxy.black_hole()
            drill.times_until_shown("HoldfastStoreUnreachable", port=port)
    drill.close()


@pytest.fixture
def shifted_clock(monkeypatch):
    """Moves the clock of workers in this process; returns the function that does."""
    real, offset = clock.now, [0.0]
    monkeypatch.setattr(clock, "now", lambda: real() + offset[0])

    def move(seconds):
        offset[0] += seconds

    return move


@pytest.mark.one_backend
def test_a_planner_that_hangs(real_database, tmp_path, shifted_clock, monkeypatch):
    """Its tick does not return: for three minutes no other tick begins. The rest of the worker is well."""
    hangs, released = threading.Event(), threading.Event()

    def hang(_):
        hangs.set()
        released.wait(60)
        return TickResult(60.0)

    monkeypatch.setattr(Planner, "tick", hang)
    with holdfast.Holdfast(real_database.url) as app:
        app.job("mail")(lambda: None)
        with app.worker(poll=0.1) as worker:
            wait_until(hangs.is_set)
            collector = WorkerCollector(worker, app.store)
            assert firing(tmp_path, text_of(collector)) == set()
            shifted_clock(181.0)
            wait_until(lambda: values(text_of(collector), "tick_age_seconds")["heartbeat",] < 180)
            text = text_of(collector)
            released.set()
    assert values(text, "tick_age_seconds")["planner",] <= documented()["HoldfastServiceHangs"][0] + 60
    assert "HoldfastServiceHangs" in firing(tmp_path, text)


@pytest.mark.one_backend  # databases of PostgreSQL serve several tests
def test_a_worker_whose_statements_fail(real_database, tmp_path, shifted_clock):
    """The tables of workers and schedules are gone: no heartbeat reaches the store, and each tick of the planner fails."""
    with holdfast.Holdfast(real_database.url) as app:
        app.job("mail")(lambda: None)
        with app.worker(poll=0.1) as worker:
            collector = WorkerCollector(worker, app.store)
            wait_until(lambda: values(text_of(collector), "worker_ready") == {(): 1.0})
            before, since = text_of(collector), time.monotonic()
            assert firing(tmp_path, before) == set()
            for table in ("worker", "schedule"):
                real_database.execute(f"ALTER TABLE holdfast.{table} RENAME TO former_{table}")
            shifted_clock(61.0)
            wait_until(lambda: values(text_of(collector), "ticks_total").get(("error", "planner"), 0) >= 3)
            text, elapsed = text_of(collector), time.monotonic() - since
            for table in ("worker", "schedule"):  # for the end of the worker
                real_database.execute(f"ALTER TABLE former_{table} RENAME TO holdfast_{table}")
    assert values(text, "heartbeat_age_seconds")[()] <= documented()["HoldfastNoHeartbeat"][0] + 60
    assert {"HoldfastNoHeartbeat", "HoldfastTicksFail"} <= firing(tmp_path, text, before=Before([before], elapsed))
