"""``config``: the settings, and where each comes from."""

from __future__ import annotations

import shlex
from typing import Any

import click
from msgspec.structs import replace

from holdfast.cli.command import CommandGroup, Items, command
from holdfast.cli.session import CliSession
from holdfast.cli.text import Column, Table, with_table
from holdfast.domain.access.masking import mask_store_url
from holdfast.domain.commands.command import mask_variables as masked_variables
from holdfast.settings import SettingValue


def _format_value(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(item if isinstance(item, str) else shlex.join(item) for item in value)
    return "" if value is None or isinstance(value, dict) else str(value)


SETTINGS: Table[SettingValue] = Table(
    (
        Column("SETTING", lambda setting: setting.name),
        Column("VALUE", lambda setting: _format_value(setting.value)),
        Column("ORIGIN", lambda setting: setting.origin, wide=True),
    )
)


@click.group("config", cls=CommandGroup)
def config() -> None:
    """Show the settings and where each comes from."""


@command("show", group=config, answers=Items("settings", SettingValue))
@click.option("--origin", is_flag=True, help="Show where each value comes from.")
@with_table(SETTINGS)
def show(session: CliSession, *, origin: bool, table: Table[SettingValue]) -> None:
    """Show every setting and its value.

    Later ones win: defaults, holdfast.toml, [tool.holdfast] of pyproject.toml, HOLDFAST_*, flags.

    Examples:
      holdfast config show --origin
    """
    values = [_in_force(session, leaf) for each in session.loaded.values.values() for leaf in flatten(each)]
    shown = replace(table.including("origin"), is_cut=False) if origin else table  # a long value would hide the origin
    session.output.items("settings", values, shown.lines)


def flatten(setting: SettingValue) -> list[SettingValue]:
    """A table key by key, such as ``command.memory``; any other setting unchanged."""
    if not isinstance(setting.value, dict) or not setting.value:
        return [setting]
    inner = (SettingValue(f"{setting.name}.{key}", value, setting.origin) for key, value in setting.value.items())
    return [leaf for each in inner for leaf in flatten(each)]


def _in_force(session: CliSession, setting: SettingValue) -> SettingValue:
    name, value = setting.name, setting.value
    origin = session.loaded.key_origins.get(name, setting.origin)
    if name in session.flags:
        value, origin = session.flags[name], f"--{name}"
    return SettingValue(name, _without_secrets(name, value), origin)


def _without_secrets(name: str, value: Any) -> Any:
    """Mask the password of the store's URL and variables with secret names."""
    if name == "url":
        return mask_store_url(value)
    preset, _, variable = name.rpartition(".env.")
    return masked_variables({variable: value})[variable] if preset else value
