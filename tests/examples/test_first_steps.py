"""The demo that ``make run`` shows."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_demo_runs(tmp_path):
    """It enqueues jobs, runs them, and shows one that fails and retries."""
    done = subprocess.run(
        [sys.executable, ROOT / "examples/first_steps/demo.py"],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
    )
    for line in (
        "job 3 (send), attempt 1: failed, LookupError: unknown address",
        "job 3 (send), attempt 2: failed, LookupError: unknown address",
        'job 1 (send) is done, "mail to ada sent"',
        "it waits for job 1 (ready), 2 (ready) to be done",
    ):
        assert line in done.stdout
    assert done.stderr == ""
