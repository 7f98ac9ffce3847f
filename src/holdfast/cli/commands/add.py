"""``add``: add a command as a job, or many from a file."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import click
import msgspec
from msgspec import Struct, structs

from holdfast.admin.actions.actions import CancelledJob
from holdfast.cli.command import command, with_options
from holdfast.cli.commands.command_words import (
    WordsCommand,
    argv_argument,
    check_first_word,
    command_words,
    shell_option,
)
from holdfast.cli.commands.options import OPTIONS, JobBuilder
from holdfast.cli.jobs.new_job_notes import warn_cancelled, warn_unserved
from holdfast.cli.session import CliSession
from holdfast.client.input_file import InputFile
from holdfast.domain.commands.command import CALLBACK_FIELDS, Command, check_shell, load_command, placeholders
from holdfast.domain.commands.preset import Presets, PresetValues
from holdfast.domain.commands.shell_syntax import check_line, shell_words
from holdfast.domain.jobs.dependencies import After, When
from holdfast.domain.jobs.job import HIGHEST_PRIORITY, JobId
from holdfast.domain.jobs.new_job import Enqueued, NewJob, Unique
from holdfast.errors import HoldfastError, InvalidInput

#: Number of bad lines that an error message shows; its data names up to 1000.
SHOWN_BAD_LINES = 20
#: A callback runs in the queue of its job, also while that is paused, and without the caps of the job.
CALLBACK_OPTIONS: dict[str, Any] = dict.fromkeys(("delay", "memory", "cpus", "timeout"))
CALLBACK_OPTIONS |= dict.fromkeys(("hold", "pause_queue", "require_cap"), False)
CALLBACK_OPTIONS |= {"dependencies": (), "tags": (), "label": "callback", "retry": 2}
CALLBACK_IN_SHELL = "Write sh -c '…' - {id}, where $1 is the id"


class AddAnswer(Struct, frozen=True):
    """The number of added jobs and their range of ids; *known* jobs already existed with the same key.

    *id* is set if the answer is about a single job, new or known. *cancelled* are up to 100 new jobs that do not run.
    """

    id: JobId | None
    added: int
    known: int
    first: JobId | None
    last: JobId | None
    cancelled: list[CancelledJob] = []


@command("add", answers=AddAnswer, changes=True, cls=WordsCommand)
@argv_argument
@shell_option
@click.option("--key", help="Unique key. If a live command has it, none is added.")
@click.option(
    "--from", "file", metavar="FILE|-", help="File with one command per line: words, a JSON list or a JSON object."
)
@with_options(*OPTIONS)
def add(
    session: CliSession, *, argv: tuple[str, ...], shell: bool | None, key: str | None, file: str | None, **options: Any
) -> None:
    """Add a shell command as a job. A worker runs it in this directory and keeps its output.

    Start a worker with holdfast up; holdfast log -f ID shows the output. Write options of holdfast before the program.
    For pipes and redirections add --shell. Only PATH, LANG, TZ and a few others of your variables are passed on: name
    more with --env.

    Examples:
      holdfast add -- make -C /srv/site all
      holdfast add --memory 8G --retry 2 -- python train.py --rate 0.1
      holdfast add --after 17 --shell 'sort < in.txt > out.txt'      # when job 17 is done
    """
    builder = JobBuilder(session, options)
    if file is not None:
        if argv or key is not None:
            raise InvalidInput("--from cannot be combined with a command or --key")
        add_all(session, _requests_from(file, builder, shell=shell), options)
        return
    request = builder.build(command_words(argv, shell=shell), key=key)
    (job,), cancelled = _enqueue(session, [request], options)
    text = f"job {job.id}" + ("" if job.created else " exists already")
    session.output.value(_answer([job], cancelled), lambda: [str(job.id) if session.output.quiet else text])


def add_all(session: CliSession, requests: Sequence[NewJob], options: Mapping[str, Any], known: int = 0) -> None:
    """Enqueue jobs with their callbacks and print the answer; *known* counts jobs that the caller left out."""
    answer = _answer(*_enqueue(session, requests, options), known)
    there = f", {answer.known:,} existed already" if answer.known else ""
    session.output.value(answer, lambda: [f"added: {answer.added:,}{there}"])


def _answer(jobs: Sequence[Enqueued], cancelled: list[CancelledJob], known: int = 0) -> AddAnswer:
    new = [job.id for job in jobs if job.created]
    single, known = jobs[0].id if len(jobs) == 1 else None, known + len(jobs) - len(new)
    return AddAnswer(single, len(new), known, min(new, default=None), max(new, default=None), cancelled)


def _enqueue(
    session: CliSession, requests: Sequence[NewJob], options: Mapping[str, Any]
) -> tuple[list[Enqueued], list[CancelledJob]]:
    """Enqueue jobs, each new one with its callback, and warn about those that no worker will run."""
    callback = _parse_callback(options["callback"])
    labels = {request.label for request in requests}
    actions = session.actions.jobs
    jobs = actions.enqueue_all("add", requests, note=labels.pop() if len(labels) == 1 else None)
    if callback:
        builder = JobBuilder(session, {**options, **CALLBACK_OPTIONS}, presets=Presets())
        callbacks = []
        for request, job in zip(requests, jobs, strict=True):
            if job.created:
                built = builder.build(callback, about=job.id)
                after = After(ids=(job.id,), when=When.FINISHED)
                callbacks.append(structs.replace(built, after=after, queue=request.queue, priority=HIGHEST_PRIORITY))
        actions.enqueue_all("add", callbacks, note="callback")
    with suppress(HoldfastError):  # the jobs are added: a hint that cannot be built is not a failure
        warn_unserved(session, {request.queue for request in requests})
        return jobs, warn_cancelled(session, requests, jobs)
    return jobs, []


def _parse_callback(text: str | None) -> tuple[str, ...]:
    """Split a callback as a shell does; its placeholders are replaced later, without a shell."""
    if text is None:
        return ()
    try:
        argv = tuple(shlex.split(text))
    except ValueError as error:
        raise InvalidInput(f"the callback cannot be read: {error}", hint="Close the quotes.") from None
    check_line(text, remedy=CALLBACK_IN_SHELL)
    check_shell(argv)
    for name in placeholders(argv):
        if name not in CALLBACK_FIELDS:
            raise InvalidInput(
                f"unknown placeholder of a callback: {{{name}}}", hint=f"It knows: {', '.join(CALLBACK_FIELDS)}."
            )
    return argv


class InputLine(PresetValues, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A line of a file of commands; its fields take precedence over the options of ``add``."""

    argv: list[str] = []  # noqa: RUF012 - msgspec copies the default
    shell: bool | None = None
    key: str | None = None
    label: str | None = None
    tags: list[str] | None = None
    after: str | list[str] | None = None
    delay: str | None = None
    hold: bool | None = None
    env: dict[str, str] | None = None

    def overrides(self, source: str) -> dict[str, Any]:
        """The fields that are set, without the command itself, under the names of the options."""
        values = {name: getattr(self, name) for name in _OVERRIDES}
        fields: dict[str, Any] = {n: value for n, value in values.items() if value is not None and value is not False}
        if self.after is not None:
            fields["dependencies"] = (self.after,) if isinstance(self.after, str) else tuple(self.after)
        return fields | {"source": source} if fields else {}


