"""Settings: defaults, configuration files and the environment, from weak to strong. Flags override all of them."""

# Without the import of annotations from __future__: msgspec would compile each of them from its text, at every start.

import os
import re
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_origin

import msgspec
from msgspec import Meta, Struct

from holdfast.domain.commands.preset import PRESET_HINTS, Preset, Words
from holdfast.domain.names import nearest_name
from holdfast.domain.quantities import as_bytes, host_limit
from holdfast.domain.retention import RetentionAges, checked_ages, default_ages
from holdfast.domain.store_url import HINT, SCHEME, SqliteUrl, anchored, sqlite_url, without_password
from holdfast.errors import ConfigurationError, InvalidInput

FILES = ("holdfast.toml", "pyproject.toml")


class MemorySize(str):
    """A size in bytes as people write it: ``8G``."""

    __slots__ = ()


class HostLimit(str):
    """A share of a host or a size: ``80%``, ``48G``."""

    __slots__ = ()


Label = Annotated[str, Meta(min_length=1)]


def _doc(description: str, **limits: Any) -> Meta:
    return Meta(description=description, **limits)


class Settings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Every setting with its type and its default. The descriptions are the reference and the hints of errors."""

    url: Annotated[str, _doc("The store. In a file, a relative path of SQLite begins in the folder of that file.")]
    app: Annotated[str | None, _doc("The application whose kinds a worker runs, as MODULE:APP.")] = None
    queues: Annotated[list[str], _doc("The queues a worker serves: * for all; none means those of its kinds.")] = []
    kinds: Annotated[list[str], _doc("The kinds a worker runs; none means all of its application.")] = []
    slots: Annotated[int, _doc("Jobs that a worker runs at a time: 1 to 10,000.", ge=1, le=10_000)] = 8
    grace: Annotated[str, _doc("How long running jobs may continue after the first signal.")] = "30s"
    metrics: Annotated[str | None, _doc("HOST:PORT where a worker serves /metrics, /livez and /readyz.")] = None
    web: Annotated[str, _doc("HOST:PORT where the dashboard and the API listen.")] = "127.0.0.1:8320"
    web_hosts: Annotated[list[str], _doc("Host names that the dashboard accepts, besides those of this machine.")] = []
    web_secure: Annotated[Literal["on", "off"], _doc("Whether people use HTTPS only: marks cookies as secure.")] = "off"
    web_proxy_header: Annotated[str | None, _doc("The header in which a trusted proxy names the person.")] = None
    web_proxy_from: Annotated[list[str], _doc("Addresses of proxies whose header is trusted.")] = []
    web_proxy_role: Annotated[
        Literal["viewer", "operator", "admin", "none"],
        _doc("The role of people named by a proxy, unless a group gives them a higher one; none refuses them."),
    ] = "viewer"
    web_proxy_groups_header: Annotated[
        str | None, _doc("The header in which a trusted proxy lists the person's groups, with commas between.")
    ] = None
    web_proxy_roles: Annotated[
        dict[Label, Literal["viewer", "operator", "admin"]],
        _doc("The roles of groups: staff = viewer, ops = operator."),
    ] = {}
    web_tls_cert: Annotated[str | None, _doc("A file with the certificate chain for HTTPS, in PEM.")] = None
    web_tls_key: Annotated[str | None, _doc("A file with the private key of that certificate, in PEM.")] = None
    run_commands: Annotated[
        Literal["auto", "on", "off"],
        _doc("Whether a worker runs commands (holdfast add); auto: unless it has an application."),
    ] = "auto"
    log_format: Annotated[Literal["text", "json"], _doc("Format of a worker's log.")] = "text"
    log_level: Annotated[Literal["debug", "info", "warning", "error"], _doc("Least severe messages to log.")] = "info"
    version: Annotated[str | None, _doc("Version of the code that a worker reports; none: the application's.")] = None
    ping_hosts: Annotated[list[str], _doc("The hosts that schedules may ping when they succeed; none: no pings.")] = []
    retention: Annotated[RetentionAges, _doc("How long to keep finished rows: done = 7d; 0: forever.")] = msgspec.field(
        default_factory=default_ages
    )
    output: Annotated[Literal["text", "json", "ndjson"], _doc("Format of the output of commands.")] = "text"
    memory_profiles: Annotated[
        dict[Label, MemorySize], _doc("Memory that commands use, by label: 8G. * matches any text.")
    ] = {}
    host_limits: Annotated[
        dict[Label, HostLimit], _doc("Memory of a host for commands, by host name: 80% (the default) or 48G.")
    ] = {}
    log_keep_free: Annotated[
        str, _doc("Free space that logs of commands leave on their disk: 64M, 1%; at most a tenth of it.")
    ] = "64M"
    api_key_sha256: Annotated[
        Annotated[str, Meta(pattern=r"^[0-9a-fA-F]{64}\Z")] | None,
        _doc("SHA-256, in hex, of the key that commands which change something need in HOLDFAST_API_KEY."),
    ] = None
    command: Annotated[Preset, _doc("Defaults for the options of add, sweep and run.")] = Preset()
    profiles: Annotated[dict[str, Preset], _doc("The same for commands whose label matches a pattern.")] = {}
    audit_checks: Annotated[list[Words], _doc("Commands that holdfast audit runs; it exits with 1 if one fails.")] = []


class SettingField(Struct, frozen=True):
    """One field of the settings. A table has keys of its own, so no variable can hold it."""

    name: str
    type: Any
    #: As it would be written in a file.
    default: Any
    description: str

    @property
    def is_table(self) -> bool:
        return self.name in PRESET_HINTS

    @property
    def variable(self) -> str | None:
        """The name of its environment variable."""
        return None if self.is_table else f"HOLDFAST_{self.name.upper()}"


class SettingValue(Struct, frozen=True):
    """A setting that is in force, and where it comes from."""

    name: str
    value: Any
    origin: str


class LoadedSettings(NamedTuple):
    """The settings, the origin of each (a file, a variable, ``default``), and the origins of the ages of retention."""

    settings: Settings
    values: dict[str, SettingValue]
    key_origins: dict[str, str]


#: An origin and its values.
Layer = tuple[str, Mapping[str, Any]]


@cache
def setting_fields() -> dict[str, SettingField]:
    """Every field of the settings, by name."""
    defaults = msgspec.to_builtins(Settings(url=""))
    return {
        name: SettingField(name, type_, defaults[name], type_.__metadata__[-1].description)
        for name, type_ in Settings.__annotations__.items()
    }


def load_settings(
    *, environ: Mapping[str, str] = os.environ, directory: Path | None = None, file: Path | None = None
) -> Settings:
    """The typed settings of :func:`read_settings`."""
    return read_settings(environ=environ, directory=directory, file=file).settings


def read_settings(
    *, environ: Mapping[str, str] = os.environ, directory: Path | None = None, file: Path | str | None = None
) -> LoadedSettings:
    """Merge the layers: a variable overrides a file, a file overrides the default.

    The files are those of the nearest folder that has any, here or above; where both set a value,
    ``[tool.holdfast]`` of ``pyproject.toml`` wins. *file* replaces them.
    """
    typed: dict[str, Any] = {"url": sqlite_url(user_data(environ) / "holdfast.db")}
    values = {field.name: SettingValue(field.name, field.default, "default") for field in setting_fields().values()}
    values["url"] = SettingValue("url", typed["url"], "default")
    key_origins = {f"retention.{key}": "default" for key in values["retention"].value}
    files = [_file_layer(Path(file))] if file is not None else _nearest_layers(directory or current_directory())
    for origin, layer in (*files, *_environment_layers(environ)):
        for name, value in layer.items():
            if name == "retention" and isinstance(value, dict):
                key_origins |= {f"retention.{key}": origin for key in value}
                value = {**values[name].value, **value}  # noqa: PLW2901 - name by name, so that no layer shortens the rest
            typed[name] = _converted(setting_fields()[name], value, origin)
            values[name] = SettingValue(name, value, origin)
    return LoadedSettings(Settings(**typed), values, key_origins)


def user_data(environ: Mapping[str, str]) -> Path:
    """The directory for this user's own data."""
    home = Path(environ.get("HOME") or Path.home())
    if sys.platform == "darwin":
        return home / "Library" / "Application Support" / "holdfast"
    return Path(environ.get("XDG_DATA_HOME") or home / ".local" / "share") / "holdfast"


