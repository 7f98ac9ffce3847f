"""Settings and where they come from: defaults, configuration files, the environment. Flags overrule them all."""

from __future__ import annotations

import hashlib
import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

from holdfast.domain.access.masking import mask_store_url
from holdfast.domain.fleet.admission import host_limit
from holdfast.domain.text import as_bytes, nearest
from holdfast.errors import ConfigurationError, InvalidInput


class Setting(NamedTuple):
    """One setting: the type of its value, its default, and what it means."""

    name: str
    type: type[str | int | list[Any] | dict[str, Any]]
    default: str | int | list[Any] | dict[str, Any] | None
    text: str
    #: The only values it may have, where there are few.
    choices: tuple[str, ...] = ()
    #: Whether it has parts of its own, which no variable could hold.
    table: bool = False

    @property
    def variable(self) -> str | None:
        """Its name in the environment."""
        return None if self.table else f"HOLDFAST_{self.name.upper()}"


class SettingValue(NamedTuple):
    """A setting's value and where it came from: a file, a variable, a flag, or ``default``."""

    name: str
    value: Any
    origin: str


SETTINGS = {
    setting.name: setting
    for setting in (
        Setting("url", str, None, "The store."),
        Setting("app", str, None, "The application whose kinds a worker runs, as MODULE:APP."),
        Setting("queues", list, [], "The queues a worker serves; none means those of its kinds."),
        Setting("slots", int, 8, "Jobs that a worker runs at a time: 1 to 10,000."),
        Setting("grace", str, "30s", "How long jobs may go on after a first signal."),
        Setting("metrics", str, None, "HOST:PORT where a worker serves /metrics, /livez and /readyz."),
        Setting("web", str, "127.0.0.1:8320", "HOST:PORT where the dashboard and the API listen."),
        Setting("web_hosts", list, [], "Names that the dashboard answers to, beside those of this machine."),
        Setting("web_secure", str, "off", "Whether it is reached by HTTPS alone: cookies say so.", ("on", "off")),
        Setting("web_proxy_header", str, None, "The header in which a trusted proxy names the person."),
        Setting("web_proxy_from", list, [], "Addresses of proxies whose header is trusted."),
        Setting(
            "web_proxy_role", str, "viewer", "What people named by a proxy may do.", ("viewer", "operator", "admin")
        ),
        Setting("log_format", str, "text", "How a worker writes its log.", ("text", "json")),
        Setting("log_level", str, "info", "What a worker writes to its log.", ("debug", "info", "warning", "error")),
        Setting("ping_hosts", list, [], "The hosts that schedules may ping when they succeed; none: no pings."),
        Setting("output", str, "text", "How commands print.", ("text", "json", "ndjson")),
        Setting("memory_profiles", dict, {}, "What programs take, by label: 8G. * stands for anything."),
        Setting("host_limits", dict, {}, "What programs may take of a host, by its name: 80% (the default) or 48G."),
        Setting("api_key_sha256", str, None, "SHA-256, in hex, of the key that changes need in HOLDFAST_API_KEY."),
        Setting("command", dict, {}, "What add, sweep and run take where the line says nothing.", table=True),
        Setting("profiles", dict, {}, "The same for programs whose label fits a pattern.", table=True),
        Setting("audit_checks", list, [], "Programs that audit runs; one that fails is exit 1.", table=True),
    )
}
FILES = ("holdfast.toml", "pyproject.toml")


def settings(
    *, environ: Mapping[str, str] = os.environ, directory: Path | None = None, file: Path | None = None
) -> dict[str, SettingValue]:
    """Every setting with its value: a variable before a file, a file before the default.

    The files are those of the nearest folder that has any, here or above; where both set a value,
    ``[tool.holdfast]`` of ``pyproject.toml`` is the stronger one. *file* is read instead of them.

    Raises:
        ConfigurationError: A file cannot be read, a setting does not exist, or has a wrong value.
    """
    found = {name: SettingValue(name, setting.default, "default") for name, setting in SETTINGS.items()}
    found["url"] = SettingValue("url", f"sqlite:///{user_data(environ) / 'holdfast.db'}", "default")
    for source in (file,) if file is not None else _nearest(directory or Path.cwd()):
        found |= {name: SettingValue(name, value, str(source)) for name, value in _from(source).items()}
    for name, setting in SETTINGS.items():
        variable = setting.variable
        if variable is not None and (text := environ.get(variable)):
            found[name] = SettingValue(name, _checked(setting, _parsed(setting, text), variable), variable)
    return found


