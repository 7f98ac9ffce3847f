"""``audit``, ``drain`` and ``emergency-stop``: checks and pauses around a deployment."""

from __future__ import annotations

import shlex
import threading
import time
from collections import Counter
from collections.abc import Iterator

import click
from msgspec import Struct, structs

from holdfast.cli.command import command
from holdfast.cli.session import CliSession
from holdfast.domain.jobs.job import LIVE, State
from holdfast.domain.jobs.selector import Selector
from holdfast.domain.quantities import as_duration
from holdfast.errors import CommandFailed, Conflict, Drift, WaitTimeout
from holdfast.output.printer import progress
from holdfast.store import Store
from holdfast.store.fleet.overview import all_queues, worker_views
from holdfast.worker.commands.run import run_command

POLL_INTERVAL_S = 0.2
#: Largest number of jobs that are counted exactly.
COUNT_CAP = 100_000
CHECK_TIMEOUT_S = 300.0
#: Notes of paused queues; ``drain --end`` resumes only queues with such a note.
DRAIN_NOTE = "drained by "
STOP_NOTE = "emergency stop by "


class AuditAnswer(Struct, frozen=True):
    """Counts of jobs, the versions that workers run, and paused queues with their notes."""

    running: int
    waiting: int
    dead: int
    workers: int
    versions: dict[str, int]
    paused: dict[str, str]
    #: Exit codes of the configured checks, by command line.
    checks: dict[str, int] = {}


class DrainAnswer(Struct, frozen=True):
    """The queues that were paused or resumed, and the number of jobs that still ran at the end."""

    queues: list[str]
    running: int


class StopAnswer(Struct, frozen=True):
    """The queues that were paused, and the number of running jobs that were requested to stop."""

    queues: list[str]
    stop_requested: int


@command("audit", answers=AuditAnswer)
@click.option("--expect", metavar="VERSION", help="Exit 14 unless all workers run this code.")
def audit(session: CliSession, *, expect: str | None) -> None:
    """Say whether it is safe to deploy: exit 9 while jobs run, 14 if a worker runs other code than expected.

    The programs that audit_checks names in the configuration file are run, too, without a shell: exit 1 if one fails.

    \b
    Examples:
      holdfast audit && ./deploy.sh
      holdfast audit --expect 2.4.1
    """
    answer = _audit(session.store)
    context = {name: getattr(answer, name) for name in ("running", "waiting", "dead", "versions")}
    other = ", ".join(sorted(version for version in answer.versions if expect not in (None, version)))
    if other:
        raise Drift(f"workers run {other}, not {expect}", hint="Restart them.", **context)
    if answer.running:
        hint = "Wait for them, or holdfast drain."
        raise Conflict(f"{answer.running:,} jobs are running", hint=hint, **context)
    answer = structs.replace(answer, checks=_run_checks(session.setting("audit_checks")))
    session.output.value(answer, lambda: _audit_lines(answer))


def _run_checks(checks: list[list[str]]) -> dict[str, int]:
    """Run the configured checks one after the other; the first failure raises CommandFailed."""
    exit_codes: dict[str, int] = {}
    for argv in checks:
        deadline = time.monotonic() + CHECK_TIMEOUT_S
        result = run_command(argv, is_late=lambda deadline=deadline: time.monotonic() > deadline)  # type: ignore[misc]
        line = shlex.join(argv)
        exit_codes[line] = result.exit_code
        if result.exit_code:
            hint = "Mend what it complains of, or take it out of audit_checks in the configuration file."
            raise CommandFailed(f"the check {line!r} failed with {result.status}: {result.last_output}", hint=hint)
    return exit_codes


