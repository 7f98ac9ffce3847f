"""What stands on the line, or in a file, as jobs; where the line says nothing, the configuration is asked."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import click
from msgspec import structs

from holdfast.cli.session import Session
from holdfast.cli.timestamps import timestamp_of
from holdfast.domain.commands.command import COMMAND, TAKEN_ALONG, Command, checked_variable
from holdfast.domain.commands.preset import Presets, Resolved, load_presets, resolve
from holdfast.domain.jobs.dependencies import After, When
from holdfast.domain.jobs.job import JobId
from holdfast.domain.jobs.new_job import NewJob
from holdfast.domain.jobs.retry import steps
from holdfast.domain.jobs.selector import Selector
from holdfast.domain.jobs.unique_key import Unique
from holdfast.domain.text import MAX_NAME, as_bytes, as_duration, path_part
from holdfast.errors import ConfigurationError, InvalidInput, NoSuchJob

#: How a job that others wait for has to end, in the words of the line.
WHEN = {"ok": When.DONE, "finished": When.FINISHED, "failed": When.FAILED}

#: What makes no sense for a program that is run here and now.
ELSEWHERE = (
    click.option("-q", "--queue", help="The queue. [default]"),
    click.option("--priority", type=int, help="Higher is sooner. [0]"),
    click.option("--delay", metavar="WHEN", help="Not before: 90s, 3h, or a moment (RFC 3339)."),
    click.option(
        "--after",
        "dependencies",
        multiple=True,
        metavar="[ok:|finished:|failed:]JOB",
        help="Start after an id, label=L, key=K or queue=Q; ok: is meant where nothing is said.",
    ),
    click.option("--hold", is_flag=True, help="Keep it from starting until holdfast unhold."),
    click.option("--callback", metavar="WORDS", help="A program to run when it has ended: 'notify {id} {result}'."),
    click.option("--pause-queue-on-failure", "pause_queue", is_flag=True, help="Pause its queue if it fails for good."),
)
OPTIONS = (
    *ELSEWHERE,
    click.option("-l", "--label", help="A name to find it by. [the program's]"),
    click.option("--retry", type=click.IntRange(0, 10_000), help="Try so often again. [0]"),
    click.option("--retry-delay", metavar="TIME", help="Wait so long before. [10s]"),
    click.option("--timeout", metavar="TIME", help="End it after so long."),
    click.option("--memory", metavar="SIZE", help="End it when it takes more: 512M, 8G."),
    click.option("--cpus", type=float, help="How many processors it may use: 0.5, 4."),
    click.option("--require-cap", is_flag=True, help="Exit 4, and do not run it, where nothing can enforce its caps."),
    click.option("--log-cap", metavar="SIZE", help="Keep so much of what it writes, the newest. [32M]"),
    click.option("--cwd", metavar="DIR", help="Where it runs. [here]"),
    click.option("--env", "variables", multiple=True, metavar="NAME[=VALUE]", help="A variable; repeatable."),
)
words_argument = click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[--] PROGRAM [WORD]...")


class JobBuilder:
    """Makes the jobs that a line asks for, with what the configuration says where it says nothing."""

    def __init__(self, session: Session, options: Mapping[str, Any], *, presets: Presets | None = None) -> None:
        self._session = session
        self._options = options
        self._given = presets
        self._afters: dict[tuple[str, ...], After | None] = {}

    @cached_property
    def _presets(self) -> Presets:
        if self._given is not None:
            return self._given
        command, profiles = (self._session.configured[name] for name in ("command", "profiles"))
        return load_presets(command.value, profiles.value, next((f.origin for f in (command, profiles) if f.value), ""))

    def request(
        self,
        argv: Iterable[str],
        *,
        key: str | None = None,
        parameters: Mapping[str, str] | None = None,
        about: JobId | None = None,
        own: Mapping[str, Any] | None = None,
    ) -> NewJob:
        """One job. What is its *own* outweighs the line: ``source`` says where it stands, ``env`` holds variables."""
        options = {**self._options, **(own or {})}
        words = tuple(argv)
        label = options["label"] or short(Path(words[0] if words else "").name)
        found = resolve(options, self._presets, label)
        made = structs.replace(
            self._command(words, found, own or {}),
            parameters=dict(parameters or {}),
            pause_queue=options["pause_queue"],
            about=about,
        )
        check_cap(made)
        values = found.values
        return NewJob(
            kind=COMMAND,
            payload=made.dumps(),
            queue=values["queue"],
            priority=values["priority"],
            label=label,
            **_when(options["delay"]),
            unique=None if key is None else Unique(key),
            after=self._after(tuple(options["dependencies"])),
            hold=options["hold"],
            max_attempts=values["retry"] + 1,
            retry=steps([as_duration(values["retry_delay"])]).dumps(),
            actor=self._session.actor,
        )

    def _command(self, words: tuple[str, ...], found: Resolved, own: Mapping[str, Any]) -> Command:
        values, variables, own_env = found.values, self._options["variables"], own.get("env", {})
        origins = found.origins | {f"env.{text.partition('=')[0]}": "--env" for text in variables}
        if "source" in own:
            named = [*(name for name in found.origins if name in own), *(f"env.{name}" for name in own_env)]
            origins |= dict.fromkeys(named, own["source"])
        return Command(
            argv=words,
            cwd=str(Path(values["cwd"] or ".").absolute()),
            env=_environment(found.env, variables, own_env),
            timeout=None if values["timeout"] is None else as_duration(values["timeout"]),
            memory=None if values["memory"] is None else as_bytes(values["memory"]),
            cpus=values["cpus"],
            require_cap=values["require_cap"],
            log_cap=None if values["log_cap"] is None else as_bytes(values["log_cap"]),
            origins=origins,
        )

    def _after(self, dependencies: tuple[str, ...]) -> After | None:
        if dependencies not in self._afters:
            self._afters[dependencies] = _after(self._session, dependencies)
        return self._afters[dependencies]


def check_cap(command: Command) -> None:
    """Refuse a command whose caps nothing on this host can enforce, if it asks for that.

    Raises:
        ConfigurationError: Only a watch is left here.
        InvalidInput: It has no caps.
    """
    if not command.require_cap:
        return
    if not command.capped:
        raise InvalidInput("there is no cap to require", hint="Add --memory or --cpus.")
    from holdfast.worker.commands.caps import enforcer_here

    if enforcer_here() == "watch":
        hint = "See holdfast doctor; or leave --require-cap out: its memory is watched then."
        raise ConfigurationError("nothing on this host can enforce caps", hint=hint)


def _when(delay: str | None) -> dict[str, Any]:
    if delay is None:
        return {}
    later = "T" in delay or delay.count("-") == 2
    return {"run_at": timestamp_of(delay, ages=False)} if later else {"delay": as_duration(delay)}


def _environment(preset: Mapping[str, str], variables: Sequence[str], own: Mapping[str, str]) -> dict[str, str]:
    """What goes with a program: what every one is given, what files say, and what was named on the line.

    A name without a value has the present one.
    """
    env = {name: os.environ[name] for name in TAKEN_ALONG if name in os.environ} | dict(preset)
    for text in variables:
        name, given, value = text.partition("=")
        checked_variable(name)
        if not given and name not in os.environ:
            raise InvalidInput(f"there is no variable {name!r} here", hint=f"Write --env {name}=VALUE.")
        env[name] = value if given else os.environ[name]
    return env | dict(own)


def _after(session: Session, dependencies: Sequence[str]) -> After | None:
    """The jobs that it waits for, as they are now; all of them in the same way."""
    if not dependencies:
        return None
    whens: set[When] = set()
    ids: list[JobId] = []
    keys: list[tuple[str, str]] = []
    labels: list[str] = []
    for text in dependencies:
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


def short(label: str) -> str:
    """A label that is not too long: what is cut off is told by its digest."""
    return label if len(label) <= MAX_NAME else path_part(label)[:MAX_NAME]
