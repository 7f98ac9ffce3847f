"""What people do to jobs: cancel, pause, resume, retry, kill, restart, hold, unhold, rm."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any

import click
from msgspec import Struct, structs

from holdfast.cli.confirm import confirm
from holdfast.cli.select import is_everything, refuse_missing, selecting
from holdfast.cli.session import Session
from holdfast.cli.shared import Command, command
from holdfast.domain.job import Job, JobId, State
from holdfast.domain.selector import Selector
from holdfast.domain.text import as_bytes
from holdfast.errors import InvalidInput, NoSuchJob
from holdfast.store.control import Control

#: More jobs than this are counted as this many.
CAP = 1_000_000

#: To find out why some jobs were left alone, so many are looked at.
LOOKED_AT = 10_000
#: What each verb is for.
APPLIES = {
    "cancel": "what has ended stays as it is",
    "pause": "what has ended or is held stays as it is",
    "resume": "only what is held or told to pause goes on",
    "retry": "only what is dead, cancelled or waits for a retry runs again; holdfast restart takes what is done",
    "kill": "only what runs is ended; holdfast cancel takes what waits, too",
    "restart": "only what has ended begins anew, what is done only if it is a program, and no second job with one key",
    "hold": "only what waits can be held",
    "unhold": "only what is held can be let go",
    "rm": "it was gone already",
    "set": "the others have these values already, or cannot take them any more",
}

#: Changes the chosen jobs and answers which; gets the options of its command.
Act = Callable[..., list[JobId]]

note = click.option("--note", metavar="TEXT", help="Why, for those who look later.")


class Changed(Struct, frozen=True):
    """What a verb did: how many jobs matched, and which of them were changed."""

    verb: str
    matched: int
    changed: int
    dry_run: bool
    ids: list[JobId]
    #: What has become of those that were not changed, if there are any.
    why: str | None = None


def verb(name: str, *options: Any, destructive: bool = False) -> Callable[[Act], Command]:
    """A command that does one thing to the jobs it is given; a *destructive* one asks before it takes several."""

    def make(act: Act) -> Command:
        def run(session: Session, selector: Selector, *, dry_run: bool, yes: bool = True, **given: Any) -> None:
            matched = count_matches(session, selector, name)
            if not dry_run:
                _sure(session, name, matched, yes=yes)
            ids = [] if dry_run else act(session.store.control, selector, actor=session.actor, **given)
            tell_changed(session, selector, Changed(name, matched, len(ids), dry_run, ids))

        run.__doc__ = act.__doc__
        function: Callable[..., Any] = run
        if destructive:
            function = click.option("--yes", is_flag=True, help="Do not ask.")(function)
        function = click.option("--dry-run", is_flag=True, help="Say how many jobs match; change nothing.")(function)
        for option in reversed(options):
            function = option(function)
        return command(name, answers=Changed, changes=True)(selecting(function))

    return make


@verb("cancel", destructive=True)
def cancel(control: Control, chosen: Selector, *, actor: str) -> list[JobId]:
    """Cancel jobs: at once where nobody runs them; a running one is told at its worker's next heartbeat."""
    return control.cancel(chosen, actor=actor)


@verb("pause", note)
def pause(control: Control, chosen: Selector, *, actor: str, note: str | None) -> list[JobId]:
    """Hold jobs, running ones too.

    A running one is told to stop at its worker's next heartbeat; it loses no attempt, and its checkpoint
    waits for the run after resume.
    """
    return control.pause(chosen, actor=actor, note=note)


@verb("resume")
def resume(control: Control, chosen: Selector, *, actor: str) -> list[JobId]:
    """Let paused and held jobs go on."""
    return control.resume(chosen, actor=actor)


@verb("retry")
def retry(control: Control, chosen: Selector, *, actor: str) -> list[JobId]:
    """Run dead and cancelled jobs again, with all their attempts; those that wait for a retry run now."""
    return control.retry(chosen, actor=actor)


@verb("kill", destructive=True)
def kill(control: Control, chosen: Selector, *, actor: str) -> list[JobId]:
    """End jobs that run: they are asked to, and killed if they do not within seconds. What waits stays."""
    narrowed = chosen.only(State.RUNNING)
    return [] if narrowed.empty else control.cancel(narrowed, actor=actor)


@verb("restart", click.option("--memory", metavar="SIZE", help="With this memory cap from now on: 512M, 8G."))
def restart(control: Control, chosen: Selector, *, actor: str, memory: str | None) -> list[JobId]:
    """Run programs again that have ended, done ones too: the same jobs, with a new attempt and a log of its own.

    One that was killed for its memory (oom) can be given more: holdfast restart 17 --memory 4G.
    """
    if memory is not None:
        control.set_memory(chosen, as_bytes(memory), actor=actor)
    return control.restart(chosen, actor=actor)


@verb("hold", note)
def hold(control: Control, chosen: Selector, *, actor: str, note: str | None) -> list[JobId]:
    """Keep jobs that nobody runs from starting until somebody lets them go."""
    return control.hold(chosen, actor=actor, note=note)


@verb("unhold")
def unhold(control: Control, chosen: Selector, *, actor: str) -> list[JobId]:
    """Let held jobs go."""
    return control.unhold(chosen, actor=actor)


@verb("rm", destructive=True)
def rm(control: Control, chosen: Selector, *, actor: str) -> list[JobId]:  # noqa: ARG001 - nothing is left to tell of
    """Remove jobs with their whole history. A running job, or one that a live job needs, is refused (exit 9)."""
    return control.remove(chosen)


def count_matches(session: Session, selector: Selector, name: str) -> int:
    """How many jobs are meant. What matches nothing is an error, so that a misspelt label is noticed."""
    if is_everything(selector):
        raise InvalidInput(
            f"which jobs should {name} take?", hint="Give ids, or --label, --queue, --state … or --filter."
        )
    refuse_missing(session, selector)
    matched = session.store.views.count(selector, cap=CAP).count
    if not matched:
        raise NoSuchJob("no job matches", hint="holdfast ls with the same options shows what does.")
    return matched


def _sure(session: Session, name: str, matched: int, *, yes: bool) -> None:
    """Ask before more than one job is lost; a program says --yes."""
    confirm(session, f"{name} {matched} jobs", yes=yes or matched == 1, hint="Add --yes, or look first with --dry-run.")


def tell_changed(session: Session, selector: Selector, done: Changed) -> None:
    """Say what was done; and if some jobs were left alone, how they stand and what the verb is for."""
    if not done.dry_run and done.changed < done.matched:
        left = (job for job in islice(session.store.views.all(selector), LOOKED_AT) if job.id not in set(done.ids))
        done = structs.replace(done, why=_why(done.verb, left))
    session.output.value(done, lambda: [_line(done)])


def _why(verb: str, left: Iterable[Job]) -> str:
    found = Counter(f"{job.state}, and told already" if job.wanted is not None else str(job.state) for job in left)
    told = ", ".join(f"{count:,} {state}" for state, count in found.items())
    return f"{told}; {APPLIES[verb]}" if told else APPLIES[verb]


def _line(done: Changed) -> str:
    if done.dry_run:
        return f"{_jobs(done.matched)} would be asked; nothing was changed"
    left = f" (left: {done.why})" if done.why else ""
    return f"{done.verb}: {done.changed} of {_jobs(done.matched)}{left}"


def _jobs(count: int) -> str:
    return "1 job" if count == 1 else f"{count:,} jobs"
