"""``add``, ``run`` and ``sweep``: programs as jobs."""

from __future__ import annotations

import os
import secrets
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import msgspec
from msgspec import Struct, structs

from holdfast.cli.moments import moment_of
from holdfast.cli.session import Session
from holdfast.cli.shared import command, with_options
from holdfast.cli.tables import lines_of, rows_of
from holdfast.domain.command import (
    COMMAND,
    TAKEN_ALONG,
    TOLD,
    Command,
    check_places,
    check_shell,
    checked_variable,
    filled,
    key_of,
    labelled,
    load_command,
    places,
)
from holdfast.domain.job import JobId, State
from holdfast.domain.needs import After, When
from holdfast.domain.request import Enqueued, NewJob
from holdfast.domain.retry import steps
from holdfast.domain.selector import Selector
from holdfast.domain.text import MAX_NAME, as_bytes, as_duration, path_part
from holdfast.domain.unique import Unique
from holdfast.errors import InvalidInput, NoSuchJob

#: So many keys are looked up at once.
CHUNK = 500
#: How a job that others wait for has to end, in the words of the line.
WHEN = {"ok": When.DONE, "ended": When.ENDED, "failed": When.FAILED}

#: What makes no sense for a program that is run here and now.
ELSEWHERE = (
    click.option("-q", "--queue", default="default", show_default=True, help="The queue."),
    click.option("--priority", type=int, default=0, show_default=True, help="Higher is sooner."),
    click.option("--delay", metavar="WHEN", help="Not before: 90s, 3h, or a moment (RFC 3339)."),
    click.option(
        "--after",
        "needs",
        multiple=True,
        metavar="[ok:|ended:|failed:]JOB",
        help="Start after an id, label=L, key=K or queue=Q; ok: is meant where nothing is said.",
    ),
    click.option("--hold", is_flag=True, help="Keep it from starting until holdfast unhold."),
    click.option("--callback", metavar="WORDS", help="A program to run when it has ended: 'notify {id} {result}'."),
    click.option("--pause-queue-on-failure", "pause_queue", is_flag=True, help="Pause its queue if it fails for good."),
)
OPTIONS = (
    *ELSEWHERE,
    click.option("-l", "--label", help="A name to find it by. [the program's]"),
    click.option("--retry", type=click.IntRange(0, 10_000), default=0, show_default=True, help="Try so often again."),
    click.option("--retry-delay", default="10s", show_default=True, metavar="TIME", help="Wait so long before."),
    click.option("--timeout", metavar="TIME", help="End it after so long."),
    click.option("--memory", metavar="SIZE", help="End it when it takes more: 512M, 8G."),
    click.option("--cpus", type=float, help="How many processors it may use: 0.5, 4."),
    click.option("--require-cap", is_flag=True, help="Do not run it where nothing can enforce its caps."),
    click.option("--cwd", metavar="DIR", help="Where it runs. [here]"),
    click.option("--env", "variables", multiple=True, metavar="NAME[=VALUE]", help="A variable; repeatable."),
)
words_argument = click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[--] PROGRAM [WORD]...")


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
@click.option("--from", "file", metavar="FILE|-", help="One command per line: words, or a JSON list.")
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
    """
    if file is not None:
        if words or key is not None or shell:
            raise InvalidInput("--from excludes a command, --key and --shell on the line")
        _add_many(session, list(_alike(session, lines_of(file), options)), options)
        return
    argv = ("/bin/sh", "-c", " ".join(words)) if shell else words
    request = make_request(session, argv, options, key=key)
    callback = _callback(options)
    answer = session.store.jobs.enqueue(request)
    _follow(session, [answer], callback, options)
    _warn(session, request.queue)
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
    check_places(words, rows[0], all_used=workdir is None)
    label = options["label"] or Path(words[0]).name
    requests = []
    for row in rows:
        own = {**options, "label": _short(labelled(label, row))}
        if workdir is not None:
            folder = Path(workdir, *(f"{name}={path_part(value)}" for name, value in row.items())).absolute()
            folder.mkdir(parents=True, exist_ok=True)
            own["cwd"] = str(folder)
        requests.append(make_request(session, filled(words, row), own, key=key_of(label, words, row), parameters=row))
    known = set() if again else _not_failed(session, [request.unique.key for request in requests if request.unique])
    _add_many(session, [each for each in requests if each.unique and each.unique.key not in known], options, len(known))


def _alike(session: Session, commands: Iterator[list[str]], options: Mapping[str, Any]) -> Iterator[NewJob]:
    """Jobs that differ in their words alone: what they share is found out once."""
    first = next(commands, None)
    if first is None:
        return
    model = make_request(session, first, options)
    yield model
    made = load_command(model.payload)
    for argv in commands:
        label = options["label"] or _short(Path(argv[0] if argv else "").name)
        yield structs.replace(model, payload=structs.replace(made, argv=tuple(argv)).dumps(), label=label)


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
    _follow(session, answers, callback, options)
    done = _added(answers, known)
    _warn(session, options["queue"])
    there = f", {done.known:,} there already" if done.known else ""
    session.output.value(done, lambda: [f"added: {done.added:,}{there}"])


def _added(answers: Sequence[Enqueued], known: int = 0) -> Added:
    new = [answer.id for answer in answers if answer.created]
    single = answers[0].id if len(answers) == 1 else None
    return Added(single, len(new), known + len(answers) - len(new), min(new, default=None), max(new, default=None))


def _warn(session: Session, queue: str) -> None:
    """Tell when workers are there, and none of them serves the queue."""
    served = [name for worker in session.store.workers.list() for name in msgspec.json.decode(worker.queues)]
    if served and queue not in served:
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
    for name in places(words):
        if name not in TOLD:
            raise InvalidInput(f"a callback knows no {{{name}}}", hint=f"It knows: {', '.join(TOLD)}.")
    return words


def _follow(
    session: Session, answers: Sequence[Enqueued], callback: tuple[str, ...], options: Mapping[str, Any]
) -> None:
    """A job for each new one that begins when that has ended, and tells of it."""
    if not callback:
        return
    plain = {**options, "needs": (), "delay": None, "hold": False, "pause_queue": False, "label": "callback"}
    plain |= {"memory": None, "cpus": None, "timeout": None, "require_cap": False, "retry": 2}
    requests = []
    for answer in answers:
        if answer.created:
            request = make_request(session, callback, plain, about=answer.id)
            requests.append(structs.replace(request, after=After(ids=(answer.id,), when=When.ENDED)))
    session.store.jobs.enqueue_many(requests)


# -- what stands on the line -----------------------------------------------------------------


def make_request(
    session: Session,
    argv: Iterable[str],
    options: Mapping[str, Any],
    *,
    key: str | None = None,
    parameters: Mapping[str, str] | None = None,
    about: JobId | None = None,
) -> NewJob:
    """The job that a line asks for."""
    made = Command(
        argv=tuple(argv),
        cwd=str(Path(options["cwd"] or ".").absolute()),
        env=_environment(options["variables"]),
        parameters=dict(parameters or {}),
        timeout=None if options["timeout"] is None else as_duration(options["timeout"]),
        memory=None if options["memory"] is None else as_bytes(options["memory"]),
        cpus=options["cpus"],
        require_cap=options["require_cap"],
        pause_queue=options["pause_queue"],
        about=about,
    )
    delay = options["delay"]
    later = delay is not None and ("T" in delay or delay.count("-") == 2)
    return NewJob(
        kind=COMMAND,
        payload=made.dumps(),
        queue=options["queue"],
        priority=options["priority"],
        label=options["label"] or _short(Path(made.argv[0]).name),
        delay=as_duration(delay) if delay is not None and not later else None,
        run_at=moment_of(delay, ages=False) if later else None,
        unique=None if key is None else Unique(key),
        after=_after(session, options["needs"]),
        hold=options["hold"],
        max_attempts=options["retry"] + 1,
        retry=steps([as_duration(options["retry_delay"])]).dumps(),
        actor=session.actor,
    )


def _environment(variables: Sequence[str]) -> dict[str, str]:
    """What goes with a program: what every one is given, and what was named, with its value or the present one."""
    env = {name: os.environ[name] for name in TAKEN_ALONG if name in os.environ}
    for text in variables:
        name, given, value = text.partition("=")
        checked_variable(name)
        if not given and name not in os.environ:
            raise InvalidInput(f"there is no variable {name!r} here", hint=f"Write --env {name}=VALUE.")
        env[name] = value if given else os.environ[name]
    return env


def _after(session: Session, needs: Sequence[str]) -> After | None:
    """The jobs that it waits for, as they are now; all of them in the same way."""
    if not needs:
        return None
    whens: set[When] = set()
    ids: list[JobId] = []
    keys: list[tuple[str, str]] = []
    labels: list[str] = []
    for text in needs:
        word, found, rest = text.partition(":")
        when, what = (WHEN[word], rest) if found and word in WHEN else (When.DONE, text)
        whens.add(when)
        name, named, value = what.partition("=")
        if what.isdecimal():
            ids.append(JobId(int(what)))
        elif named and name == "label":
            labels.append(value)
        elif named and name == "key":
            keys.append((COMMAND, value))
        elif named and name == "queue":
            ids += _all_of(session, value)
        else:
            raise InvalidInput(f"{text!r} names no job", hint="Write 17, ended:17, ok:label=nightly, queue=slow.")
    if len(whens) > 1:
        raise InvalidInput("a job waits for all others in one way", hint="Say ok:, ended: or failed: for all of them.")
    return After(ids=tuple(ids), keys=tuple(keys), labels=tuple(labels), when=whens.pop())


def _all_of(session: Session, queue: str) -> list[JobId]:
    found = [job.id for job in session.store.views.all(Selector(queues=(queue,)))]
    if not found:
        raise NoSuchJob(f"there is no job in the queue {queue!r}")
    return found


def _short(label: str) -> str:
    """A label that is not too long: what is cut off is told by its digest."""
    return label if len(label) <= MAX_NAME else path_part(label)[:MAX_NAME]


def private_queue() -> str:
    """A queue that no other worker serves."""
    return f"run-{secrets.token_hex(8)}"
