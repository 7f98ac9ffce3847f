"""U1: signals to processes that users' code has forked, in jobs, units, foreground runs and sessions."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pytest

import holdfast
from holdfast import NewJob, Selector, State
from tests.support.programs.forking import fork

#: What a handler sees: the pool's results, and the exit code of a process that SIGTERM ended.
RESULTS = {"pool": [1, 2], "terminate": -signal.SIGTERM}
APP = "tests.support.programs.forking:app"


@pytest.fixture
def app(real_database):
    with holdfast.Holdfast(real_database.url) as app:
        yield app


def work(url, *arguments):
    """Run a worker as a user does, until nothing is left."""
    return subprocess.run(
        [sys.executable, "-m", "holdfast", "worker", "--app", APP, "--slots", "2", "--drain", *arguments],
        env={**os.environ, "HOLDFAST_URL": url},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_jobs_may_end_the_processes_that_they_forked(app, real_database):
    """U1: one SIGTERM to a forked child ended worker after worker. In threads, coroutines and child processes."""
    kinds = ("in_thread", "in_loop", "in_child")
    payloads = {(kind, mode): json.dumps({"mode": mode}) for kind in kinds for mode in RESULTS}
    ids = {
        (kind, mode): app.store.jobs.enqueue(NewJob(kind=kind, payload=payload, max_attempts=1)).id
        for (kind, mode), payload in payloads.items()
    }
    done = work(real_database.url)
    assert (done.returncode, "stopping" in done.stderr) == (0, False), f"U1 is broken: {done.stderr}"
    results = {each: json.loads(app.views.get(job_id).result or "null") for each, job_id in ids.items()}
    assert results == {(kind, mode): RESULTS[mode] for kind, mode in ids}, "U1 is broken"


def test_units_on_workers_may_end_the_processes_that_they_forked(app, real_database):
    """U1: neither the worker nor the batch stops."""
    from tests.support.programs import forking

    forking.app.use(real_database.url)
    try:
        forking.app.submit(forking.in_unit, [*RESULTS])
    finally:
        forking.app.use(None)
    done = work(real_database.url)
    assert (done.returncode, "stopping" in done.stderr) == (0, False), f"U1 is broken: {done.stderr}"
    assert {job.state for job in app.views.all(Selector())} == {State.DONE}, "U1 is broken"


@pytest.mark.parametrize("mode", [*RESULTS])
def test_a_foreground_run_survives_the_end_of_its_forks(app, mode):
    """U1: ``Pool`` ends its processes with SIGTERM."""

    @app.unit()
    def work(key: str) -> object:
        return fork(key)

    result = app.run(work, [mode], output="none")
    assert result.exit_code == 0, "U1 is broken"
    units = app.store.batches.units(result.batch.id)
    assert [json.loads(unit.data) for unit in units] == [RESULTS[mode]], "U1 is broken"


def test_a_session_survives_signals_to_forks(app):
    """U1: the loop is the user's own code, in the main thread."""
    seen = []
    with app.session("looped", output="none") as run:
        for key in run.pending([*RESULTS]):
            with run.unit(key):
                seen.append(fork(key))
    assert (seen, run.exit_code) == ([*RESULTS.values()], 0), "U1 is broken"
