"""The versions of psycopg that pyproject.toml admits, and one that lacks a name."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from holdfast.domain.jobs.new_job import NewJob
from holdfast.domain.jobs.verdict import Done
from holdfast.store.engine.operation import Query
from holdfast.store.postgres import direct
from tests.support.jobs import claim_jobs

ROOT = Path(__file__).parents[3]
NAMES = [f"{module}:{name}" for module, names in direct.NEEDED.items() for name in names.split()]


def pinned(end: str) -> tuple[Path, str]:
    """The pins of the oldest or the newest driver, and its version."""
    pins = ROOT / "requirements" / f"psycopg-{end}.txt"
    versions = set(re.findall(r"^psycopg(?:-binary)?==(\S+)", pins.read_text(), re.MULTILINE))
    assert len(versions) == 1
    return pins, versions.pop()


def driver(end: str) -> Path:
    """A folder with that driver alone, made once for each version of Python. Without a network this fails."""
    pins, version = pinned(end)
    folder = ROOT / f".venv-psycopg-{version}-{sys.version_info.major}.{sys.version_info.minor}"
    ready = folder / ".ready"
    if not ready.exists():
        install = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile"]
        install += ["--upgrade", "--require-hashes", "--no-deps", "--target", str(folder), "-r", str(pins)]
        subprocess.run(install, check=True)
        ready.touch()
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("end", ["oldest", "newest"])
def test_direct_statements_run_on_every_driver_that_is_admitted(end):
    """The tests of both ways to run a statement, on another driver: values, rows, errors, locks, interrupts."""
    folder = driver(end)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environment["PYTHONPATH"] = str(folder)
    check = f"import psycopg; assert psycopg.__version__ == {pinned(end)[1]!r}, psycopg.__version__"
    subprocess.run([sys.executable, "-c", check], env=environment, check=True)
    tests = [f"tests/store/postgres/test_{name}.py" for name in ("direct", "statements")]
    run = [sys.executable, "-m", "pytest", "-n", "0", *tests]
    done = subprocess.run(run, env=environment, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert int(re.search(r"(\d+) passed", done.stdout)[1]) >= 20


def test_the_bounds_of_the_driver_are_those_that_are_tested():
    """The lower bound is the oldest version; the upper one excludes the next minor version."""
    (needed,) = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]["postgres"]
    oldest, newest = pinned("oldest")[1], pinned("newest")[1]
    major, minor, _ = newest.split(".")
    assert needed == f"psycopg[binary]>={oldest},<{major}.{int(minor) + 1}"


def test_the_driver_has_all_that_is_needed():
    assert direct.missing() == []


def test_what_is_needed_is_what_is_used():
    """Each name of the list occurs in the module, and each attribute of a class of the driver in the list."""
    tree = ast.parse(Path(direct.__file__).read_text())
    used = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    assert {name.rpartition(".")[2].rpartition(":")[2] for name in NAMES} <= used
    owners = {"connection", "pgconn", "result", "rows", "info", "ExecStatus", "Format", "Ready", "Wait", "errors"}
    public = {"close", "info", "pgconn", "DuplicatePreparedStatement", "InvalidSqlStatementName"}  # documented
    reached = {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and (getattr(node.value, "id", None) in owners or getattr(node.value, "attr", None) in owners)
    }
    assert reached - public <= {re.split(r"[.:]", name)[-1] for name in NAMES}


def test_without_one_name_statements_run_on_a_cursor(postgres_database, monkeypatch):
    """One switch, for all of them: the same answers."""
    monkeypatch.setitem(direct.NEEDED, "psycopg.pq", direct.NEEDED["psycopg.pq"] + " PGconn.no_such_name")
    sent = []
    monkeypatch.setattr(direct, "run", lambda *_: sent.append("directly"))
    store = postgres_database.open()
    store.queues.set_limits("limited", limit=1)
    jobs = [store.jobs.enqueue(NewJob(kind="mail", queue=queue)).id for queue in ("default", "limited", "limited")]
    assert len(store.jobs.enqueue_many([NewJob(kind="other")] * 3)) == 3
    leases = claim_jobs(store, "w", 9, queues=["default", "limited"], kinds=["mail"])
    assert [lease.job_id for lease in leases] == jobs[:2]
    store.leases.settle(leases[0], Done())
    assert store.views.get(jobs[0]).state == "done"
    assert store.backend.run(Query("draw_job_ids", {"count": 1}, direct=True))
    assert not sent


@pytest.mark.parametrize("name", ["psycopg.waiting:Wait", "psycopg.adapt:Transformer", "psycopg.pq:ExecStatus"])
def test_a_driver_without_a_class_can_be_imported(name):
    """In another process: the module is imported once."""
    module, attribute = name.split(":")
    program = f"""if True:
        import psycopg, {module}
        del {name.replace(":", ".")}
        from holdfast.store.postgres import direct
        assert any(each.startswith("{module}:{attribute}.") for each in direct.missing()), direct.missing()
        from holdfast.store.postgres.statements import Statements
        assert not Statements("holdfast")._has_driver
    """
    subprocess.run([sys.executable, "-c", program], check=True)
