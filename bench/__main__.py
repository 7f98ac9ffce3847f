"""All benchmarks, one after the other: ``python -m bench``, in ``make bench``. It prints the seconds of each.

It writes docs/performance.md. The exit code is 1 if a part has failed, or has missed a limit of its own.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from datetime import UTC, datetime

from bench.page import write_section
from bench.runs import RUN_VARIABLE, text

PARTS = (
    ("bench.comparison", "--write"),
    ("bench.situations", "--write"),
    ("bench.raw_batch", "--units", "300000"),
    ("bench.worker_batch",),
    ("bench.schedules",),
    ("bench.commands", "--count", "3000"),
    ("bench.cli",),
    ("bench.web",),
)


def main() -> int:
    failed, lines, first = False, list[str](), time.monotonic()
    env = {**os.environ, RUN_VARIABLE: datetime.now(UTC).isoformat(timespec="seconds")}
    for part in PARTS:
        began = time.monotonic()
        code = subprocess.run([sys.executable, "-m", *part], env=env, check=False).returncode
        failed |= code != 0
        lines.append(f"{part[0]:18}{time.monotonic() - began:>6.0f} seconds{f', exit code {code}' if code else ''}")
    print("\n".join([*lines, f"{'all':18}{time.monotonic() - first:>6.0f} seconds"]))
    write_section("runs", text())
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
