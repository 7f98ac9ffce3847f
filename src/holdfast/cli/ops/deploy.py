"""``audit``, ``drain`` and ``emergency-stop``: checks and stops around a deployment."""

from __future__ import annotations

import inspect
import shlex
import threading
import time
from collections import Counter
from collections.abc import Iterator

import click
from msgspec import Struct, structs

from holdfast.admin.actions.changed import Changed
from holdfast.admin.actions.options import NoteOptions
from holdfast.admin.actions.table import Target, find_action
from holdfast.admin.views.fleet import queue_views, stop_view, worker_views
from holdfast.cli.action import action_command, action_flags, print_changed
from holdfast.cli.command import command, with_options
from holdfast.cli.session import CliSession
from holdfast.domain.fleet.stop_switch import StopSwitch
from holdfast.domain.jobs.job import LIVE, JobId, State
from holdfast.domain.jobs.selector import Selector
from holdfast.domain.quantities import as_duration
from holdfast.errors import CommandFailed, Conflict, Drift, HoldfastError, WaitTimeout
from holdfast.output.envelope import failure_of
from holdfast.output.progress_bar import progress
from holdfast.store import Store
from holdfast.worker.commands.run import run_command

POLL_INTERVAL_S = 0.2
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
@click.option("--expect", metavar="VERSION", help="Succeed if workers are alive and all of them run this code.")
def audit(session: CliSession, *, expect: str | None) -> int:
    """Say whether it is safe to deploy; with --expect, whether a deploy has succeeded.

    \b
    Exit codes:
      0   nothing runs; with --expect: all workers run this version, and there are some
      9   jobs are running (not with --expect)
      14  --expect: a worker runs another version, or none is alive
      1   a program of audit_checks in the configuration file failed

    The answer has the counts and ids of jobs whatever the exit code is. A worker reports the version of its
    application, Holdfast(version=…), or the one of holdfast worker --version.

    \b
    Examples:
      holdfast audit && ./deploy.sh
      until holdfast audit --expect 2.4.1; do sleep 5; done
    """
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
            hint = "Mend what it complains of, or take it out of audit_checks in the configuration file."
            text = f"the check {line!r} failed with {result.status}: {result.last_output}"
            return exit_codes, CommandFailed(text, hint=hint)
    return exit_codes, None


def _audit(store: Store) -> AuditAnswer:
    groups = {"running": (State.RUNNING,), "waiting": PENDING, "dead": (State.DEAD,)}
    selectors = {name: Selector(states=states) for name, states in groups.items()}
    counts = {name: store.views.count(selector, cap=COUNT_CAP).count for name, selector in selectors.items()}
    pages = {name: store.views.page(selector, limit=MAX_IDS, brief=True) for name, selector in selectors.items()}
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


_drain = find_action(Target.STORE, "drain")


@command("drain", answers=Changed, changes=True)
@click.option("--timeout", default="10m", show_default=True, metavar="TIME", help="The longest wait; then exit 10.")
@click.option("--end", is_flag=True, help="Let the store continue: the same as holdfast resume --all.")
@with_options(*action_flags(_drain, NoteOptions))
def drain(session: CliSession, *, timeout: str, note: str | None, end: bool, dry_run: bool) -> int:
    if end:
        return print_changed(session, session.actions.stop_switch.perform("resume", None, dry_run=dry_run))
    changed = session.actions.stop_switch.perform("drain", None, note=note, dry_run=dry_run)
    if not dry_run:
        _wait_until_idle(session, timeout)
        text = "nothing runs and nothing starts; let the store continue with holdfast resume --all"
        changed = structs.replace(changed, note=text)
    return print_changed(session, changed)


drain.help = inspect.cleandoc(_drain.help)


def _wait_until_idle(session: CliSession, timeout: str) -> None:
    store, began, pause = session.store, time.monotonic(), threading.Event()
    total = _count(store, State.RUNNING)
    with progress(session.output, "waiting for jobs", total) as update:
        while left := _count(store, State.RUNNING):
            if time.monotonic() - began > as_duration(timeout).total_seconds():
                hint = "The store stays stopped: holdfast resume --all."
                raise WaitTimeout(f"{left:,} jobs still run", hint=hint, left=left)
            update(total - min(left, total), 0)
            pause.wait(POLL_INTERVAL_S)


def _stop(session: CliSession, *, dry_run: bool, note: str | None = None) -> Changed:
    return session.actions.stop_switch.perform("emergency-stop", None, note=note, dry_run=dry_run)


emergency_stop = action_command(find_action(Target.STORE, "emergency-stop"), _stop, options=NoteOptions)


def _count(store: Store, state: State) -> int:
    return store.views.count(Selector(states=(state,)), cap=COUNT_CAP).count
