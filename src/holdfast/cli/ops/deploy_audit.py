"""``audit``: whether the store is ready for a deploy, and whether a deploy succeeded."""

from __future__ import annotations

import shlex
import time
from collections import Counter
from collections.abc import Iterator

import click
from msgspec import Struct, structs

from holdfast.admin.views.fleet import queue_views, stop_view, worker_views
from holdfast.admin.views.jobs import count_jobs, job_page
from holdfast.cli.command import command
from holdfast.cli.session import CliSession
from holdfast.domain.fleet.stop_switch import StopSwitch
from holdfast.domain.jobs.job import LIVE, JobId, State
from holdfast.domain.jobs.selector import Selector
from holdfast.errors import CommandFailed, Conflict, Drift, HoldfastError
from holdfast.output.envelope import failure_of
from holdfast.store import Store
from holdfast.worker.commands.run import run_command

#: Largest number of jobs that are counted exactly.
COUNT_CAP = 100_000
CHECK_TIMEOUT_S = 300.0
#: Ids of each state in an answer, and in a line of text.
MAX_IDS, SHOWN_IDS = 100, 10
#: Live jobs that do not run.
PENDING = tuple(state for state in State if state in LIVE - {State.RUNNING})


class AuditAnswer(Struct, frozen=True):
    """Counts of jobs, the versions that workers run, paused queues with their notes, and the stop switch.

    *ids* has the newest of the *running*, *waiting* and *dead* jobs, at most 100 of each.
    """

    running: int
    waiting: int
    dead: int
    ids: dict[str, list[JobId]]
    workers: int
    versions: dict[str, int]
    paused: dict[str, str]
    stopped: StopSwitch | None
    #: Exit codes of the configured checks, by command line.
    checks: dict[str, int] = {}


@command("audit", answers=AuditAnswer)
@click.option("--expect", metavar="VERSION", help="Succeed if workers are alive and all run this version.")
def audit(session: CliSession, *, expect: str | None) -> int:
    """Check whether the store is ready for a deploy. With --expect, check whether a deploy succeeded.

    Exit codes:
      0   no job is running; with --expect: at least one worker is alive, and all run this version
      9   jobs are running (not with --expect)
      14  --expect: a worker runs another version, or no worker is alive
      1   a command of the setting audit_checks failed

    The answer always has the counts and ids of jobs. A worker reports the version of its application,
    Holdfast(version=…), or that of holdfast worker --version. To check the environment, use holdfast doctor; to check
    the database, holdfast db check; to list what people did, holdfast audit-log.

    Examples:
      holdfast audit && ./deploy.sh
      until holdfast audit --expect 2.4.1; do sleep 5; done
    """
    session.refuse_moved()
    answer = _audit(session.store)
    error: HoldfastError | None = None
    if expect is not None:
        error = _version_problem(answer, expect)
    elif answer.running:
        error = Conflict(f"{answer.running:,} jobs are running", hint="Wait for them, or holdfast drain.")
    if error is None:
        checks, error = _run_checks(session.setting("audit_checks"))
        answer = structs.replace(answer, checks=checks)
    failure = None if error is None else failure_of(error)
    session.output.value(answer, lambda: _audit_lines(answer), error=failure)
    return 0 if error is None else error.exit_code


def _version_problem(answer: AuditAnswer, expected: str) -> Drift | None:
    if not answer.workers:
        return Drift(f"no worker is alive, and {expected} was expected", hint="Start the workers; see holdfast up.")
    other = ", ".join(sorted(version for version in answer.versions if version != expected))
    return Drift(f"workers run {other}, not {expected}", hint="Restart them.") if other else None


def _run_checks(checks: list[list[str]]) -> tuple[dict[str, int], CommandFailed | None]:
    """Run the configured checks up to the first failure: their exit codes by command line, and the failure."""
    exit_codes: dict[str, int] = {}
    for argv in checks:
        deadline = time.monotonic() + CHECK_TIMEOUT_S
        result = run_command(argv, is_late=lambda deadline=deadline: time.monotonic() > deadline)  # type: ignore[misc]
        line = shlex.join(argv)
        exit_codes[line] = result.exit_code
        if result.exit_code:
            hint = "Fix the problem that it reports, or remove it from audit_checks in the configuration file."
            text = f"the check {line!r} failed with {result.status}: {result.last_output}"
            return exit_codes, CommandFailed(text, hint=hint)
    return exit_codes, None


def _audit(store: Store) -> AuditAnswer:
    groups = {"running": (State.RUNNING,), "waiting": PENDING, "dead": (State.DEAD,)}
    selectors = {name: Selector(states=states) for name, states in groups.items()}
    counts = {name: count_jobs(store, selector, cap=COUNT_CAP).count for name, selector in selectors.items()}
    pages = {name: job_page(store, selector, limit=MAX_IDS) for name, selector in selectors.items()}
    workers = [worker for worker in worker_views(store) if worker.alive]
    return AuditAnswer(
        running=counts["running"],
        waiting=counts["waiting"],
        dead=counts["dead"],
        ids={name: [job.id for job in page.jobs] for name, page in pages.items()},
        workers=len(workers),
        versions=dict(Counter(worker.version or "none" for worker in workers)),
        paused={queue.name: queue.note or "" for queue in queue_views(store) if queue.paused},
        stopped=stop_view(store),
    )


def _audit_lines(answer: AuditAnswer) -> Iterator[str]:
    for name, ids in answer.ids.items():
        count = getattr(answer, name)
        shown = ", ".join(map(str, ids[:SHOWN_IDS])) + (", …" if count > SHOWN_IDS else "")
        yield f"{name}: {count:,}" + (f"  (jobs {shown})" if ids else "")
    versions = ", ".join(f"{count} with version {version}" for version, count in sorted(answer.versions.items()))
    yield f"workers: {versions or 'none'}" + ("  (they differ)" if len(answer.versions) > 1 else "")
    yield from () if answer.stopped is None else (answer.stopped.text,)
    yield from (f"queue {name} is paused: {note}" for name, note in answer.paused.items())
    yield from (f"check passed: {line}" for line, code in answer.checks.items() if code == 0)
