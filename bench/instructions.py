"""Instructions, pages and log of the server for each job of a claim and of a settlement: ``python -m bench.instructions``.

PostgreSQL runs in single-user mode under callgrind, once without the statement and once with it. The difference is the
same in every run, whatever else the machine does. Needs valgrind and, as root, setpriv.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

import psycopg
from tests.support.postgres import DURABLE, NOBODY, bundled_programs, running

from bench.worker_jobs import app
from holdfast.store.engine import sql
from holdfast.store.jobs.settlement import WITHOUT_EFFECTS
from holdfast.store.postgres.connections import DISABLED_PLANS

JOBS, KIND = 500, "nothing"
LEASE = {"lease_duration": "00:01:00", "short": True}
#: As the connections of a worker have them: plans are made once, and never read a whole table.
SETTINGS = ["plan_cache_mode = force_generic_plan", "jit = off", *(f"{name} = off" for name in DISABLED_PLANS)]
CLAIM = {
    "worker": "'w'",
    "queues": "'{default}'",
    "kinds": f"'{json.dumps(dict.fromkeys(app.kinds, LEASE))}'",
    "free": "8",
    "ahead": str(JOBS - 8),
    "few": "8",
    "alone": "8",
    "autoscaled": "'{}'",
    "unfinished": "'{}'",
    "build": "'b'",
    "lease_duration": "'00:01:00'",
}
#: Continues behind a position at the start of the lane.
ONWARD = {
    **CLAIM,
    "lane_queue": "'{default}'",
    "lane_kind": f"'{{{KIND}}}'",
    "lane_priority": "'{0}'",
    "lane_due_at": "'{2000-01-01 00:00+00}'",
    "lane_job_id": "'{0}'",
    "lane_most": f"'{{{JOBS}}}'",
    "lane_until": "'{9999-01-01 00:00+00}'",
    "lane_until_id": "'{0}'",
    "lane_slot_only": "'{f}'",
    **dict.fromkeys(("gap_queue", "gap_kind", "gap_low", "gap_high"), "'{}'"),
}
SETTLE = {
    "worker": "'w'",
    "leases.id": f"'{{{','.join(map(str, range(1, JOBS + 1)))}}}'",
    "leases.token": f"'{{{','.join(['1'] * JOBS)}}}'",
    "leases.ran": f"'{{{','.join(['1000'] * JOBS)}}}'",
    **dict.fromkeys(("leases.age", "leases.result", "leases.error"), "NULL"),
}
#: An idle worker with one free slot, and where it continues for a job that was just enqueued.
ONE = {**CLAIM, "free": "1", "ahead": "0"}
KINDS = list(app.kinds)
NEXT = {
    **ONE,
    "lane_queue": f"'{{{','.join(['default'] * len(KINDS))}}}'",
    "lane_kind": f"'{{{','.join(KINDS)}}}'",
    "lane_priority": f"'{{{','.join(['0'] * len(KINDS))}}}'",
    "lane_due_at": f"'{{{','.join(['2000-01-01 00:00+00'] * len(KINDS))}}}'",
    "lane_job_id": f"'{{{','.join(['0'] * len(KINDS))}}}'",
    "lane_most": f"'{{{','.join(['1'] * len(KINDS))}}}'",
    "lane_until": f"'{{{','.join(['9999-01-01 00:00+00'] * len(KINDS))}}}'",
    "lane_until_id": f"'{{{','.join(['0'] * len(KINDS))}}}'",
    "lane_slot_only": f"'{{{','.join(['f'] * len(KINDS))}}}'",
    "gap_queue": f"'{{{','.join(['default'] * len(KINDS))}}}'",
    "gap_kind": f"'{{{','.join(KINDS)}}}'",
    "gap_low": f"'{{{','.join(['1'] * len(KINDS))}}}'",
    "gap_high": f"'{{{','.join(['2147483647'] * len(KINDS))}}}'",
}
#: Each with the number of its jobs.
STATEMENTS = (
    ("claim_onward", (), ONWARD, JOBS),
    ("claim", (), CLAIM, JOBS),
    ("settle_done", WITHOUT_EFFECTS, SETTLE, JOBS),
    ("claim_onward", (), NEXT, 1),
    ("claim_onward", (), NEXT, 1),
    ("claim_few", (), ONE, 1),
)


def prepared(name: str, where: tuple[str, ...]) -> tuple[str, list[str]]:
    """The statement as PREPARE wants it, and the names of its parameters in their order."""
    names: list[str] = []

    def number(match: re.Match[str]) -> str:
        if match[1] not in names:
            names.append(match[1])
        return f"${names.index(match[1]) + 1}"

    text = re.sub(r"--[^\n]*", "", sql.compose("postgres", name, where))
    text = re.sub(r"(?<![:\w]):([a-z_]+(?:\.[a-z_]+)?)", number, text)
    return f"PREPARE {name} AS {' '.join(text.split())}", names


def make_data(folder: Path) -> None:
    """A stopped server with ready jobs, as a template."""
    with running(bundled_programs(), settings={**DURABLE, "autovacuum": "off"}) as server:
        with psycopg.connect(server.url(), autocommit=True) as connection:
            connection.execute("CREATE DATABASE jobs")
        app.use(server.url("jobs"))
        app.store.jobs.enqueue_many([app.request(KIND, {"n": 1}, {})] * JOBS * 3)
        app.close()
        with psycopg.connect(server.url("jobs"), autocommit=True) as connection:
            connection.execute("VACUUM ANALYZE")
        server.stop()
        shutil.copytree(server.data, folder / "template")


def count(folder: Path, statements: list[str]) -> int:
    """Run *statements* on a copy of the template; returns the instructions."""
    report = folder / "callgrind.out"
    done = run(folder, statements, ["valgrind", "--tool=callgrind", f"--callgrind-out-file={report}"], report)
    return int(re.search(r"Collected : (\d+)", done.stderr)[1])  # type: ignore[index]


def pages_and_log(folder: Path, statements: list[str]) -> tuple[int, int]:
    """Pages that the last of *statements* has read from memory, and bytes of the write-ahead log. It is an EXPLAIN."""
    text = run(folder, statements).stdout  # the first node is that of the whole statement
    found = [re.search(pattern, text) for pattern in (r"Buffers: shared hit=(\d+)", r"WAL: .*?bytes=(\d+)")]
    return tuple(int(each[1]) if each else 0 for each in found)  # type: ignore[return-value]


def run(folder: Path, statements: list[str], tool: list[str] = [], *reports: Path) -> subprocess.CompletedProcess[str]:  # noqa: B006
    data = folder / "data"
    shutil.rmtree(data, ignore_errors=True)
    shutil.copytree(folder / "template", data)
    data.chmod(0o700)
    for report in reports:
        report.touch()
    root = os.geteuid() == 0
    if root:
        subprocess.run(["chown", "-R", f"{NOBODY}:{NOBODY}", str(folder)], check=True)
    done = subprocess.run(
        [
            *(["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"] if root else []),
            *tool,
            *(str(bundled_programs() / "postgres"), "--single", "-j", "-D", str(data), "-c", "autovacuum=off", "jobs"),
        ],
        input="".join(f"{each};\n\n" for each in statements),
        capture_output=True,
        text=True,
        check=True,
    )
    if "ERROR" in done.stdout + done.stderr:
        raise RuntimeError(re.search(r".*ERROR.*", done.stdout + done.stderr)[0])  # type: ignore[index]
    return done


def main() -> None:
    begin, calls = [f"SET {setting}" for setting in SETTINGS], list[tuple[str, str, int]]()
    for name, where, values, jobs in STATEMENTS:
        text, names = prepared(name, where)
        call = f"EXECUTE {name}({', '.join(values[each] for each in names)})"
        begin += [] if text in begin else [text]
        begin.append(f"EXPLAIN (COSTS OFF) {call}")  # the plan is made here, and not counted
        calls.append((name, call, jobs))
    with tempfile.TemporaryDirectory(prefix="holdfast-instructions-") as home:
        folder = Path(home)
        folder.chmod(0o755)
        make_data(folder)
        before = count(folder, begin)
        print(f"for each job{'jobs':>16}{'instructions':>16}{'pages':>8}{'bytes of log':>14}")
        for name, call, jobs in calls:
            pages, log = pages_and_log(
                folder, [*begin, f"EXPLAIN (ANALYZE, TIMING OFF, COSTS OFF, BUFFERS, WAL) {call}"]
            )
            begin.append(f"EXPLAIN (ANALYZE, TIMING OFF, COSTS OFF, BUFFERS OFF) {call}")
            after = count(folder, begin)
            print(f"{name:24}{jobs:>4}{(after - before) / jobs:>16,.0f}{pages / jobs:>8.1f}{log / jobs:>14,.0f}")
            before = after


if __name__ == "__main__":
    main()
