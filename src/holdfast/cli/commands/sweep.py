"""``sweep``: add a command for every combination of parameters."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from holdfast.cli.command import command, with_options
from holdfast.cli.commands.add import AddAnswer, add_all
from holdfast.cli.commands.command_words import WordsCommand, argv_argument, command_words
from holdfast.cli.commands.options import OPTIONS, JobBuilder, short_label
from holdfast.cli.session import CliSession
from holdfast.client.input_file import InputFile
from holdfast.domain.commands.command import (
    COMMAND,
    check_placeholders,
    grid,
    parameter_values,
    substitute,
    sweep_key,
    sweep_label,
)
from holdfast.domain.jobs.job import State
from holdfast.domain.jobs.selector import Selector
from holdfast.domain.names import path_part
from holdfast.errors import InvalidInput
from holdfast.settings import absolute_path

#: Unique keys in one query.
KEYS_PER_QUERY = 500


@command("sweep", answers=AddAnswer, changes=True, cls=WordsCommand)
@argv_argument
@click.option(
    "--param",
    "parameters",
    multiple=True,
    metavar="NAME=A,B,…",
    help="Parameter and its values, or a range: 1..5.",
)
@click.option("--csv", "file", metavar="FILE", help="CSV file: names in the first row, one job per further row.")
@click.option("--again", is_flag=True, help="Also run combinations again that are done.")
@click.option("--workdir", metavar="DIR", help="Run each in its own new directory below this one. Use absolute paths.")
@with_options(*OPTIONS)
def sweep(session: CliSession, *, argv: tuple[str, ...], workdir: str | None, again: bool, **options: Any) -> None:
    """Add a command for every combination of parameters. {name} stands for the value of a parameter.

    Run the same sweep again to add only what is missing. Each job has the label PROGRAM/name=value: holdfast ls
    --label 'simulate*' lists them. Write {{ and }} for literal braces.

    Examples:
      holdfast sweep --param symbol=A,B --param year=2019..2022 -- python backtest.py {symbol} {year}
      holdfast sweep --csv runs.csv --workdir out -- ./simulate --seed {seed}
    """
    argv = command_words(argv, shell=None)
    rows = list(_parameter_sets(options["parameters"], options["file"]))
    check_placeholders(argv, rows[0], all_used=workdir is None)
    if workdir is not None and argv[0].startswith("."):  # a new directory does not have it
        argv = (str(absolute_path(argv[0])), *argv[1:])
    label = options["label"] or Path(argv[0]).name
    builder, requests = JobBuilder(session, options), []
    for row in rows:
        overrides = {"label": short_label(sweep_label(label, row))}
        if workdir is not None:
            folder = Path(workdir, *(f"{name}={path_part(value)}" for name, value in row.items())).absolute()
            folder.mkdir(parents=True, exist_ok=True)
            overrides["cwd"] = str(folder)
        key = sweep_key(label, argv, row)
        requests.append(builder.build(substitute(argv, row), overrides=overrides, key=key, parameters=row))
    known = set() if again else _not_failed(session, [request.unique.key for request in requests if request.unique])
    new = [request for request in requests if request.unique and request.unique.key not in known]
    add_all(session, new, options, len(known))


def _not_failed(session: CliSession, keys: Sequence[str]) -> set[str]:
    """The keys of jobs that exist and are neither dead nor cancelled."""
    known: set[str] = set()
    for start in range(0, len(keys), KEYS_PER_QUERY):
        selector = Selector(kinds=(COMMAND,), keys=tuple(keys[start : start + KEYS_PER_QUERY]))
        jobs = session.store.views.all(selector)
        known |= {job.key for job in jobs if job.key is not None and job.state not in (State.DEAD, State.CANCELLED)}
    return known


def _parameter_sets(parameters: Sequence[str], file: str | None) -> Iterator[dict[str, str]]:
    """The parameters of each job: every combination of ``--param`` values, or the rows of a CSV file."""
    if bool(parameters) == (file is not None):
        raise InvalidInput("parameters come from --param or from --csv", hint="Add --param year=2020,2021.")
    if file is None:
        values: dict[str, list[str]] = {}
        for text in parameters:
            name, assigned, listed = text.partition("=")
            if not assigned or not name.isidentifier() or name in values:
                raise InvalidInput(f"{text!r} is not a new parameter", hint="Write --param year=2020,2021.")
            values[name] = parameter_values(name, listed)
        yield from grid(values)
        return
    try:
        table = list(csv.reader(io.StringIO(InputFile(file).text(), newline=""), strict=True))
    except csv.Error as error:
        raise InvalidInput(f"{file} cannot be read: {error}") from None
    yield from _csv_rows(file, table)


def _csv_rows(file: str, table: list[list[str]]) -> Iterator[dict[str, str]]:
    if len(table) < 2:
        raise InvalidInput(f"{file} has no rows below a row of names")
    names = table[0]
    if len(set(names)) < len(names) or not all(name.isidentifier() for name in names):
        raise InvalidInput(f"{file}: the first row names parameters, each once, not {names!r:.100}")
    for number, row in enumerate(table[1:], start=2):
        if row and len(row) != len(names):
            raise InvalidInput(f"{file}, row {number} has {len(row)} values, not {len(names)}")
        if row:
            yield dict(zip(names, row, strict=True))
