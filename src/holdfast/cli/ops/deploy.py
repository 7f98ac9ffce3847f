"""``audit``, ``drain`` and ``emergency-stop``: before, during and instead of a deploy."""

from __future__ import annotations

import shlex
import threading
import time
from collections.abc import Iterator

import click
from msgspec import Struct, structs

from holdfast.cli.command import command
from holdfast.cli.session import Session
from holdfast.domain.jobs.job import State
from holdfast.domain.jobs.selector import Selector
from holdfast.domain.text import as_duration
from holdfast.errors import CommandFailed, Conflict, Drift, WaitTimeout
from holdfast.output.progress import progress
from holdfast.store import Store
from holdfast.store.fleet.overview import all_queues, worker_views
from holdfast.worker.commands.run import run_command

#: How often the store is asked, in seconds; and up to how many jobs are counted.
POLL, CAP = 0.2, 100_000
#: A check of the configuration may take so many seconds.
LONGEST_CHECK = 300.0
DRAINED = "drained by "
STOPPED = "emergency stop by "
LIVE = (State.RUNNING, State.READY, State.SCHEDULED, State.WAITING, State.HELD)


class Audit(Struct, frozen=True):
    """What runs, waits and has failed; which code the workers have loaded; which queues are paused, and why."""

    running: int
    waiting: int
    dead: int
    workers: int
    versions: dict[str, int]
    paused: dict[str, str]
    #: The checks of the configuration, each with its exit code.
    checks: dict[str, int] = {}


class DrainAnswer(Struct, frozen=True):
    """The queues that start nothing any more, or go on again; *running* jobs were left when it came back."""

    queues: list[str]
    running: int


class StopAnswer(Struct, frozen=True):
    """The queues that start nothing any more, and how many running jobs were told to stop."""

    queues: list[str]
    told: int


@command("audit", answers=Audit)
@click.option("--expect", metavar="VERSION", help="Exit 14 unless all workers run this code.")
def audit(session: Session, *, expect: str | None) -> None:
    """Say whether it is safe to deploy: exit 9 while jobs run, 14 if a worker runs other code than expected.

    The programs that audit_checks names in the configuration file are run, too, without a shell: exit 1 if one fails.

    \b
    Examples:
      holdfast audit && ./deploy.sh
      holdfast audit --expect 2.4.1
    """
    found = _audit(session.store)
    other = {version for version in found.versions if expect is not None and version != expect}
    if other:
        names = ", ".join(sorted(other))
        raise Drift(f"workers run {names}, not {expect}", hint="Restart them.", **_context(found))
    if found.running:
        hint = "Wait for them, or holdfast drain."
        raise Conflict(f"{found.running:,} jobs are running", hint=hint, **_context(found))
    found = structs.replace(found, checks=_checked(session.setting("audit_checks")))
    session.output.value(found, lambda: _lines(found))


def _checked(checks: list[list[str]]) -> dict[str, int]:
    """Run the checks of the configuration, one after the other.

    Raises:
        CommandFailed: One has failed; the message has its last words.
    """
    done: dict[str, int] = {}
    for words in checks:
        began = time.monotonic()
        finished = run_command(words, is_late=lambda began=began: time.monotonic() - began > LONGEST_CHECK)  # type: ignore[misc]
        done[shlex.join(words)] = finished.exit_code
        if finished.exit_code:
            raise CommandFailed(
                f"the check {shlex.join(words)!r} failed with {finished.status}: {finished.last_output}",
                hint="Mend what it complains of, or take it out of audit_checks in the configuration file.",
            )
    return done


def _audit(store: Store) -> Audit:
    counts = {state: store.views.count(Selector(states=(state,)), cap=CAP).count for state in (*LIVE, State.DEAD)}
    workers = [worker_views(found) for found in store.workers.list()]
    versions: dict[str, int] = {}
    for worker in workers:
        versions[worker.version or "none"] = versions.get(worker.version or "none", 0) + 1
    return Audit(
        running=counts[State.RUNNING],
        waiting=sum(counts[state] for state in LIVE if state is not State.RUNNING),
        dead=counts[State.DEAD],
        workers=len(workers),
        versions=versions,
        paused={queue.name: queue.note or "" for queue in store.queues.list() if queue.paused},
    )


