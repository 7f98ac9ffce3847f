"""Processes as the kernel shows them: which children belong to a supervisor that lives."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from holdfast.worker.commands.kernel import CHILD_VARIABLE, kill_abandoned
from tests.support.processes import gone, wait_until

#: Starts a child with the variable of a supervisor's child, prints its pid, and waits until its input closes.
PARENT = f"""
import os, subprocess, sys
child = subprocess.Popen(["sleep", "600"], env={{**os.environ, {CHILD_VARIABLE!r}: "test-{os.getpid()}"}})
print(child.pid, flush=True)
sys.stdin.read()
child.kill()
"""


@pytest.mark.parametrize(
    ("argument", "survives"),
    [("holdfast.worker.commands.supervisor", True), ("holdfast.run.supervisor", True), ("another.program", False)],
)
def test_only_children_without_a_supervisor_are_abandoned(argument, survives):
    """Supervisors are known by their module path, also by the one of the previous layout."""
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, argument], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        child = int(parent.stdout.readline())
        kill_abandoned()
        if not survives:
            wait_until(lambda: gone(child))
        assert gone(child) is not survives
        parent.stdin.close()
