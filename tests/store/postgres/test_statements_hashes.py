"""Names with the same hash: two queues, two kinds. The hash of a copy of the code is weakened to one bit."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import holdfast
from tests.support.postgres import QUICK, bundled_programs, running

PACKAGE = Path(holdfast.__file__).parent
#: Nine queues and two kinds in four lanes, as far as hashes can tell. Six queues are paused when the others get jobs.
PROGRAM = """
import json, sys
import holdfast

app = holdfast.Holdfast(sys.argv[1])

@app.job()
def even(n: int) -> None: ...

@app.job()
def odd(n: int) -> None: ...

for n in range(6):
    (odd if n % 2 else even).options(queue=f"q{n}").enqueue(n)
    app.queues.pause(f"q{n}")
with app.worker(queues=["*"], poll=0.1):
    for n in range(6, 9):
        (odd if n % 2 else even).options(queue=f"late{n}").enqueue(n).result(30)
lanes = [(lane.queue, lane.kind) for lane in app.store.dashboard.lanes()]
print(json.dumps([sorted(app.queues.with_ready_jobs()), sorted(lanes)]))
"""


@pytest.fixture
def weak(tmp_path: Path) -> Path:
    """A copy of the code in which half of all names have the same hash."""
    shutil.copytree(PACKAGE, tmp_path / "holdfast", ignore=shutil.ignore_patterns("__pycache__"))
    changed = 0
    for file in (tmp_path / "holdfast/store").rglob("*.sql"):
        text, count = re.subn(r"hashtextextended\(([\w.$]+), 0\)", r"(hashtextextended(\1, 0) & 1)", file.read_text())
        file.write_text(text)
        changed += count
    assert changed
    return tmp_path


def test_names_with_one_hash_are_all_found_and_run(weak):
    with running(bundled_programs(), settings=QUICK) as server:
        program = [sys.executable, "-c", PROGRAM, server.url()]
        environment = {**os.environ, "PYTHONPATH": str(weak)}
        ran = subprocess.run(program, env=environment, capture_output=True, text=True, timeout=170, check=False)
    assert ran.returncode == 0, f"I18 is broken: {ran.stderr[-1000:]}"
    paused = [f"q{n}" for n in range(6)]
    lanes = [[queue, "odd" if n % 2 else "even"] for n, queue in enumerate(paused)]
    assert json.loads(ran.stdout) == [paused, lanes]
