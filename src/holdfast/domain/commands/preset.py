"""Presets of commands: what the configuration file says where the line says nothing, and where each value came from."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Struct

from holdfast.domain.commands.command import checked_variable
from holdfast.domain.durations import as_duration
from holdfast.domain.names import checked_name
from holdfast.domain.sizes import as_bytes, checked_number
from holdfast.errors import InvalidInput

#: What a command is given where nobody says anything.
BUILT_IN: dict[str, Any] = {
    "queue": "default",
    "priority": 0,
    "retry": 0,
    "retry_delay": "10s",
    "timeout": None,
    "memory": None,
    "cpus": None,
    "require_cap": False,
    "log_cap": None,
    "cwd": None,
}
#: The words of a command.
Words = Annotated[list[str], msgspec.Meta(min_length=1)]


class PresetValues(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """What may be said of a command, wherever; None says nothing."""

    queue: str | None = None
    priority: int | None = None
    retry: int | None = None
    retry_delay: str | None = None
    timeout: str | None = None
    memory: str | int | None = None
    cpus: float | None = None
    require_cap: bool | None = None
    log_cap: str | int | None = None
    cwd: str | None = None


class Preset(PresetValues, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Values for commands, and their variables."""

    env: dict[str, str] = {}

    def __post_init__(self) -> None:
        for size in (self.memory, self.log_cap):
            if size is not None:
                as_bytes(size)
        for time in (self.timeout, self.retry_delay):
            if time is not None:
                as_duration(time)
        if self.queue is not None:
            checked_name(self.queue, label="the queue")
        if self.priority is not None:
            checked_number(self.priority, label="a priority")
        if self.retry is not None and not 0 <= self.retry <= 10_000:
            raise InvalidInput(f"a program is tried 0 to 10,000 times again, not {self.retry}")
        for name in self.env:
            checked_variable(name)


class Presets(Struct, frozen=True, kw_only=True):
    """The presets of a file: for all commands, and for those whose label fits a pattern; the first that fits counts."""

    file: str = ""
    command: Preset = Preset()
    profiles: dict[str, Preset] = {}

    def of(self, label: str) -> list[tuple[str, Preset]]:
        """What holds for a label, the stronger first, each with its place in the file."""
        found = [
            (f"{self.file}: profiles.{pattern}", preset)
            for pattern, preset in self.profiles.items()
            if re.fullmatch(re.escape(pattern).replace(r"\*", ".*"), label, re.DOTALL)
        ]
        return [*found[:1], (f"{self.file}: command", self.command)]


class ResolvedPreset(Struct, frozen=True):
    """What is in force for one command, and the origin of each value that somebody has said."""

    values: dict[str, Any]
    env: dict[str, str]
    origins: dict[str, str]


def resolve_preset(given: Mapping[str, Any], presets: Presets, label: str) -> ResolvedPreset:
    """What is in force: what was given on the line, or the profile of the label, or the file's, or the built-in value.

    A relative directory of a file is meant from where the file is.
    """
    values, env, origins = dict(BUILT_IN), {}, {}
    for place, preset in reversed(presets.of(label)):
        for name in BUILT_IN:
            if (value := getattr(preset, name)) is not None:
                values[name], origins[name] = value, f"{place}.{name}"
                if name == "cwd":
                    values[name] = str(Path(presets.file).parent / value)
        for name, text in preset.env.items():
            env[name], origins[f"env.{name}"] = text, f"{place}.env.{name}"
    for name in BUILT_IN:
        if given.get(name) is not None and given[name] is not False:
            values[name], origins[name] = given[name], f"--{name.replace('_', '-')}"
    return ResolvedPreset(values, env, origins)


#: The tables of a configuration file, and what each may hold.
PRESET_HINTS = {
    "command": f"[command] may hold: {', '.join((*BUILT_IN, 'env'))}.",
    "profiles": f'[profiles."label*"] may hold: {", ".join((*BUILT_IN, "env"))}.',
    "audit_checks": 'Write a list of commands, each a list of words: [["git", "diff", "--quiet"]].',
}