def current_directory() -> Path:
    """The current directory.

    Raises:
        ConfigurationError: It was deleted. No configuration file is found there, and no relative path has a meaning.
    """
    try:
        return Path.cwd()
    except FileNotFoundError:
        hint = "Change to a directory that exists."
        raise ConfigurationError("the current directory does not exist any more", hint=hint) from None


def absolute_path(path: str | Path) -> Path:
    """The absolute path; a relative one begins in the current directory."""
    return Path(path) if Path(path).is_absolute() else current_directory() / path


def sqlite_file(url: str) -> Path:
    """The file of a SQLite store. All links are followed, so that its logs and sockets are the same by every name.

    Raises:
        ConfigurationError: The URL names no file, or a home directory that does not exist.
    """
    path = Path(SqliteUrl.parse(url).path)
    try:
        return path.expanduser().resolve()
    except (OSError, RuntimeError) as error:  # a loop of links; no such user
        raise ConfigurationError(f"{path} cannot be found: {error}", hint=HINT) from None


def log_folder(url: str, environ: Mapping[str, str] = os.environ) -> Path:
    """The folder of command logs on this host: beside a SQLite file, or in the user's data."""
    if url.startswith(SCHEME):
        return Path(f"{sqlite_file(url)}-logs")
    import hashlib

    digest = hashlib.sha256(without_password(url).encode()).hexdigest()[:16]
    return user_data(environ) / "logs" / digest


