"""``enqueue``: enqueue a job by the name of its kind."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click
import msgspec
from msgspec import Struct

from holdfast.cli.command import command
from holdfast.cli.session import CliSession
from holdfast.domain.jobs.dependencies import After
from holdfast.domain.jobs.job import JobId
from holdfast.domain.jobs.kind_options import check_payload, new_job_of
from holdfast.domain.names import checked_name
from holdfast.domain.quantities import as_duration
from holdfast.errors import InvalidInput, InvalidPayload


class EnqueueAnswer(Struct, frozen=True):
    """The enqueued job; if *created* is false, a live job with the same key already existed."""

    id: JobId
    created: bool
    kind: str
    queue: str


@command("enqueue", answers=EnqueueAnswer, changes=True)
@click.argument("kind")
@click.option("-p", "--payload", default="{}", metavar="JSON|@FILE|-", help="The handler's parameters.")
@click.option("-q", "--queue", help="Another queue than the kind's.")
@click.option("--priority", type=int, help="Higher is sooner.")
@click.option("--delay", metavar="TIME", help="Not before: 90s, 2h, 1d.")
@click.option("-l", "--label", help="A name to find it by.")
@click.option("--key", help="A unique key: if a live job has it, no new one is made.")
@click.option(
    "--after", multiple=True, type=int, metavar="ID", help="Start when this job is done; several are allowed."
)
@click.option("--hold", is_flag=True, help="Keep it from starting until holdfast unhold.")
def enqueue(session: CliSession, *, kind: str, payload: str, **options: Any) -> None:
    """Enqueue a job of a kind that an application has registered.

    The names of the parameters are checked at once, their types by the worker.

    \b
    Examples:
      holdfast enqueue send_mail -p '{"to": "ada@example.com"}'
      holdfast enqueue import_file -p @parameters.json --delay 2h --label nightly
    """
    published = session.store.kinds.get(kind)
    values = decoded_payload(read_payload(payload))
    check_payload(published, values)
    key, delay, after = (options.pop(name) for name in ("key", "delay", "after"))
    request = new_job_of(
        published,
        values,
        key=None if key is None else checked_name(key, label="the key"),
        delay=None if delay is None else as_duration(delay),
        after=After(ids=after) if after else None,
        actor=session.actor,
        **options,
    )
    (job,) = session.actions.jobs.enqueue_all("enqueue", [request], note=kind)
    text = f"job {job.id}" + ("" if job.created else " was there already")
    answer = EnqueueAnswer(job.id, job.created, kind, request.queue)
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
