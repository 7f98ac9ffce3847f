"""``enqueue``: enqueue a job by the name of its kind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import click
import msgspec
from msgspec import Struct, structs

from holdfast.admin.actions.actions import CancelledJob, EnqueuedJob
from holdfast.admin.actions.enqueue import build_job
from holdfast.cli.after import after_option, read_after
from holdfast.cli.command import command, with_options
from holdfast.cli.flags import flags_of, read_flags
from holdfast.cli.jobs.new_job_notes import warn_cancelled
from holdfast.cli.session import CliSession, load_app
from holdfast.client.input_file import InputFile
from holdfast.domain.jobs.enqueue_options import EnqueueOptions
from holdfast.domain.jobs.job import JobId
from holdfast.domain.jobs.new_job import Enqueued, EnqueueOutcome, NewJob
from holdfast.errors import HoldfastError, InvalidPayload, SchemaMissing, UnknownKind
from holdfast.store import Store

#: What follows the job's id in the text for people.
_ANSWERS = {
    EnqueueOutcome.CREATED: "",
    EnqueueOutcome.EXISTING: " exists already",
    EnqueueOutcome.REPLACED: " exists already and has the new payload",
    EnqueueOutcome.RERUN: " starts after job {}, which is running",
}


_OPTIONS = tuple(name for name in EnqueueOptions.__struct_fields__ if name != "after")


class EnqueuedLine(Struct, frozen=True):
    """The job of one payload among several, and what the enqueue did."""

    id: JobId
    outcome: EnqueueOutcome


class EnqueueAnswer(EnqueuedJob, frozen=True, kw_only=True):
    """The last job, and what the enqueue did. *jobs* has those of several payloads, in their order."""

    jobs: list[EnqueuedLine] = []  # noqa: RUF012 - msgspec copies the default


@command("enqueue", answers=EnqueueAnswer, changes=True, creates=False)  # a new store has no kinds
@click.argument("kind")
@click.option(
    "-p",
    "--payload",
    default="{}",
    metavar="JSON|@FILE|-",
    help="Parameters of the handler: JSON, @FILE, - (stdin). Several lines are several jobs.",
)
@with_options(*flags_of(EnqueueOptions, short={"queue": "q", "label": "l"}, only=_OPTIONS), after_option)
def enqueue(session: CliSession, *, kind: str, payload: str, dependencies: tuple[str, ...], **options: Any) -> None:
    """Enqueue a job of a kind that an application has registered.

    The names and the types of the parameters are checked at once. A kind that the store does not know yet comes
    from the application of the configuration file. With one payload on each line, all jobs are enqueued or none.

    Examples:
      holdfast enqueue send_mail -p '{"to": "ada@example.com"}'
      holdfast enqueue import_file -p @parameters.json --delay 2h --after label=nightly
      holdfast enqueue import_file --max-attempts 5 --retry 10s,1m,10m --timeout 2h
    """
    chosen = EnqueueOptions(**read_flags(EnqueueOptions, options))
    payloads = decoded_payloads(read_payload(payload))
    after = read_after(session, dependencies, kind=kind)
    requests = _build_jobs(session, kind, payloads, structs.replace(chosen, after=after))
    jobs = session.actions.jobs.enqueue_all("enqueue", requests, note=kind)
    cancelled: list[CancelledJob] = []
    with suppress(HoldfastError):  # the jobs are enqueued: a hint that cannot be built is not a failure
        cancelled = warn_cancelled(session, requests, jobs)
    session.output.value(_answer(requests, jobs, cancelled), lambda: _lines(jobs, quiet=session.output.quiet))


def _answer(requests: Sequence[NewJob], jobs: Sequence[Enqueued], cancelled: list[CancelledJob]) -> EnqueueAnswer:
    last, request = jobs[-1], requests[-1]
    lines = [EnqueuedLine(job.id, job.outcome) for job in jobs] if len(jobs) > 1 else []
    return EnqueueAnswer(
        last.id, last.created, last.outcome, request.kind, request.queue, cancelled=cancelled, jobs=lines
    )


def _lines(jobs: Sequence[Enqueued], *, quiet: bool) -> list[str]:
    return [str(job.id) if quiet else f"job {job.id}{_ANSWERS[job.outcome].format(job.waits_for)}" for job in jobs]


def _build_jobs(
    session: CliSession, kind: str, payloads: Sequence[Mapping[str, Any]], options: EnqueueOptions
) -> list[NewJob]:
    """Build jobs. If the store does not know their kind, the application of the configuration publishes it."""

    def build(store: Store) -> list[NewJob]:
        return [build_job(store, kind, payload, options, actor=session.actor) for payload in payloads]

    try:
        return build(session.store)
    except (UnknownKind, SchemaMissing):
        if (target := session.setting("app")) is None:
            raise
        app = load_app(target)
        if kind not in app.served_kinds or app.configured_url not in (None, session.url):
            raise
        app.use(session.url)
        with app:
            return build(app.store)


def read_payload(payload: str) -> str:
    """The JSON of a ``--payload`` option: the text itself, a file (``@FILE``) or stdin (``-``)."""
    if payload == "-":
        return InputFile("-").text()
    return InputFile(payload[1:]).text() if payload.startswith("@") else payload


def decoded_payloads(text: str) -> list[dict[str, Any]]:
    """The parameters of one job, or of several, each on a line of its own.

    Raises:
        InvalidPayload: It names the line.
    """
    lines = [(number, line) for number, line in enumerate(text.split("\n"), start=1) if line.strip()]
    if len(lines) < 2 or not _is_object(lines[0][1]):
        return [decoded_payload(text)]
    payloads = []
    for number, line in lines:
        try:
            payloads.append(decoded_payload(line))
        except InvalidPayload as error:
            raise InvalidPayload(f"line {number}: {error.message}", hint=error.hint) from None
    return payloads


def _is_object(line: str) -> bool:
    """Whether a line is a payload by itself; otherwise it is the beginning of a longer one."""
    with suppress(InvalidPayload):
        decoded_payload(line)
        return True
    return False


def decoded_payload(payload: str) -> dict[str, Any]:
    """The parameters in a JSON payload, by name."""
    try:
        values = msgspec.json.decode(payload)
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError) as error:
        raise InvalidPayload(f"the payload is not JSON: {error}", hint="Write it in quotes: '{\"to\": 1}'.") from None
    if not isinstance(values, dict):
        raise InvalidPayload("a payload is a JSON object", hint='Name the handler\'s parameters: {"name": value}.')
    return values
