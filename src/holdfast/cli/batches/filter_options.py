"""The options that select batches, shared by the commands on batches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from holdfast.cli.command import with_options
from holdfast.domain.batches.batch import BatchState
from holdfast.domain.batches.batch_filter import batch_filter

_STATES = click.Choice([state.value for state in BatchState])
_OPTIONS = (
    click.option("-s", "--state", "states", multiple=True, type=_STATES, help="Batches in this state."),
    click.option("-f", "--function", metavar="NAME", help="Batches of this function; * stands for anything."),
    click.option("--name", metavar="NAME", help="Batches of this name, or over these keys; * stands for anything."),
    click.option("--owner", metavar="NAME", help="Batches that this person began; * stands for anything."),
    click.option("--since", metavar="WHEN", help="Begun since: 2d, or 2030-01-01T06:00:00Z."),
    click.option("--until", metavar="WHEN", help="Begun before: 2d, or 2030-01-01T06:00:00Z."),
)
_NAMES = ("states", "function", "name", "owner", "since", "until", "older_than")


def with_batch_filter(*more: Callable[..., Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add the options that select batches, and *more*; the function receives the filter as ``chosen``."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        def select(*args: Any, **options: Any) -> Any:
            conditions = {name: options.pop(name) for name in _NAMES if name in options}
            return function(*args, chosen=batch_filter(**conditions), **options)

        select.__name__, select.__doc__ = function.__name__, function.__doc__
        return with_options(*_OPTIONS, *more)(select)

    return decorate
