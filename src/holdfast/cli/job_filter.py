"""The options by which every verb and list is told which jobs are meant."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click
from msgspec import structs

from holdfast.domain.jobs.filter import make_selector, parse_filter
from holdfast.domain.jobs.selector import Selector
from holdfast.errors import InvalidInput

_OPTIONS = (
    ("--key", "key", "Jobs with this unique key."),
    ("-l", "label", "Jobs with this label; * stands for anything."),
    ("--tag", "tag", "Jobs with this tag."),
    ("-q", "queue", "Jobs of this queue; * stands for anything."),
    ("-k", "kind", "Jobs of this kind; * stands for anything."),
    ("-s", "state", "Jobs in this state."),
)


def selecting(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options for choosing jobs; it gets a ``selector``."""

    def choose(*args: Any, **options: Any) -> Any:
        return function(*args, selector=_selector(options), **options)

    choose.__name__, choose.__doc__ = function.__name__, function.__doc__
    choose.__click_params__ = list(getattr(function, "__click_params__", ()))  # type: ignore[attr-defined]
    decorated: Any = choose
    decorated = click.option("--filter", "filter_", metavar="FILTER", help="state=dead kind=mail-* since=1h")(decorated)
    decorated = click.option("--until", metavar="WHEN", help="Enqueued before: 1h, 2d, or a moment.")(decorated)
    decorated = click.option("--since", metavar="WHEN", help="Enqueued since: 1h, 2d, or a moment.")(decorated)
    decorated = click.option("--error", metavar="TEXT", help="Jobs whose error holds this text.")(decorated)
    for short, name, text in reversed(_OPTIONS):
        spelt = [short, f"--{name}"] if short != f"--{name}" else [short]
        decorated = click.option(*spelt, name, multiple=True, metavar=name.upper(), help=text)(decorated)
    chosen: Callable[..., Any] = click.argument("ids", nargs=-1)(decorated)
    return chosen


def _selector(options: dict[str, Any]) -> Selector:
    """Take the selecting options out of *options*."""
    given = {name: list(options.pop(name)) for _, name, _ in _OPTIONS}
    given["id"] = list(options.pop("ids"))
    for name in ("error", "since", "until"):
        value = options.pop(name)
        given[name] = [] if value is None else [value]
    chosen = make_selector({name: values for name, values in given.items() if values})
    text = options.pop("filter_")
    return chosen if text is None else _both(chosen, parse_filter(text))


def _both(first: Selector, second: Selector) -> Selector:
    """Both selectors at once; one word cannot be said in both ways."""
    conditions = {name: value for name, value in structs.asdict(first).items() if value is not None}
    for name, value in structs.asdict(second).items():
        if value is not None and name in conditions:
            raise InvalidInput(f"{name} is given as an option and in the filter", hint="Say it once.")
        if value is not None:
            conditions[name] = value
    return Selector(**conditions)


def is_everything(selector: Selector) -> bool:
    """Whether nothing was asked for: verbs do not take that for all jobs."""
    return all(value is None for value in structs.asdict(selector).values())
