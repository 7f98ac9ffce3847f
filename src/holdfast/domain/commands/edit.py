"""Edits: changes that a person makes to a command before it runs."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from msgspec import UNSET, Struct, UnsetType, structs

from holdfast.domain.commands.command import Command, load_command, mask_variables

#: Fields of a command that an edit may set, besides variables.
EDITABLE_FIELDS = ("cwd", "timeout", "memory", "cpus", "log_cap")


class Edit(Struct, frozen=True, kw_only=True):
    """New values; UNSET keeps the old one. *env* adds or changes variables, *without* deletes them."""

    env: dict[str, str] = {}
    without: tuple[str, ...] = ()
    cwd: str | UnsetType = UNSET
    timeout: timedelta | UnsetType | None = UNSET
    memory: int | UnsetType | None = UNSET
    cpus: float | UnsetType | None = UNSET
    log_cap: int | UnsetType | None = UNSET

    @property
    def fields(self) -> dict[str, Any]:
        return {name: value for name in EDITABLE_FIELDS if (value := getattr(self, name)) is not UNSET}

    def __bool__(self) -> bool:
        return bool(self.env or self.without or self.fields)

    def __str__(self) -> str:
        return " ".join(f"{name}={value}" for name, value in self.describe().items())

    def applied(self, payload: str, actor: str) -> str:
        """The new payload of the command; the same string if nothing changes."""
        command = load_command(payload)
        env = {name: value for name, value in {**command.env, **self.env}.items() if name not in self.without}
        changes: dict[str, Any] = {**self.fields, "env": env}
        changed = [name for name in self.fields if getattr(command, name) != changes[name]]
        changed += [f"env.{name}" for name in sorted({*command.env, *env}) if command.env.get(name) != env.get(name)]
        if not changed:
            return payload
        return structs.replace(
            command, **changes, origins=_remaining_origins(command, env) | dict.fromkeys(changed, f"set by {actor}")
        ).dumps()

    def describe(self) -> dict[str, object]:
        """The changes for the history, with secrets masked."""
        fields = {name: _plain(value) for name, value in self.fields.items()}
        named = {**mask_variables(self.env), **dict.fromkeys(self.without)}
        return {**fields, **({"env": named} if named else {})}


def _remaining_origins(command: Command, env: Mapping[str, str]) -> dict[str, str]:
    """The origins of values that the command still has."""
    return {
        name: origin
        for name, origin in command.origins.items()
        if not name.startswith("env.") or name.removeprefix("env.") in env
    }


def _plain(value: object) -> object:
    return value.total_seconds() if isinstance(value, timedelta) else value