_OVERRIDES = tuple(name for name in InputLine.__struct_fields__ if name not in ("argv", "shell", "key", "after"))
_objects = msgspec.json.Decoder(InputLine)
_lists = msgspec.json.Decoder(list[str])
_QUOTED = re.compile(r"""['"\\]""")
#: JSON among lines of a shell, where a line may begin with the command [ or with a group in braces.
_JSON = re.compile(r"""\[\s*["\]]|\{\s*["}]""")


def _requests_from(file: str, builder: JobBuilder, *, shell: bool | None) -> list[NewJob]:
    """Build the jobs of all lines of a file, or raise one error that names every bad line."""
    bad, templates, requests = list[tuple[int, HoldfastError]](), dict[Any, tuple[NewJob, Command]](), []
    for number, text in InputFile(file).lines():
        if (line := text.strip()) and not line.startswith("#"):
            try:
                parsed = _parse_line(line, shell=shell)
                requests.append(_build_line(parsed, templates, builder, source=f"--from {file}"))
            except HoldfastError as error:
                bad.append((number, error))
    if bad:
        raise _bad_lines(file, bad)
    return requests


def _parse_line(line: str, *, shell: bool | None) -> InputLine:
    """Parse a line of words, a JSON list or a JSON object; *argv* of the answer has the shell, if there is one."""
    try:
        if line[0] in "{[" and (not shell or _JSON.match(line)):
            parsed = _objects.decode(line) if line[0] == "{" else InputLine(argv=_lists.decode(line))
            own = shell if parsed.shell is None else parsed.shell
            return structs.replace(parsed, argv=list(command_words(parsed.argv, shell=own)))
        if shell:
            return InputLine(argv=list(shell_words(line)))
        if shell is None:
            check_line(line)
        # A line without quotes takes the much faster str.split.
        words = line.split() if line.isascii() and not _QUOTED.search(line) else shlex.split(line)
        if shell is None:
            check_first_word(words)
        return InputLine(argv=words)
    except (ValueError, msgspec.DecodeError) as error:
        raise InvalidInput(str(error)) from None


def _build_line(
    line: InputLine, templates: dict[Any, tuple[NewJob, Command]], builder: JobBuilder, *, source: str
) -> NewJob:
    """Build the job of a line. Lines that differ only in arguments and key share one resolved template."""
    executable = line.argv[0] if line.argv else ""
    shared = (executable, msgspec.json.encode(structs.replace(line, argv=[], key=None)))
    if shared not in templates:
        request = builder.build(line.argv, overrides=line.overrides(source))
        templates[shared] = (request, load_command(request.payload))
    request, command = templates[shared]
    unique = None if line.key is None else Unique(line.key)
    return structs.replace(request, payload=structs.replace(command, argv=tuple(line.argv)).dumps(), unique=unique)


def _bad_lines(file: str, bad: Sequence[tuple[int, HoldfastError]]) -> InvalidInput:
    shown = "".join(f"\n  line {number}: {error.message}" for number, error in bad[:SHOWN_BAD_LINES])
    more = f"\n  and {len(bad) - SHOWN_BAD_LINES:,} more" if len(bad) > SHOWN_BAD_LINES else ""
    count = f"{len(bad):,} lines" if len(bad) > 1 else "1 line"
    form = 'A line is words, a JSON list of words, or {"argv": […], "cwd": …, "env": …, "label": …, "key": …, …}.'
    message = f"{file}: {count} cannot be added; nothing was{shown}{more}"
    return InvalidInput(message, hint=bad[0][1].hint or form, lines=[number for number, _ in bad[:1000]])