def _audit(store: Store) -> AuditAnswer:
    counts = {state: _count(store, state) for state in (*LIVE, State.DEAD)}
    workers = [worker_views(row) for row in store.workers.list()]
    return AuditAnswer(
        running=counts[State.RUNNING],
        waiting=sum(counts[state] for state in LIVE if state is not State.RUNNING),
        dead=counts[State.DEAD],
        workers=len(workers),
        versions=dict(Counter(worker.version or "none" for worker in workers)),
        paused={queue.name: queue.note or "" for queue in store.queues.list() if queue.paused},
    )


def _audit_lines(answer: AuditAnswer) -> Iterator[str]:
    yield f"nothing runs; {answer.waiting:,} jobs wait, {answer.dead:,} are dead"
    versions = ", ".join(f"{count} with version {version}" for version, count in sorted(answer.versions.items()))
    yield f"workers: {versions or 'none'}" + ("  (they differ)" if len(answer.versions) > 1 else "")
    yield from (f"queue {name} is paused: {note}" for name, note in answer.paused.items())
    yield from (f"check passed: {line}" for line in answer.checks)


@command("drain", answers=DrainAnswer, changes=True)
@click.option(
    "--timeout", default="10m", show_default=True, metavar="TIME", help="Give up after so long, with exit 10."
)
@click.option("--end", is_flag=True, help="Let the queues go on that were drained.")
def drain(session: CliSession, *, timeout: str, end: bool) -> None:
    """Start nothing more in any queue, and wait until nothing runs; holdfast drain --end lets them go on."""
    store = session.store
    if end:
        paused = [queue for queue in store.queues.list() if queue.paused]
        queues = [queue.name for queue in paused if (queue.note or "").startswith((DRAIN_NOTE, STOP_NOTE))]
        session.actions.fleet.resume_all("drain --end", queues)
        answer = DrainAnswer(queues, _count(store, State.RUNNING))
        session.output.value(answer, lambda: [f"{len(queues)} queues go on"])
        return
    queues = _pause_all(session, "drain", f"{DRAIN_NOTE}{session.actor}")
    _wait_until_idle(session, timeout)
    session.output.value(DrainAnswer(queues, 0), lambda: [f"nothing runs; {len(queues)} queues are paused"])


def _wait_until_idle(session: CliSession, timeout: str) -> None:
    store, began, pause = session.store, time.monotonic(), threading.Event()
    total = _count(store, State.RUNNING)
    with progress(session.output, "waiting for jobs", total) as update:
        while left := _count(store, State.RUNNING):
            if time.monotonic() - began > as_duration(timeout).total_seconds():
                hint = "Queues stay paused: holdfast drain --end."
                raise WaitTimeout(f"{left:,} jobs still run", hint=hint, left=left)
            update(total - min(left, total), 0)
            pause.wait(POLL_INTERVAL_S)


@command("emergency-stop", answers=StopAnswer, changes=True)
@click.option("--yes", is_flag=True, required=True, expose_value=False, help="Yes, stop everything.")
def emergency_stop(session: CliSession) -> None:
    """Start nothing more, and have all that runs stop: programs are ended, jobs go back and are held.

    Nothing is lost: holdfast drain --end and holdfast resume let queues and jobs go on.
    """
    note = f"{STOP_NOTE}{session.actor}"
    queues = _pause_all(session, "emergency-stop", note)
    audited = session.actions.audited("emergency-stop", "state=running")
    stopping = audited.control.pause(Selector(states=(State.RUNNING,)), actor=session.actor, note=note)
    text = f"{len(queues)} queues are paused, {len(stopping):,} jobs are told to stop"
    session.output.value(StopAnswer(queues, len(stopping)), lambda: [text])


def _pause_all(session: CliSession, action: str, note: str) -> list[str]:
    """Pause all queues and return their names; a queue that is already paused keeps its note."""
    names = [queue.name for queue in all_queues(session.store) if not queue.paused]
    session.actions.fleet.pause_all(action, names, note=note)
    return names


def _count(store: Store, state: State) -> int:
    return store.views.count(Selector(states=(state,)), cap=COUNT_CAP).count
