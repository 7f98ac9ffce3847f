"""Where the store is, when nobody says: environment, configuration file, the user's own file."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from holdfast.errors import ConfigurationError

KNOWN = frozenset({"url"})


def default_url(
    *, environ: Mapping[str, str] = os.environ, directory: Path | None = None, file: Path | None = None
) -> str:
    """``HOLDFAST_URL``, else ``url`` of the nearest configuration file, else a SQLite file of the user."""
    return origin_of_url(environ=environ, directory=directory, file=file)[0]


def origin_of_url(
    *, environ: Mapping[str, str] = os.environ, directory: Path | None = None, file: Path | None = None
) -> tuple[str, str]:
    """The URL, and where it comes from. *file* is the configuration to use instead of the nearest."""
    if url := environ.get("HOLDFAST_URL"):
        return url, "HOLDFAST_URL"
    settings, source = (_from(file), file) if file is not None else read_configuration(directory or Path.cwd())
    if "url" in settings:
        return settings["url"], str(source)
    return f"sqlite:///{user_data(environ) / 'holdfast.db'}", "default"


def read_configuration(directory: Path) -> tuple[dict[str, Any], Path | None]:
    """The settings in ``holdfast.toml``, or in ``[tool.holdfast]`` of ``pyproject.toml``, here or above; and the file.

    Raises:
        ConfigurationError: The file cannot be read, or holds a setting that does not exist.
    """
    for folder in (directory, *directory.parents):
        for file in (folder / "holdfast.toml", folder / "pyproject.toml"):
            if file.is_file() and (found := _from(file)):
                return found, file
    return {}, None


def _from(file: Path) -> dict[str, Any]:
    """The settings of one file; in a ``pyproject.toml`` they have a table of their own."""
    found = _load(file)
    return _checked(found.get("tool", {}).get("holdfast", {}) if file.name == "pyproject.toml" else found, file)


def user_data(environ: Mapping[str, str]) -> Path:
    """The directory for this user's own data."""
    home = Path(environ.get("HOME") or Path.home())
    if sys.platform == "darwin":
        return home / "Library" / "Application Support" / "holdfast"
    return Path(environ.get("XDG_DATA_HOME") or home / ".local" / "share") / "holdfast"


def _load(file: Path) -> dict[str, Any]:
    import tomllib  # most machines have no such file

    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigurationError(
            f"{file} cannot be read: {error}", hint="Mend the file, or set HOLDFAST_URL."
        ) from None


def _checked(settings: dict[str, Any], file: Path) -> dict[str, Any]:
    unknown = sorted(settings.keys() - KNOWN)
    if unknown:
        raise ConfigurationError(
            f"{file}: there is no setting {unknown[0]!r}", hint=f"The settings are: {', '.join(sorted(KNOWN))}."
        )
    if not isinstance(settings.get("url", ""), str):
        raise ConfigurationError(f"{file}: the url must be a text")
    return settings
