"""The options of commands, and the jobs built from them and from configured presets."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import click
from msgspec import structs

from holdfast.cli.after import after_option, read_after
from holdfast.cli.session import CliSession
from holdfast.cli.text import parse_when
from holdfast.domain.commands.command import CAPTURED_VARIABLES, COMMAND, Command
from holdfast.domain.commands.preset import Presets, ResolvedPreset, resolve_preset
from holdfast.domain.jobs.dependencies import After
from holdfast.domain.jobs.enqueue_options import EnqueueOptions
from holdfast.domain.jobs.job import JobId
from holdfast.domain.jobs.new_job import NewJob, Unique
from holdfast.domain.jobs.retry_curve import steps
from holdfast.domain.names import MAX_NAME, checked_variable, path_part
from holdfast.domain.quantities import as_bytes, as_duration
from holdfast.errors import ConfigurationError, InvalidInput
from holdfast.settings import absolute_path

#: Options for a queue; ``run`` has none of them.
QUEUE_OPTIONS = (
    click.option("-q", "--queue", help="Queue. [default]"),
    click.option("--priority", type=int, help="Priority; higher runs first. [0]"),
    click.option("--delay", metavar="WHEN", help="Start no earlier than: 90s, 3h, or a time (RFC 3339)."),
    after_option,
    click.option("--hold", is_flag=True, help="Hold it until holdfast unhold."),
    click.option("--callback", metavar="WORDS", help="Command to run when it has finished: 'notify {id} {result}'."),
    click.option(
        "--pause-queue-on-failure", "pause_queue", is_flag=True, help="Pause its queue if it fails permanently."
    ),
)
OPTIONS = (
    *QUEUE_OPTIONS,
    click.option("-l", "--label", help="Label to find it by. [the name of the program]"),
    click.option("--tag", "tags", multiple=True, help="Tag to find it by; repeatable."),
    click.option("--retry", type=click.IntRange(0, 10_000), help="Number of retries. [0]"),
    click.option("--retry-delay", metavar="TIME", help="Delay before a retry. [10s]"),
    click.option("--timeout", metavar="TIME", help="Maximum run time."),
    click.option("--stop-delay", metavar="TIME", help="Time between SIGTERM and SIGKILL when it is stopped. [10s]"),
    click.option("--memory", metavar="SIZE", help="Memory limit: 512M, 8G."),
    click.option("--cpus", type=float, help="Processor limit: 0.5, 4."),
    click.option(
        "--require-cap", is_flag=True, help="Do not run it (exit 4) on a host that cannot enforce its limits."
    ),
    click.option(
        "--log-cap", metavar="SIZE", help="Maximum size of the log; the oldest output is deleted first. [32M]"
    ),
    click.option("-w", "--cwd", metavar="DIR", help="Working directory. [the current one]"),
    click.option("--env", "variables", multiple=True, metavar="NAME[=VALUE]", help="Environment variable; repeatable."),
)


class JobBuilder:
    """Builds command jobs from the options of a command line; presets supply the options that are not set."""

    def __init__(self, session: CliSession, options: Mapping[str, Any], *, presets: Presets | None = None) -> None:
        self._session = session
        self._options = options
        self._presets = _configured_presets(session) if presets is None else presets
        self._afters: dict[tuple[str, ...], After | None] = {}

    def build(
        self,
        argv: Iterable[str],
        *,
        key: str | None = None,
        parameters: Mapping[str, str] | None = None,
        about: JobId | None = None,
        overrides: Mapping[str, Any] | None = None,
    ) -> NewJob:
        """Build one job.

        *overrides* take precedence over the options. Their ``source`` is the origin to record; ``env`` holds variables.
        """
        overrides, argv = overrides or {}, tuple(argv)
        options = {**self._options, **overrides}
        label = options["label"] or short_label(Path(argv[0] if argv else "").name)
        resolved = resolve_preset(options, self._presets, label)
        command = self._command(argv, resolved, overrides)
        pause_queue: bool = options["pause_queue"]
        command = structs.replace(command, parameters=dict(parameters or {}), pause_queue=pause_queue, about=about)
        _check_caps(command)
        values, dependencies = resolved.values, tuple(options["dependencies"])
        if dependencies not in self._afters:
            self._afters[dependencies] = read_after(self._session, dependencies, kind=COMMAND)
        return NewJob(
            kind=COMMAND,
            payload=command.dumps(),
            queue=values["queue"],
            priority=values["priority"],
            label=label,
            tags=EnqueueOptions(tags=tuple(options["tags"])).tags_json(),
            **_start_time(options["delay"]),
            unique=None if key is None else Unique(key),
            after=self._afters[dependencies],
            hold=options["hold"],
            max_attempts=values["retry"] + 1,
            retry=steps([as_duration(values["retry_delay"])]).dumps(),
            actor=self._session.actor,
        )

    def _command(self, argv: tuple[str, ...], resolved: ResolvedPreset, overrides: Mapping[str, Any]) -> Command:
        values, variables, own_env = resolved.values, self._options["variables"], overrides.get("env", {})
        origins = resolved.origins | {f"env.{text.partition('=')[0]}": "--env" for text in variables}
        if "source" in overrides:
            named = [*(name for name in resolved.origins if name in overrides), *(f"env.{name}" for name in own_env)]
            origins |= dict.fromkeys(named, overrides["source"])
        inherited = {name: os.environ[name] for name in CAPTURED_VARIABLES if name in os.environ}
        return Command(
            argv=argv,
            cwd=str(absolute_path(values["cwd"] or ".")),
            env=inherited | resolved.env | dict(parse_variables(variables)) | own_env,
            timeout=None if values["timeout"] is None else as_duration(values["timeout"]),
            stop_delay=None if values["stop_delay"] is None else as_duration(values["stop_delay"]),
            memory=None if values["memory"] is None else as_bytes(values["memory"]),
            cpus=values["cpus"],
            require_cap=values["require_cap"],
            log_cap=None if values["log_cap"] is None else as_bytes(values["log_cap"]),
            origins=origins,
        )


def _configured_presets(session: CliSession) -> Presets:
    settings, values, _ = session.loaded
    file = next((table.origin for table in (values["command"], values["profiles"]) if table.value), "")
    return Presets(file=file, command=settings.command, profiles=settings.profiles)


def _check_caps(command: Command) -> None:
    """Refuse a command with ``--require-cap`` if this host cannot enforce its caps or it has none."""
    if not command.require_cap:
        return
    if not command.capped:
        raise InvalidInput("--require-cap needs a limit", hint="Add --memory or --cpus.")
    from holdfast.worker.commands.resource_caps import enforcer_here

    if enforcer_here() == "watch":
        hint = "See holdfast doctor; or leave --require-cap out: its memory is polled then."
        raise ConfigurationError("this host cannot enforce limits", hint=hint)


def _start_time(delay: str | None) -> dict[str, Any]:
    if delay is None:
        return {}
    is_timestamp = "T" in delay or delay.count("-") == 2
    return {"run_at": parse_when(delay, ages=False)} if is_timestamp else {"delay": as_duration(delay)}


def parse_variables(variables: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Parse ``NAME=VALUE``; a bare ``NAME`` takes its value from the environment."""
    for text in variables:
        name, assigned, value = text.partition("=")
        checked_variable(name)
        if not assigned and name not in os.environ:
            raise InvalidInput(f"there is no variable {name!r} here", hint=f"Write --env {name}=VALUE.")
        yield name, value if assigned else os.environ[name]


def short_label(label: str) -> str:
    """Shorten a label to the longest name; a digest stands for the rest."""
    return label if len(label) <= MAX_NAME else path_part(label)[:MAX_NAME]
