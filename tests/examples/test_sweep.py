"""examples/sweep: a grid with caps, a merge, a check; one cell too greedy; a worker killed in the middle."""

from __future__ import annotations

import json
import shutil
import signal
import sys

import pytest

import holdfast
from holdfast import Selector, State
from holdfast.domain.commands.command import COMMAND
from tests.support.processes import connect, wait_until
from tests.support.program import ROOT, clean_environment, finished, programs

HERE = f"{ROOT}/examples/sweep"
GRID = ["--param", "symbol=AAA,BBB,BIG", "--param", "threshold=0.1,0.2", "--param", "year=2020,2021"]
CELL = ["--", sys.executable, "backtest.py", "{symbol}", "{threshold}", "{year}"]


@pytest.fixture
def folder(tmp_path):
    for name in ("backtest.py", "merge.py", "validate.py"):
        shutil.copy(f"{HERE}/{name}", tmp_path)
    return tmp_path


@pytest.fixture
def start(folder):
    with programs(cwd=folder, env=clean_environment(folder)) as start:
        yield start


@pytest.fixture
def hf(start):
    return lambda *words: finished(start("-m", "holdfast", *words))


@pytest.fixture
def app(folder):
    with holdfast.Holdfast(f"sqlite:///{folder}/jobs.db") as app:
        yield app


def states(app, label):
    return sorted(str(job.state) for job in app.views.all(Selector(labels=(label,))))


def test_the_grid_is_finished_though_its_worker_is_killed(start, hf, app, folder):
    worker = start("-m", "holdfast", "worker", "--slots", "2")
    assert (
        hf("sweep", "--label", "backtest", "--memory", "200M", "--retry", "1", "--retry-delay", "1s", *GRID, *CELL)[0]
        == 0
    )
    assert (
        hf("add", "--label", "merge", "--after", "finished:label=backtest/*", "--", sys.executable, "merge.py")[0] == 0
    )
    assert hf("add", "--label", "validate", "--after", "label=merge", "--", sys.executable, "validate.py", "12")[0] == 0
    wait_until(lambda: list((folder / "out").glob("symbol=*/threshold=*/year=*.json")))
    worker.send_signal(signal.SIGKILL)
    worker.wait()
    assert app.views.count(Selector(kinds=(COMMAND,), states=(State.RUNNING,))).count
    with connect(app.url, autocommit=True) as connection:  # its leases would lapse in a minute: now they have
        connection.execute("UPDATE holdfast_live SET lease_expires_at = 1 WHERE state = 'running'")
    connection.close()

    worker = start("-m", "holdfast", "worker", "--slots", "2")
    assert hf("wait", "--label", "backtest/*")[0] == 6
    assert states(app, "backtest/*") == ["dead"] * 2 + ["done"] * 10
    for job in app.views.all(Selector(states=(State.DEAD,), labels=("backtest/*",))):
        assert "symbol=BIG" in job.label
        assert "year=2021" in job.label
        assert job.reason == "oom"
    assert hf("wait", "--label", "validate")[0] == 1

    again = ["--param", "symbol=BIG", "--param", "threshold=0.1,0.2", "--param", "year=2021"]
    assert hf("sweep", "--label", "backtest", "--memory", "1G", *again, *CELL)[0] == 0
    assert (
        hf("add", "--label", "merge2", "--after", "finished:label=backtest/*", "--", sys.executable, "merge.py")[0] == 0
    )
    assert hf("add", "--label", "check2", "--after", "label=merge2", "--", sys.executable, "validate.py", "12")[0] == 0
    assert hf("wait", "--label", "check2")[0] == 0
    worker.send_signal(signal.SIGTERM)
    worker.wait()
    cells = json.loads((folder / "out" / "all.json").read_text())
    assert len({(cell["symbol"], cell["threshold"], cell["year"]) for cell in cells}) == 12
