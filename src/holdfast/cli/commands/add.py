"""``add`` and ``sweep``: programs as jobs."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import msgspec
from msgspec import Struct, structs

from holdfast.cli.command import command, with_options
from holdfast.cli.commands.input_files import BadLines, InputLine, entries_of, rows_of
from holdfast.cli.commands.options import OPTIONS, JobBuilder, short, words_argument
from holdfast.cli.session import Session
from holdfast.domain.commands.command import (
    CALLBACK_FIELDS,
    COMMAND,
    Command,
    check_placeholders,
    check_shell,
    load_command,
    placeholders,
    substitute,
    sweep_key,
    sweep_label,
)
from holdfast.domain.commands.preset import Presets
from holdfast.domain.jobs.dependencies import After, When
from holdfast.domain.jobs.job import JobId, State
from holdfast.domain.jobs.new_job import Enqueued, NewJob
from holdfast.domain.jobs.selector import Selector
from holdfast.domain.jobs.unique_key import Unique
from holdfast.domain.names import path_part
from holdfast.errors import HoldfastError, InvalidInput

#: So many keys are looked up at once.
CHUNK = 500


class Added(Struct, frozen=True):
    """How many jobs were added, and between which ids; *known* were there already, with the same key.

    *id* is that of a single one, new or known.
    """

    id: JobId | None
    added: int
    known: int
    first: JobId | None
    last: JobId | None


@command("add", answers=Added, changes=True)
@words_argument
@click.option("--shell", is_flag=True, help="Give the words to /bin/sh, as one line. Without this no shell reads them.")
@click.option("--key", help="A unique key: if a live command has it, none is added.")
@click.option("--from", "file", metavar="FILE|-", help="One command per line: words, a JSON list, or a JSON object.")
@with_options(*OPTIONS)
def add(
    session: Session, *, words: tuple[str, ...], shell: bool, key: str | None, file: str | None, **options: Any
) -> None:
    """Add a program as a job: a worker runs it, with a log of its own, where it was added.

    The words reach the program as they are; no shell looks at them. Of the environment, PATH, LANG, TZ and the like go
    with it, and what --env names.

    \b
    Examples:
      holdfast add -- make -C /srv/site all
      holdfast add --memory 8G --retry 2 --after 17 -- python train.py --rate 0.1
      holdfast add --shell 'sort < in.txt | uniq > out.txt'
      holdfast add --from commands.txt
      echo '{"argv": ["make", "all"], "memory": "2G", "key": "site"}' | holdfast add --from -
    """
    if file is not None:
        if words or key is not None or shell:
            raise InvalidInput("--from excludes a command, --key and --shell on the line")
        _add_many(session, requests_of(file, JobBuilder(session, options)), options)
        return
    argv = ("/bin/sh", "-c", " ".join(words)) if shell else words
    request = JobBuilder(session, options).request(argv, key=key)
    callback = _callback(options)
    answer = session.store.jobs.enqueue(request)
    _follow(session, [request], [answer], callback, options)
    _warn(session, {request.queue})
    text = f"job {answer.id}" + ("" if answer.created else " was there already")
    session.output.value(_added([answer]), lambda: [str(answer.id) if session.output.quiet else text])


@command("sweep", answers=Added, changes=True)
@words_argument
@click.option("--param", "parameters", multiple=True, metavar="NAME=A,B,…", help="A parameter and its values.")
@click.option("--csv", "file", metavar="FILE", help="A row of values for each job, below a row of names.")
@click.option("--again", is_flag=True, help="Also what is done: the whole grid.")
@click.option("--workdir", metavar="DIR", help="Run each in a directory of its own below this one, made at once.")
@with_options(*OPTIONS)
def sweep(
    session: Session,
    *,
    words: tuple[str, ...],
    parameters: tuple[str, ...],
    file: str | None,
    workdir: str | None,
    again: bool,
    **options: Any,
) -> None:
    """Add a program for every combination of parameters; {name} in its words is filled with the value.

    A value becomes part of a word and is read by no shell. Key, label, log and directory carry every parameter: the
    same sweep again adds what is not there. {{ and }} are braces.

    \b
    Examples:
      holdfast sweep --param symbol=A,B --param year=2020,2021 --memory 2G -- python backtest.py {symbol} {year}
      holdfast sweep --csv runs.csv --workdir out -- ./simulate --seed {seed}
    """
    rows = list(rows_of(parameters, file))
    check_placeholders(words, rows[0], all_used=workdir is None)
    label = options["label"] or Path(words[0]).name
    maker, requests = JobBuilder(session, options), []
    for row in rows:
        own = {"label": short(sweep_label(label, row))}
        if workdir is not None:
            folder = Path(workdir, *(f"{name}={path_part(value)}" for name, value in row.items())).absolute()
            folder.mkdir(parents=True, exist_ok=True)
            own["cwd"] = str(folder)
        requests.append(
            maker.request(substitute(words, row), own=own, key=sweep_key(label, words, row), parameters=row)
        )
    known = set() if again else _not_failed(session, [request.unique.key for request in requests if request.unique])
    _add_many(session, [each for each in requests if each.unique and each.unique.key not in known], options, len(known))


def requests_of(file: str, maker: JobBuilder) -> list[NewJob]:
    """The jobs that a file asks for, all of them. What lines share is found out once.

    Raises:
        InvalidInput: Some lines cannot be added; the message names them.
    """
    bad, models, requests = BadLines(file), dict[Any, tuple[NewJob, Command]](), []
    for number, entry in entries_of(file, bad):
        try:
            requests.append(_alike(entry, models, maker, source=f"--from {file}"))
        except HoldfastError as error:
            bad.add(number, error.message)
    bad.refuse()
    return requests


def _alike(entry: InputLine, models: dict[Any, tuple[NewJob, Command]], maker: JobBuilder, *, source: str) -> NewJob:
    """A job that differs from one that is known in its words and its key alone, if there is one."""
    program = entry.argv[0] if entry.argv else ""
    alike = (program, msgspec.json.encode(structs.replace(entry, argv=[], key=None)))
    if alike not in models:
        request = maker.request(entry.argv, own=entry.own(source))
        models[alike] = (request, load_command(request.payload))
    model, made = models[alike]
    unique = None if entry.key is None else Unique(entry.key)
    return structs.replace(model, payload=structs.replace(made, argv=tuple(entry.argv)).dumps(), unique=unique)


def _not_failed(session: Session, keys: Sequence[str]) -> set[str]:
    """Which of these are there, and have not failed."""
    found: set[str] = set()
    for start in range(0, len(keys), CHUNK):
        chosen = Selector(kinds=(COMMAND,), keys=tuple(keys[start : start + CHUNK]))
        jobs = session.store.views.all(chosen)
        found |= {job.key for job in jobs if job.key is not None and job.state not in (State.DEAD, State.CANCELLED)}
    return found


def _add_many(session: Session, requests: Sequence[NewJob], options: Mapping[str, Any], known: int = 0) -> None:
    callback = _callback(options)
    answers = session.store.jobs.enqueue_many(requests)
    _follow(session, requests, answers, callback, options)
    done = _added(answers, known)
    _warn(session, {request.queue for request in requests})
    there = f", {done.known:,} there already" if done.known else ""
    session.output.value(done, lambda: [f"added: {done.added:,}{there}"])


def _added(answers: Sequence[Enqueued], known: int = 0) -> Added:
    new = [answer.id for answer in answers if answer.created]
    single = answers[0].id if len(answers) == 1 else None
    return Added(single, len(new), known + len(answers) - len(new), min(new, default=None), max(new, default=None))


def _warn(session: Session, queues: Iterable[str]) -> None:
    """Tell when workers are there, and none of them serves a queue."""
    served = [name for worker in session.store.workers.list() for name in msgspec.json.decode(worker.queues)]
    for queue in sorted(set(queues) - set(served)) if served else ():
        session.output.note(f"no worker that is alive serves the queue {queue!r}: start one with --queue {queue}")


# -- callbacks -------------------------------------------------------------------------------


def _callback(options: Mapping[str, Any]) -> tuple[str, ...]:
    """The words of a callback, as a shell divides them; no shell ever reads what fills them."""
    if options["callback"] is None:
        return ()
    try:
        words = tuple(shlex.split(options["callback"]))
    except ValueError as error:
        raise InvalidInput(f"the callback cannot be read: {error}", hint="Close the quotes.") from None
    check_shell(words)
    for name in placeholders(words):
        if name not in CALLBACK_FIELDS:
            raise InvalidInput(f"a callback knows no {{{name}}}", hint=f"It knows: {', '.join(CALLBACK_FIELDS)}.")
    return words


def _follow(
    session: Session,
    added: Sequence[NewJob],
    answers: Sequence[Enqueued],
    callback: tuple[str, ...],
    options: Mapping[str, Any],
) -> None:
    """A job for each new one that begins when that has ended, and tells of it; in its queue, and without its caps."""
    if not callback:
        return
    plain = {**options, "dependencies": (), "delay": None, "hold": False, "pause_queue": False, "label": "callback"}
    plain |= {"memory": None, "cpus": None, "timeout": None, "require_cap": False, "retry": 2}
    maker = JobBuilder(session, plain, presets=Presets())
    requests = []
    for asked, answer in zip(added, answers, strict=True):
        if answer.created:
            request = maker.request(callback, about=answer.id)
            after = After(ids=(answer.id,), when=When.FINISHED)
            requests.append(structs.replace(request, after=after, queue=asked.queue, priority=asked.priority))
    session.store.jobs.enqueue_many(requests)
