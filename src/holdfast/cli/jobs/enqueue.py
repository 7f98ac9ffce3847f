"""``enqueue``: enqueue a job by the name of its kind."""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import click
import msgspec

from holdfast.admin.actions.actions import EnqueuedJob
from holdfast.cli.command import command, with_options
from holdfast.cli.flags import flags_of, read_flags
from holdfast.cli.jobs.new_job_notes import warn_cancelled
from holdfast.cli.session import CliSession
from holdfast.domain.jobs.enqueue_options import EnqueueOptions
from holdfast.domain.jobs.kind_options import check_payload, new_job_of
from holdfast.domain.jobs.new_job import EnqueueOutcome
from holdfast.domain.names import checked_name
from holdfast.errors import HoldfastError, InvalidInput, InvalidPayload

#: What follows the job's id in the text for people.
_ANSWERS = {
    EnqueueOutcome.CREATED: "",
    EnqueueOutcome.EXISTING: " was there already",
    EnqueueOutcome.REPLACED: " was there already and has the new payload",
    EnqueueOutcome.RERUN: " starts after job {}, which is running",
}


@command("enqueue", answers=EnqueuedJob, changes=True, creates=False)  # a new store has no kinds
@click.argument("kind")
@click.option("-p", "--payload", default="{}", metavar="JSON|@FILE|-", help="The handler's parameters.")
@with_options(*flags_of(EnqueueOptions, short={"queue": "q", "label": "l"}))
def enqueue(session: CliSession, *, kind: str, payload: str, **options: Any) -> None:
    """Enqueue a job of a kind that an application has registered.

    The names and the types of the parameters are checked at once.

    \b
    Examples:
      holdfast enqueue send_mail -p '{"to": "ada@example.com"}'
      holdfast enqueue import_file -p @parameters.json --delay 2h --label nightly
      holdfast enqueue import_file --max-attempts 5 --retry 10s,1m,10m --timeout 2h
    """
    published = session.store.kinds.get(kind)
    values = decoded_payload(read_payload(payload))
    check_payload(published, values)
    if options["key"] is not None:
        checked_name(options["key"], label="the key")
    request = new_job_of(published, values, EnqueueOptions(**read_flags(EnqueueOptions, options)), actor=session.actor)
    (job,) = session.actions.jobs.enqueue_all("enqueue", [request], note=kind)
    with suppress(HoldfastError):  # the job is enqueued: a hint that cannot be given is no failure
        warn_cancelled(session, [job.id] if request.after else [])
    answer = EnqueuedJob(job.id, job.created, job.outcome, kind, request.queue)
    text = f"job {job.id}{_ANSWERS[job.outcome].format(job.waits_for)}"
    session.output.value(answer, lambda: [str(job.id) if session.output.quiet else text])


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