def _context(found: Audit) -> dict[str, object]:
    return {"running": found.running, "waiting": found.waiting, "dead": found.dead, "versions": found.versions}


def _lines(found: Audit) -> Iterator[str]:
    yield f"nothing runs; {found.waiting:,} jobs wait, {found.dead:,} are dead"
    told = ", ".join(f"{count} with version {version}" for version, count in sorted(found.versions.items()))
    yield f"workers: {told or 'none'}" + ("  (they differ)" if len(found.versions) > 1 else "")
    yield from (f"queue {name} is paused: {note}" for name, note in found.paused.items())
    yield from (f"check passed: {words}" for words in found.checks)


@command("drain", answers=DrainAnswer, changes=True)
@click.option(
    "--timeout", default="10m", show_default=True, metavar="TIME", help="Give up after so long, with exit 10."
)
@click.option("--end", is_flag=True, help="Let the queues go on that were drained.")
def drain(session: Session, *, timeout: str, end: bool) -> None:
    """Start nothing more in any queue, and wait until nothing runs; holdfast drain --end lets them go on."""
    store = session.store
    if end:
        queues = [queue.name for queue in store.queues.list() if queue.paused and _is_ours(queue.note)]
        for name in queues:
            store.queues.resume(name)
        session.actions.did("drain --end", f"queue={','.join(queues)}", count=len(queues))
        session.output.value(DrainAnswer(queues, _running(store)), lambda: [f"{len(queues)} queues go on"])
        return
    queues = _pause_all(store, f"{DRAINED}{session.actor}")
    session.actions.did("drain", f"queue={','.join(queues)}", count=len(queues))
    began, bell, total = time.monotonic(), threading.Event(), _running(store)
    with progress(session.output, "waiting for jobs", total) as tell:
        while left := _running(store):
            if time.monotonic() - began > as_duration(timeout).total_seconds():
                raise WaitTimeout(
                    f"{left:,} jobs still run", hint="Queues stay paused: holdfast drain --end.", left=left
                )
            tell(total - min(left, total), 0)
            bell.wait(POLL)
    session.output.value(DrainAnswer(queues, 0), lambda: [f"nothing runs; {len(queues)} queues are paused"])


@command("emergency-stop", answers=StopAnswer, changes=True)
@click.option("--yes", is_flag=True, required=True, help="Yes, stop everything.")
def emergency_stop(session: Session, *, yes: bool) -> None:
    """Start nothing more, and have all that runs stop: programs are ended, jobs go back and are held.

    Nothing is lost: holdfast drain --end and holdfast resume let queues and jobs go on.
    """
    del yes
    note = f"{STOPPED}{session.actor}"
    queues = _pause_all(session.store, note)
    told = session.store.control.pause(Selector(states=(State.RUNNING,)), actor=session.actor, note=note)
    session.actions.did("emergency-stop", f"queue={','.join(queues)}", count=len(told))
    done = StopAnswer(queues, len(told))
    session.output.value(done, lambda: [f"{len(queues)} queues are paused, {len(told):,} jobs are told to stop"])


def _pause_all(store: Store, note: str) -> list[str]:
    """Pause every queue that is known, but those that are paused already: they stay so afterwards."""
    names = [queue.name for queue in all_queues(store) if not queue.paused]
    for name in names:
        store.queues.pause(name, note=note)
    return names


def _is_ours(note: str | None) -> bool:
    return note is not None and note.startswith((DRAINED, STOPPED))


def _running(store: Store) -> int:
    return store.views.count(Selector(states=(State.RUNNING,)), cap=CAP).count
