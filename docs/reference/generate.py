"""Write the reference pages that come from the code. A test fails when they are not current."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator
from pathlib import Path

import click

from holdfast.admin.actions.table import Action, Target, actions_on, plural
from holdfast.cli import schemas
from holdfast.cli.command import HoldfastCommand, shared_options
from holdfast.cli.main import COMMANDS, cli
from holdfast.cli.schemas import schema
from holdfast.errors.table import EXIT_CODES, ErrorExplanation, error_classes, error_table
from holdfast.settings import setting_fields

HERE = Path(__file__).parent
SHARED = {option.opts[-1] for option in shared_options()}


def error_page() -> str:
    """Every error with its code, its exit code, what it means and what to do."""
    lines = [
        "# Errors",
        "",
        "Look up an error code here, or with `holdfast explain CODE`. Every error is a `holdfast.HoldfastError` with",
        "`code`, `exit_code`, `hint`, `retryable` and `context`. `make docs` generates this page.",
        "",
        "| code | exit | class | meaning | what to do |",
        "|---|---|---|---|---|",
    ]
    classes = {error.code: error.__name__ for error in error_classes()}
    table = error_table().values()
    for row in sorted((row for row in table if row.code in classes), key=lambda row: (row.exit_code or 0, row.code)):
        hint = row.hint or ("Try again." if row.retryable else "")
        lines.append(f"| `{row.code}` | {row.exit_code} | `{classes[row.code]}` | {_meaning(row)} | {hint} |")
    lines += [
        "",
        "Errors of batch runs:",
        "",
        "| code | exit | meaning | what to do |",
        "|---|---|---|---|",
    ]
    for row in table:
        if row.code not in classes and row.http_status is None:
            lines.append(f"| `{row.code}` | {row.exit_code} | {_meaning(row)} | {row.hint} |")
    lines += ["", "Errors of the HTTP API:", "", "| code | status | meaning | what to do |", "|---|---|---|---|"]
    for row in sorted(table, key=lambda row: row.http_status or 0):
        if row.http_status is not None:
            lines.append(f"| `{row.code}` | {row.http_status} | {_meaning(row)} | {row.hint} |")
    return "\n".join(lines) + "\n"


def _meaning(row: ErrorExplanation) -> str:
    return row.meaning.split("\n\n")[0].replace("\n", " ")


def action_page() -> str:
    """Every action of the table: its states, role, confirmation and options."""
    lines = [
        "# Actions",
        "",
        "Command line, pages and HTTP API perform the same actions. `make docs` generates this page.",
        "",
        "A dry run performs the action in a transaction and rolls it back, with the same answer. If an action matches",
        "something but can change nothing, it exits with 9. *Repeatable* actions set something and can be repeated.",
    ]
    for target in Target:
        lines += ["", f"## {plural(target).capitalize()}", ""]
        lines += ["| action | label | effect | states | role | confirmation | options |", "|---" * 7 + "|"]
        lines += map(_action_row, actions_on(target).values())
    return "\n".join(lines) + "\n"


def _action_row(action: Action) -> str:
    states = ", ".join(state.replace("_", " ") for state in action.states)
    options = ", ".join(f"`{name}`" for name in action.options) or "none"
    repeatable = " Repeatable." if action.repeatable else ""
    effect = f"{action.confirmation}{repeatable}"
    return f"| `{action.name}` | {action.label} | {effect} | {states} | {action.role} | {action.confirm} | {options} |"


def commands(group: click.Group = cli, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], HoldfastCommand]]:
    """All commands of the program, by their words."""
    with click.Context(group) as ctx:
        for name in group.list_commands(ctx):
            found = group.get_command(ctx, name)
            if isinstance(found, click.Group):
                yield from commands(found, (*path, name))
            elif isinstance(found, HoldfastCommand):
                yield (*path, name), found


def cli_page() -> str:
    """Every command with its arguments and options."""
    lines = [
        "# The command line",
        "",
        "All commands, options and settings, as in `holdfast COMMAND --help`. `make docs` generates this page.",
        "",
        "## Options of every command",
        "",
        "Write them before or after the command.",
        "",
        *_options(shared_options()),
        "",
        "## Settings",
        "",
        "Later sources override earlier ones: the default, `holdfast.toml`, `[tool.holdfast]` of `pyproject.toml`, the",
        "environment, flags. Both files are read in the nearest folder that has one of them.",
        "`holdfast config show --origin` shows the source of each value.",
        "",
        "| setting | variable | default | meaning |",
        "|---|---|---|---|",
        *(
            f"| `{s.name}` | {f'`{s.variable}`' if s.variable else 'none'} | {_default(s.default)} | {s.description} |"
            for s in setting_fields().values()
        ),
        "",
        "## Exit codes",
        "",
        "| code | name | meaning |",
        "|---|---|---|",
        *(f"| {each.code} | `{each.name}` | {each.meaning} |" for each in EXIT_CODES.values()),
        "",
        "## Commands",
        "",
        *_index(),
    ]
    for path, command in commands():
        lines += _command(path, command)
    return "\n".join(lines).rstrip() + "\n"


def _index() -> Iterator[str]:
    """The commands by the headings of ``holdfast --help``, each with a link to its section or sections."""
    paths = [path for path, _ in commands()]
    for heading, group in COMMANDS.items():
        yield from (f"**{heading}**", "")
        for name, (_, text) in group.items():
            links = ", ".join(f"[{path[-1]}](#holdfast-{'-'.join(path)})" for path in paths if path[0] == name)
            yield f"- {links}: {text}" if (name,) in paths else f"- {name} {links}: {text}"
        yield ""


def _command(path: tuple[str, ...], command: HoldfastCommand) -> Iterator[str]:
    name = " ".join(path)
    ctx = click.Context(command, info_name=f"holdfast {name}")
    usage = " ".join([ctx.command_path, *command.collect_usage_pieces(ctx)])
    yield from (f"### holdfast {name}", "", "```text", usage, "```", "")
    yield from _text(inspect.cleandoc(command.help or ""))
    own = [option for option in command.params if isinstance(option, click.Option) and option.opts[-1] not in SHARED]
    if own:
        yield from (*_options(own), "")
    yield from (f"JSON: [schemas/{'-'.join(path)}.json](schemas/{'-'.join(path)}.json)", "")


def _text(text: str) -> Iterator[str]:
    """Help as Markdown: what must not be wrapped is code."""
    for part in text.split("\n\n"):
        head, _, rest = part.partition("\n")
        if head == "\b":
            title, _, body = rest.partition("\n")
            yield from (title, "", "```text", inspect.cleandoc(body), "```", "")
        else:
            yield from (part, "")


def _options(options: list[click.Option]) -> Iterator[str]:
    yield from ("| option | meaning |", "|---|---|")
    for option in options:
        value = "" if option.is_flag else f" {option.make_metavar(click.Context(cli))}"
        spelt = ", ".join(f"`{name}{value}`".replace("|", "\\|") for name in option.opts)
        yield f"| {spelt} | {(option.help or '').replace('|', chr(92) + '|')} |"


def _default(value: object) -> str:
    if isinstance(value, dict) and value:
        return f"`{','.join(f'{name}={each}' for name, each in value.items())}`"
    return "" if value in (None, "", []) else f"`{value}`"


def schema_files() -> dict[str, str]:
    """One JSON Schema for each command."""
    return {
        f"schemas/{'-'.join(path)}.json": json.dumps(
            schema(f"holdfast {' '.join(path)}", _answers(command)), indent=2, sort_keys=True
        )
        + "\n"
        for path, command in commands()
    }


def _answers(command: HoldfastCommand) -> object:
    return getattr(schemas, command.answers) if isinstance(command.answers, str) else command.answers


def pages() -> dict[str, str]:
    """Every generated file, by its name here."""
    return {"actions.md": action_page(), "errors.md": error_page(), "cli.md": cli_page(), **schema_files()}


if __name__ == "__main__":
    (HERE / "schemas").mkdir(exist_ok=True)
    for old in (HERE / "schemas").glob("*.json"):
        old.unlink()
    for name, text in pages().items():
        (HERE / name).write_text(text, encoding="utf-8")
