"""What the command line costs: CPU time of ``--help`` and ``ls``, beside that of Python itself.

Run it with ``python -m bench.cli``. The targets are 60 and 80 ms of CPU, the least of 25 calls: other work on the machine adds
to the rest. Modules are compiled beforehand, as they are on a user's machine.
"""

from __future__ import annotations

import compileall
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import holdfast
from bench.runs import record

ROUNDS = 25
LIMITS_MS = {"holdfast --help": 60, "holdfast ls (100 jobs)": 80}


def cpu_ms(*words: str, url: str) -> float:
    """CPU time of one call, user and system."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    subprocess.run([sys.executable, *words], env={**env, "HOLDFAST_URL": url}, stdout=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1000


def main() -> int:
    compileall.compile_dir(str(Path(holdfast.__file__).parent), quiet=2)
    program = "from holdfast.cli.main import main; main()"
    calls = {
        "python -c pass": ["-c", "pass"],
        "import click, msgspec, sqlite3": ["-c", "import click, msgspec, sqlite3"],
        "holdfast --help": ["-c", program, "--help"],
        "holdfast ls (100 jobs)": ["-c", program, "ls", "--all"],
    }
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{folder}/jobs.db"
        with holdfast.Holdfast(url) as app:
            job = app.job(name="mail")(lambda: None)
            job.enqueue_many([{}] * 100)
        times: dict[str, list[float]] = {name: [] for name in calls}
        for _ in range(ROUNDS):
            for name, words in calls.items():
                times[name].append(cpu_ms(*words, url=url))
    missed = 0
    for name, found in times.items():
        limit, least = LIMITS_MS.get(name), min(found)
        missed += limit is not None and least > limit
        if limit is not None:
            record(f"{name}, ms of CPU", least, f"<= {limit}")
        mark = "" if limit is None else f"  (at most {limit}: {'met' if least <= limit else 'MISSED'})"
        print(f"{name:32} median {statistics.median(found):5.0f} ms, least {least:5.0f} ms{mark}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
