"""``enqueue``: enqueue a job by the name of its kind."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

import click
import msgspec

from holdfast.admin.actions.actions import EnqueuedJob
from holdfast.cli.command import command
from holdfast.cli.session import CliSession
from holdfast.domain.jobs.dependencies import After
from holdfast.domain.jobs.job import JobId, State
from holdfast.domain.jobs.kind_options import check_payload, new_job_of
from holdfast.domain.jobs.new_job import EnqueueOutcome, OnConflict
from holdfast.domain.jobs.selector import Selector
from holdfast.domain.names import checked_name
from holdfast.domain.quantities import as_duration
from holdfast.errors import HoldfastError, InvalidInput, InvalidPayload

#: Cancelled jobs that are named one by one.
MAX_WARNINGS = 5
#: What follows the job's id in the text for people.
_ANSWERS = {
    EnqueueOutcome.CREATED: "",
    EnqueueOutcome.EXISTING: " was there already",
    EnqueueOutcome.REPLACED: " was there already and has the new payload",
    EnqueueOutcome.RERUN: " starts after job {}, which is running",
}


@command("enqueue", answers=EnqueuedJob, changes=True)
@click.argument("kind")
@click.option("-p", "--payload", default="{}", metavar="JSON|@FILE|-", help="The handler's parameters.")
@click.option("-q", "--queue", help="Another queue than the kind's.")
@click.option("--priority", type=int, help="Higher is sooner.")
@click.option("--delay", metavar="TIME", help="Not before: 90s, 2h, 1d.")
@click.option("-l", "--label", help="A name to find it by.")
@click.option("--key", help="A unique key: if a live job has it, no new one is made.")
@click.option(
    "--on-conflict",
    type=click.Choice([str(rule) for rule in OnConflict]),
    default="skip",
    show_default=True,
    help="What to do if the key is taken. rerun: run once more after the job that is running.",
)
@click.option(
    "--after", multiple=True, type=int, metavar="ID", help="Start when this job is done; several are allowed."
)
@click.option("--hold", is_flag=True, help="Keep it from starting until holdfast unhold.")
def enqueue(session: CliSession, *, kind: str, payload: str, **options: Any) -> None:
    """Enqueue a job of a kind that an application has registered.

    The names and the types of the parameters are checked at once.

    \b
    Examples:
      holdfast enqueue send_mail -p '{"to": "ada@example.com"}'
      holdfast enqueue import_file -p @parameters.json --delay 2h --label nightly
    """
    published = session.store.kinds.get(kind)
    values = decoded_payload(read_payload(payload))
    check_payload(published, values)
    key, delay, after = (options.pop(name) for name in ("key", "delay", "after"))
    on_conflict = OnConflict(options.pop("on_conflict"))
    request = new_job_of(
        published,
        values,
        key=None if key is None else checked_name(key, label="the key"),
        delay=None if delay is None else as_duration(delay),
        after=After(ids=after) if after else None,
        on_conflict=on_conflict,
        actor=session.actor,
        **options,
    )
    (job,) = session.actions.jobs.enqueue_all("enqueue", [request], note=kind)
    with suppress(HoldfastError):  # the job is enqueued: a hint that cannot be given is no failure
        warn_cancelled(session, [job.id] if request.after else [])
    answer = EnqueuedJob(job.id, job.created, job.outcome, kind, request.queue)
    text = f"job {job.id}{_ANSWERS[job.outcome].format(job.waits_for)}"
    session.output.value(answer, lambda: [str(job.id) if session.output.quiet else text])


def warn_unserved(session: CliSession, queues: set[str]) -> None:
    """Name queues that no live worker serves, if there are live workers at all."""
    served = {name for worker in session.store.workers.list() for name in msgspec.json.decode(worker.queues)}
    for queue in sorted(queues - served) if served else ():
        session.output.note(f"no worker that is alive serves the queue {queue!r}: start one with --queue {queue}")


def warn_cancelled(session: CliSession, ids: Sequence[JobId]) -> None:
    """Name new jobs that will not run: what they should start after has failed already."""
    if not ids:
        return
    cancelled = list(islice(session.store.views.all(Selector(ids=tuple(ids), states=(State.CANCELLED,))), MAX_WARNINGS))
    for job in reversed(cancelled):
        session.output.note(f"job {job.id} was cancelled at once: {job.error or job.note}")
    if len(cancelled) == MAX_WARNINGS and len(ids) > MAX_WARNINGS:
        session.output.note("others may be cancelled too: see holdfast ls --state cancelled")


def read_payload(payload: str) -> str:
    """The JSON of a ``--payload`` option: the text itself, a file (``@FILE``) or stdin (``-``)."""
    if payload == "-":
        return sys.stdin.read()
    if payload.startswith("@"):
        try:
            return Path(payload[1:]).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidInput(f"the payload cannot be read: {error}") from None
    return payload


def decoded_payload(payload: str) -> dict[str, Any]:
    """The parameters in a JSON payload, by name."""
    try:
        values = msgspec.json.decode(payload)
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError) as error:
        raise InvalidPayload(f"the payload is not JSON: {error}", hint="Write it in quotes: '{\"to\": 1}'.") from None
    if not isinstance(values, dict):
        raise InvalidPayload("a payload is a JSON object", hint='Name the handler\'s parameters: {"name": value}.')
    return values