def command_url(url: str) -> str:
    """The URL of a store for programs that its workers start: it holds in every directory, and has no password."""
    if not url.startswith(SCHEME):
        return without_password(url)
    return anchored(url, current_directory()) if SqliteUrl.parse(url).is_relative else url


def _nearest_layers(directory: Path) -> list[Layer]:
    for folder in (directory, *directory.parents):
        layers = [_file_layer(folder / name) for name in FILES if (folder / name).is_file()]
        if with_values := [(origin, values) for origin, values in layers if values]:
            return with_values
    return []


def _file_layer(file: Path) -> Layer:
    """The settings of one file; ``pyproject.toml`` has them in ``[tool.holdfast]``. A relative URL begins beside it."""
    values = _load(file)
    if file.name == "pyproject.toml":
        tools = values.get("tool", {})
        values = tools.get("holdfast", {}) if isinstance(tools, dict) else {}
        if not isinstance(values, dict):
            raise ConfigurationError(f"{file}: [tool.holdfast] must be a table")
    for name in values.keys() - setting_fields().keys():
        near = nearest_name(name, setting_fields())
        hint = f"Did you mean {near!r}?" if near else f"The settings are: {', '.join(setting_fields())}."
        raise ConfigurationError(f"{file}: there is no setting {name!r}", hint=hint)
    if isinstance(url := values.get("url"), str):
        values = {**values, "url": anchored(url, file.absolute().parent)}
    return str(file), values


def _load(file: Path) -> dict[str, Any]:
    try:
        return _parse(file.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError) as error:  # ValueError: invalid TOML, or text that is not UTF-8
        hint = "Fix the file, or name another with --config."
        raise ConfigurationError(f"{file} cannot be read: {error}", hint=hint) from None


@cache  # a worker reads the settings four times
def _parse(text: str) -> dict[str, Any]:
    import tomllib  # most machines have no such file

    return tomllib.loads(text)


def _environment_layers(environ: Mapping[str, str]) -> Iterator[Layer]:
    for name, field in setting_fields().items():
        if field.variable is not None and (text := environ.get(field.variable)):
            yield field.variable, {name: _parsed(field, text)}


def _parsed(field: SettingField, text: str) -> Any:
    match field.default:
        case list():
            return [item.strip() for item in text.split(",") if item.strip()]
        case dict():
            pairs = [item.rpartition("=") for item in text.split(",") if item.strip()]
            return {name.strip(): value.strip() for name, _, value in pairs}
        case int() if re.fullmatch(r"\d{1,9}", text):
            return int(text)
        case _:
            return text


def _converted(field: SettingField, value: Any, origin: str) -> Any:
    try:
        return msgspec.convert(value, field.type, dec_hook=_checked_size)
    except (msgspec.ValidationError, InvalidInput) as error:
        if field.is_table or field.name == "retention":
            message = f"{origin}: {field.name}: {error}"
            hint = PRESET_HINTS.get(field.name) or getattr(error, "hint", "") or field.description
        else:
            message, hint = f"{origin}: {field.name} must be {_expected(field)}, not {value!r}", field.description
        raise ConfigurationError(message, hint=hint) from None


def _checked_size(kind: type[Any], value: Any) -> Any:
    """Sizes stay text: workers resolve shares against their own host."""
    if kind is RetentionAges:
        return checked_ages(value)
    if not isinstance(value, str):
        raise InvalidInput(f"{value!r} is not a valid size")
    as_bytes(value) if kind is MemorySize else host_limit(value, 1)
    return kind(value)


def _expected(field: SettingField) -> str:
    kind = get_args(field.type)[0]
    if get_origin(kind) is Literal:
        return " or ".join(get_args(kind))
    return {int: "a whole number", list: "a list of texts", dict: "a table"}.get(type(field.default), "a text")
