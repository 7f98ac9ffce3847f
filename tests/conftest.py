"""Fixtures that every suite shares."""

from __future__ import annotations

import gc
import os
import re
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from holdfast.store import Store
from tests.support.backends import Clock, Database, available, open_database, stop_servers
from tests.support.direct_calls import watched
from tests.support.listeners import Listener

# A shell ignores SIGINT in its background jobs (make test &), and every process started here would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# The tests start hundreds of programs, and each test process reads every module: none compiles what another has compiled.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
# Collecting tests makes much and drops little: a search for garbage among it finds none.
gc.disable()

settings.register_profile("holdfast", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True)
settings.load_profile("holdfast")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test that uses a database once per backend; the store suite also on the machine's own PostgreSQL."""
    if "backend_name" in metafunc.fixturenames:
        in_store_suite = Path(metafunc.definition.path).parent.name == "store"
        names = available() if in_store_suite else ["sqlite", "postgres"]
        if metafunc.definition.get_closest_marker("one_backend"):
            names = names[:1]
        metafunc.parametrize("backend_name", names, scope="session")


#: Tests that run in one process, by their ids: they share a store full of jobs, or need the machine for themselves.
GROUPS = (
    r"test_query_plans.py::test_sqlite_touches",
    r"test_query_plans.py::test_postgres_touches\w+\[\w+-postgres-system-",
    r"test_query_plans.py::test_postgres_touches",
    r"tests/chaos/test_world.py",
    r"tests/web/pages/test_browser.py",
)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the slow tests: at the end one of them would run alone."""
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Search for garbage from here on, and not among the collected tests: several tests ask for a full search."""
    gc.freeze()
    gc.enable()


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Keep the tests of a group in one process, the largest groups first."""
    from xdist.scheduler import LoadScopeScheduling

    class Groups(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return next((group for group in GROUPS if re.search(group, nodeid)), nodeid)

    return Groups(config, log)


@pytest.fixture(scope="session", autouse=True)
def _servers() -> Iterator[None]:
    yield
    stop_servers()


@pytest.fixture(scope="session", autouse=True)
def _statements_that_pass_by_the_driver() -> Iterator[None]:
    """Refuse a statement without a row in the table of those, whichever test runs it."""
    with watched():
        yield


@pytest.fixture
def database(backend_name: str, tmp_path: Path) -> Iterator[Database]:
    """An empty database with a clock that stands still."""
    with open_database(backend_name, tmp_path) as database:
        yield database


@pytest.fixture
def real_database(backend_name: str, tmp_path: Path) -> Iterator[Database]:
    """An empty database in real time, for tests with real processes."""
    with open_database(backend_name, tmp_path, real_time=True) as database:
        yield database


@pytest.fixture
def postgres_database(tmp_path: Path) -> Iterator[Database]:
    """An empty PostgreSQL database in real time, for tests with row locks, which SQLite does not have."""
    with open_database("postgres", tmp_path, real_time=True) as database:
        yield database


@pytest.fixture
def patient_scrapes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A scrape in this process has the newest values, however slow the machine is."""
    monkeypatch.setattr("holdfast.worker.store_metrics.SCRAPE_WAIT_S", 60.0)


@pytest.fixture
def make_store(database: Database) -> Callable[[], Store]:
    """Opens the database once more, as another process would."""
    return database.open


@pytest.fixture
def store(database: Database) -> Store:
    return database.open()


@pytest.fixture
def clock(database: Database) -> Clock:
    return database.clock


@pytest.fixture
def listen(make_store: Callable[[], Store]) -> Iterator[Callable[[], Listener]]:
    """Starts somebody who listens for rings."""
    ears: list[Listener] = []

    def start() -> Listener:
        listener = Listener(make_store())
        ears.append(listener.listener)
        listener.settle()
        return listener

    yield start
    for listener in ears:
        listener.close()
