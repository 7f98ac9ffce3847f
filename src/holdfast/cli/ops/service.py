"""``service``: ``up`` as a systemd user service."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import click
from msgspec import Struct

from holdfast.cli.command import CommandGroup, command
from holdfast.cli.ops.up import up_command
from holdfast.cli.ops.worker import worker_options
from holdfast.cli.session import CliSession
from holdfast.domain.access.masking import mask_store_url
from holdfast.errors import Conflict, InvalidInput, NotFound
from holdfast.settings import current_directory


class ServiceFile(Struct, frozen=True):
    """A unit file, its text, and the commands to run next."""

    file: str
    text: str
    next: list[str]


@click.group("service", cls=CommandGroup)
def service() -> None:
    """Install or remove a systemd user service that runs holdfast up when you log in."""


name_option = click.option("--name", default="holdfast", show_default=True, help="Name of the systemd unit.")


@command("install", group=service, answers=ServiceFile)
@worker_options
@name_option
@click.option("--dry-run", is_flag=True, help="Show the unit file and write nothing.")
@click.option("--force", is_flag=True, help="Overwrite a unit of this name.")
def install(session: CliSession, *, name: str, dry_run: bool, force: bool, **flags: Any) -> None:
    """Write a systemd user unit that runs holdfast up.

    The unit runs it in this directory, with these options.

    Examples:
      holdfast service install --app shop.jobs:app
      systemctl --user daemon-reload
      systemctl --user enable --now holdfast
    """
    file, variables = _file(name), _variables(session)
    url = session.flags.get("url", variables.get("HOLDFAST_URL", ""))
    if url != mask_store_url(url):
        hint = "Put the url into holdfast.toml here (mode 600), or into ~/.pgpass; leave --url and HOLDFAST_URL out."
        raise InvalidInput("a systemd unit must not contain a password", hint=hint)
    text = unit_text(up_command(session, flags), current_directory(), variables)
    if not dry_run:
        if file.exists() and not force:
            raise Conflict(f"{file} exists already", hint="Use --force to overwrite it, or another --name.")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
        file.chmod(0o600)
    follow = ["systemctl --user daemon-reload", f"systemctl --user enable --now {name}"]
    lines = text.splitlines() if dry_run else [f"written: {file}", "next:", *(f"  {line}" for line in follow)]
    session.output.value(ServiceFile(str(file), text, follow), lambda: lines)


@command("uninstall", group=service, answers=ServiceFile)
@name_option
def uninstall(session: CliSession, *, name: str) -> None:
    """Remove the systemd user unit. Stop it first: systemctl --user disable --now NAME.

    Examples:
      holdfast service uninstall
    """
    file = _file(name)
    if not file.exists():
        raise NotFound(f"there is no unit {file}")
    text = file.read_text(encoding="utf-8")
    file.unlink()
    follow = ["systemctl --user daemon-reload"]
    session.output.value(ServiceFile(str(file), text, follow), lambda: [f"removed: {file}", *follow])


def _variables(session: CliSession) -> dict[str, str]:
    """The variables that hold settings now: the service gets the same ones, the URL of the store above all."""
    origins = {setting.origin for name, setting in session.loaded.values.items() if name not in session.flags}
    return {name: os.environ[name] for name in sorted(origins) if name.startswith("HOLDFAST_")}


def unit_text(line: Iterable[str], directory: Path, variables: Mapping[str, str] | None = None) -> str:
    """The text of a unit file. systemd has its own rules for %, $, quotes and backslashes."""
    command_line = " ".join(quoted(argument) for argument in line)
    settings = "".join(f'Environment="{_escaped(f"{name}={value}")}"\n' for name, value in (variables or {}).items())
    return f"""[Unit]
Description=Holdfast
After=network-online.target

[Service]
WorkingDirectory={str(directory).replace("%", "%%")}
{settings}ExecStart={command_line}
# The first SIGTERM lets jobs end within the grace; systemd must wait longer than that.
KillMode=mixed
TimeoutStopSec=60
Restart=on-failure
RestartSec=2

[Install]
WantedBy=default.target
"""


def quoted(argument: str) -> str:
    """Quote an argument of a command line for systemd."""
    text = _escaped(argument).replace("$", "$$")
    return text if re.fullmatch(r"[\w@%+=:,./$-]+", text) else f'"{text}"'


def _escaped(text: str) -> str:
    if re.search(r"[\x00-\x1f\x7f]", text):
        raise InvalidInput(f"{text!r} cannot be part of a unit file", hint="Leave control characters out.")
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")


def _file(name: str) -> Path:
    if not re.fullmatch(r"[A-Za-z0-9_.@-]{1,100}", name):
        raise InvalidInput(
            f"{name!r} is not a valid name for a unit", hint="Use letters, digits, dots, dashes and underscores."
        )
    home = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    return home / "systemd" / "user" / f"{name}.service"
