"""Presets: defaults of commands from the configuration file, with the origin of each value."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Struct

from holdfast.domain.fleet.queue import checked_queue
from holdfast.domain.names import checked_variable
from holdfast.domain.quantities import as_bytes, as_duration, checked_number
from holdfast.errors import InvalidInput

#: The values of a command without presets and options.
BUILT_IN: dict[str, Any] = {
    "queue": "default",
    "priority": 0,
    "retry": 0,
    "retry_delay": "10s",
    "timeout": None,
    "stop_delay": None,
    "memory": None,
    "cpus": None,
    "require_cap": False,
    "log_cap": None,
    "cwd": None,
}
Words = Annotated[list[str], msgspec.Meta(min_length=1)]


class PresetValues(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Options of a command; None leaves the default."""

    queue: str | None = None
    priority: int | None = None
    retry: int | None = None
    retry_delay: str | None = None
    timeout: str | None = None
    stop_delay: str | None = None
    memory: str | int | None = None
    cpus: float | None = None
    require_cap: bool | None = None
    log_cap: str | int | None = None
    cwd: str | None = None


class Preset(PresetValues, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Options and environment variables for commands."""

    env: dict[str, str] = {}

    def __post_init__(self) -> None:
        for size in (self.memory, self.log_cap):
            if size is not None:
                as_bytes(size)
        for time in (self.timeout, self.stop_delay, self.retry_delay):
            if time is not None:
                as_duration(time)
        if self.queue is not None:
            checked_queue(self.queue)
        if self.priority is not None:
            checked_number(self.priority, label="a priority")
        if self.retry is not None and not 0 <= self.retry <= 10_000:
            raise InvalidInput(f"retry is a number from 0 to 10,000, not {self.retry}")
        for name in self.env:
            checked_variable(name)


class Presets(Struct, frozen=True, kw_only=True):
    """The presets of a file: for all commands, and by pattern of the label; the first match counts."""

    file: str = ""
    command: Preset = Preset()
    profiles: dict[str, Preset] = {}

    def of(self, label: str) -> list[tuple[str, Preset]]:
        """The presets for a label, the stronger first, each with its place in the file."""
        matches = [
            (f"{self.file}: profiles.{pattern}", preset)
            for pattern, preset in self.profiles.items()
            if re.fullmatch(re.escape(pattern).replace(r"\*", ".*"), label, re.DOTALL)
        ]
        return [*matches[:1], (f"{self.file}: command", self.command)]


class ResolvedPreset(Struct, frozen=True):
    """The values in force for one command, and the origin of each value that is not built in."""

    values: dict[str, Any]
    env: dict[str, str]
    origins: dict[str, str]


def resolve_preset(options: Mapping[str, Any], presets: Presets, label: str) -> ResolvedPreset:
    """Merge options of the command line, the profile of the label, the file's preset and the built-in values.

    A relative directory in a file is relative to the file.
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
        if options.get(name) is not None and options[name] is not False:
            values[name], origins[name] = options[name], f"--{name.replace('_', '-')}"
    return ResolvedPreset(values, env, origins)


#: Hints for the tables of a configuration file.
PRESET_HINTS = {
    "command": f"[command] may hold: {', '.join((*BUILT_IN, 'env'))}.",
    "profiles": f'[profiles."label*"] may hold: {", ".join((*BUILT_IN, "env"))}.',
    "audit_checks": 'Write a list of commands, each a list of words: [["git", "diff", "--quiet"]].',
}
