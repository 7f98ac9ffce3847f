"""The options that select jobs, shared by all commands on jobs."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from typing import Any

import click
from msgspec import structs

from holdfast.cli.command import with_options
from holdfast.cli.text import local_day
from holdfast.domain.jobs.selector import Selector, make_selector, parse_filter
from holdfast.errors import InvalidInput

#: Options that can be repeated: short form, name, help.
_REPEATABLE = (
    ("--key", "key", "Jobs with this unique key."),
    ("-l", "label", "Jobs with this label, or of a sweep with this label; * matches any text."),
    ("--tag", "tag", "Jobs with this tag."),
    ("-q", "queue", "Jobs in this queue; * matches any text."),
    ("-k", "kind", "Jobs of this kind; * matches any text."),
    ("-s", "state", "Jobs in this state; several with commas: dead,cancelled."),
)
_PARAMETERS = (
    click.argument("ids", nargs=-1),
    *(
        click.option(*dict.fromkeys([short, f"--{name}"]), name, multiple=True, metavar=name.upper(), help=text)
        for short, name, text in _REPEATABLE
    ),
    click.option("--error", metavar="TEXT", help="Jobs whose error contains this text."),
    click.option(
        "--since",
        metavar="WHEN",
        callback=local_day,
        help="Enqueued since: 1h (ago), yesterday, or a time. If --state has only finished states: finished since.",
    ),
    click.option(
        "--until", metavar="WHEN", callback=local_day, help="Enqueued before, or finished before: see --since."
    ),
    click.option(
        "--filter", "filter_", metavar="TEXT", help="All conditions in one text: 'state=dead kind=mail-* since=1h'."
    ),
)


def with_job_filter(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that select jobs to a command; the function receives them as ``selector``."""

    def select(*args: Any, **options: Any) -> Any:
        return function(*args, selector=_pop_selector(options), **options)

    select.__name__, select.__doc__ = function.__name__, function.__doc__
    select.__click_params__ = list(getattr(function, "__click_params__", ()))  # type: ignore[attr-defined]
    return with_options(*_PARAMETERS)(select)


def _pop_selector(options: dict[str, Any]) -> Selector:
    """Remove the selecting options from *options* and combine them."""
    conditions = {name: list(options.pop(name)) for _, name, _ in _REPEATABLE}
    conditions["state"] = [state for states in conditions["state"] for state in states.split(",")]
    conditions["id"] = list(options.pop("ids"))
    for name in ("error", "since", "until"):
        value = options.pop(name)
        conditions[name] = [] if value is None else [value]
    selector = make_selector({name: values for name, values in conditions.items() if values})
    text = options.pop("filter_")
    return selector if text is None else _intersection(selector, parse_filter(_with_local_times(text)))


def _with_local_times(text: str) -> str:
    """A filter with ``since`` and ``until`` as the options take them: yesterday, or a time as lists show it."""
    try:
        pairs = [word.partition("=") for word in shlex.split(text)]
    except ValueError:
        return text  # parse_filter explains it
    times = ("since", "until")
    return shlex.join(
        f"{n}{equals}{local_day(None, None, value) if n in times else value}" for n, equals, value in pairs
    )


def _intersection(first: Selector, second: Selector) -> Selector:
    """Both selectors at once; they must not have a condition in common."""
    conditions = {name: value for name, value in structs.asdict(first).items() if value is not None}
    more = {name: value for name, value in structs.asdict(second).items() if value is not None}
    for name in more:
        if name in conditions:
            raise InvalidInput(f"{name} is given as an option and in the filter", hint="Remove one of them.")
    return Selector(**conditions, **more)


def selects_all(selector: Selector) -> bool:
    """Whether the command line has no condition; actions refuse that instead of taking all jobs."""
    return all(value is None for value in structs.asdict(selector).values())
