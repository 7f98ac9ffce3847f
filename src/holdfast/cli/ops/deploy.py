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
from holdfast.cli.action import action_command, action_flags, print_changed
from holdfast.cli.command import command, with_options
from holdfast.cli.session import CliSession
from holdfast.domain.fleet.stop_switch import StopSwitch
from holdfast.domain.jobs.job import LIVE, State
from holdfast.domain.jobs.selector import Selector
from holdfast.domain.quantities import as_duration
from holdfast.errors import CommandFailed, Conflict, Drift, WaitTimeout
from holdfast.output.progress_bar import progress
from holdfast.store import Store
from holdfast.store.fleet.overview import worker_views
from holdfast.worker.commands.run import run_command

POLL_INTERVAL_S = 0.2
#: Largest number of jobs that are counted exactly.
COUNT_CAP = 100_000
CHECK_TIMEOUT_S = 300.0


class AuditAnswer(Struct, frozen=True):
    """Counts of jobs, the versions that workers run, paused queues with their notes, and the stop switch."""

    running: int
    waiting: int
    dead: int
    workers: int
    versions: dict[str, int]
    paused: dict[str, str]
    stopped: StopSwitch | None
    #: Exit codes of the configured checks, by command line.
    checks: dict[str, int] = {}


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
        stopped=store.stop_switch.get(),
    )


def _audit_lines(answer: AuditAnswer) -> Iterator[str]:
    yield f"nothing runs; {answer.waiting:,} jobs wait, {answer.dead:,} are dead"
    versions = ", ".join(f"{count} with version {version}" for version, count in sorted(answer.versions.items()))
    yield f"workers: {versions or 'none'}" + ("  (they differ)" if len(answer.versions) > 1 else "")
    yield from () if answer.stopped is None else (answer.stopped.text,)
    yield from (f"queue {name} is paused: {note}" for name, note in answer.paused.items())
    yield from (f"check passed: {line}" for line in answer.checks)


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
