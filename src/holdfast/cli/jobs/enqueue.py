"""``enqueue``: enqueue a job by the name of its kind."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import click
import msgspec

from holdfast.admin.actions.actions import CancelledJob, EnqueuedJob
from holdfast.admin.actions.enqueue import build_job
from holdfast.cli.command import command, with_options
from holdfast.cli.flags import flags_of, read_flags
from holdfast.cli.jobs.new_job_notes import warn_cancelled
from holdfast.cli.session import CliSession, load_app
from holdfast.client.input_file import InputFile
from holdfast.domain.jobs.enqueue_options import EnqueueOptions
from holdfast.domain.jobs.new_job import EnqueueOutcome, NewJob
from holdfast.errors import HoldfastError, InvalidPayload, SchemaMissing, UnknownKind

#: What follows the job's id in the text for people.
_ANSWERS = {
    EnqueueOutcome.CREATED: "",
    EnqueueOutcome.EXISTING: " exists already",
    EnqueueOutcome.REPLACED: " exists already and has the new payload",
    EnqueueOutcome.RERUN: " starts after job {}, which is running",
}


@command("enqueue", answers=EnqueuedJob, changes=True, creates=False)  # a new store has no kinds
@click.argument("kind")
@click.option(
    "-p", "--payload", default="{}", metavar="JSON|@FILE|-", help="Parameters of the handler: JSON, @FILE, - (stdin)."
)
@with_options(*flags_of(EnqueueOptions, short={"queue": "q", "label": "l"}))
def enqueue(session: CliSession, *, kind: str, payload: str, **options: Any) -> None:
    """Enqueue a job of a kind that an application has registered.

    The names and the types of the parameters are checked at once. A kind that the store does not know yet comes
    from the application of the configuration file.

    Examples:
      holdfast enqueue send_mail -p '{"to": "ada@example.com"}'
      holdfast enqueue import_file -p @parameters.json --delay 2h --label nightly
      holdfast enqueue import_file --max-attempts 5 --retry 10s,1m,10m --timeout 2h
    """
    chosen = EnqueueOptions(**read_flags(EnqueueOptions, options))
    values = decoded_payload(read_payload(payload))
    request = _build_job(session, kind, values, chosen)
    (job,) = session.actions.jobs.enqueue_all("enqueue", [request], note=kind)
    cancelled: list[CancelledJob] = []
    with suppress(HoldfastError):  # the job is enqueued: a hint that cannot be built is not a failure
        cancelled = warn_cancelled(session, [request], [job])
    answer = EnqueuedJob(job.id, job.created, job.outcome, kind, request.queue, cancelled=cancelled)
    text = f"job {job.id}{_ANSWERS[job.outcome].format(job.waits_for)}"
    session.output.value(answer, lambda: [str(job.id) if session.output.quiet else text])


def _build_job(session: CliSession, kind: str, payload: dict[str, Any], options: EnqueueOptions) -> NewJob:
    """Build a job. If the store does not know its kind, the application of the configuration publishes it."""
    try:
        return build_job(session.store, kind, payload, options, actor=session.actor)
    except (UnknownKind, SchemaMissing):
        if (target := session.setting("app")) is None:
            raise
        app = load_app(target)
        if kind not in app.served_kinds or app.configured_url not in (None, session.url):
            raise
        app.use(session.url)
        with app:
            return build_job(app.store, kind, payload, options, actor=session.actor)


def read_payload(payload: str) -> str:
    """The JSON of a ``--payload`` option: the text itself, a file (``@FILE``) or stdin (``-``)."""
    if payload == "-":
        return InputFile("-").text()
    return InputFile(payload[1:]).text() if payload.startswith("@") else payload


def decoded_payload(payload: str) -> dict[str, Any]:
    """The parameters in a JSON payload, by name."""
    try:
        values = msgspec.json.decode(payload)
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError) as error:
        raise InvalidPayload(f"the payload is not JSON: {error}", hint="Write it in quotes: '{\"to\": 1}'.") from None
    if not isinstance(values, dict):
        raise InvalidPayload("a payload is a JSON object", hint='Name the handler\'s parameters: {"name": value}.')
    return values