def flattened(found: SettingValue) -> list[SettingValue]:
    """A setting with parts, part by part: ``command.memory``; any other one by itself."""
    if not isinstance(found.value, dict) or not found.value:
        return [found]
    parts = (SettingValue(f"{found.name}.{name}", value, found.origin) for name, value in found.value.items())
    return [each for part in parts for each in flattened(part)]


def default_url() -> str:
    """The store when nobody says: ``HOLDFAST_URL``, a configuration file, or a SQLite file of the user."""
    url: str = settings()["url"].value
    return url


def user_data(environ: Mapping[str, str]) -> Path:
    """The directory for this user's own data."""
    home = Path(environ.get("HOME") or Path.home())
    if sys.platform == "darwin":
        return home / "Library" / "Application Support" / "holdfast"
    return Path(environ.get("XDG_DATA_HOME") or home / ".local" / "share") / "holdfast"


def log_folder(url: str, environ: Mapping[str, str] = os.environ) -> Path:
    """Where programs of a store leave what they write, on this host: beside a SQLite file, or in the user's data."""
    if url.startswith("sqlite:"):
        return Path(f"{unquote(url.removeprefix('sqlite:///').partition('?')[0])}-logs").absolute()
    digest = hashlib.sha256(mask_store_url(url).encode()).hexdigest()[:16]
    return user_data(environ) / "logs" / digest


def _nearest(directory: Path) -> list[Path]:
    for folder in (directory, *directory.parents):
        files = [folder / name for name in FILES if (folder / name).is_file()]
        if found := [file for file in files if _from(file)]:
            return found
    return []


def _from(file: Path) -> dict[str, Any]:
    """The settings of one file; in a ``pyproject.toml`` they have a table of their own."""
    found = _load(file)
    if file.name == "pyproject.toml":
        tools = found.get("tool", {})
        found = tools.get("holdfast", {}) if isinstance(tools, dict) else {}
        if not isinstance(found, dict):
            raise ConfigurationError(f"{file}: [tool.holdfast] must be a table")
    for name in found.keys() - SETTINGS.keys():
        raise ConfigurationError(f"{file}: there is no setting {name!r}", hint=_nearest_name(name))
    return {name: _checked(SETTINGS[name], value, str(file)) for name, value in found.items()}


def _load(file: Path) -> dict[str, Any]:
    import tomllib  # most machines have no such file

    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:  # TOML and text that cannot be decoded among them
        raise ConfigurationError(
            f"{file} cannot be read: {error}", hint="Mend the file, or name another with --config."
        ) from None


def _parsed(setting: Setting, text: str) -> Any:
    """A value from the environment, where everything is text."""
    if setting.type is list:
        return [part.strip() for part in text.split(",") if part.strip()]
    if setting.type is dict:
        pairs = [part.rpartition("=") for part in text.split(",") if part.strip()]
        return {name.strip(): value.strip() for name, _, value in pairs}
    return int(text) if setting.type is int and re.fullmatch(r"\d{1,9}", text) else text


def _checked(setting: Setting, value: Any, source: str) -> Any:
    if setting.table:
        from holdfast.domain.commands.preset import checked_table

        return checked_table(setting.name, value, source)
    fits = isinstance(value, setting.type) and not isinstance(value, bool)
    if setting.type is list and fits:
        fits = all(isinstance(part, str) for part in value)
    if setting.type is dict and fits:
        fits = all(isinstance(part, str) and name for name, part in value.items()) and _are_sizes(setting.name, value)
    if setting.name == "slots" and fits:
        fits = 1 <= value <= 10_000
    if setting.name == "api_key_sha256" and fits:
        fits = re.fullmatch(r"[0-9a-fA-F]{64}", value) is not None
    if not fits or (setting.choices and value not in setting.choices):
        kinds = {str: "a text", int: "a whole number", list: "a list of texts", dict: "a table of sizes"}
        requested = " or ".join(setting.choices) or kinds[setting.type]
        raise ConfigurationError(f"{source}: {setting.name} must be {requested}, not {value!r}", hint=setting.text)
    return value


def _are_sizes(name: str, table: Mapping[str, str]) -> bool:
    try:
        for size in table.values():
            as_bytes(size) if name == "memory_profiles" else host_limit(size, 1)
    except InvalidInput:
        return False
    return True


def _nearest_name(name: str) -> str:
    near = nearest(name, SETTINGS)
    return f"Did you mean {near!r}?" if near else f"The settings are: {', '.join(SETTINGS)}."
