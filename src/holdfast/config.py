"""Where the store is, when nobody says: environment, configuration file, the user's own file."""

from __future__ import annotations

import os
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from holdfast.errors import ConfigurationError

KNOWN = frozenset({"url"})


def default_url(*, environ: Mapping[str, str] = os.environ, directory: Path | None = None) -> str:
    """``HOLDFAST_URL``, else ``url`` of the nearest configuration file, else a SQLite file of the user."""
    if url := environ.get("HOLDFAST_URL"):
        return url
    configured = read_configuration(directory or Path.cwd()).get("url")
    return configured or f"sqlite:///{user_data(environ) / 'holdfast.db'}"


def read_configuration(directory: Path) -> dict[str, Any]:
    """The settings in ``holdfast.toml``, or in ``[tool.holdfast]`` of ``pyproject.toml``, here or above.

    Raises:
        ConfigurationError: The file cannot be read, or holds a setting that does not exist.
    """
    for folder in (directory, *directory.parents):
        if (file := folder / "holdfast.toml").is_file():
            return _checked(_load(file), file)
        if (file := folder / "pyproject.toml").is_file() and (found := _load(file).get("tool", {}).get("holdfast")):
            return _checked(found, file)
    return {}


def user_data(environ: Mapping[str, str]) -> Path:
    """The directory for this user's own data."""
    home = Path(environ.get("HOME") or Path.home())
    if sys.platform == "darwin":
        return home / "Library" / "Application Support" / "holdfast"
    return Path(environ.get("XDG_DATA_HOME") or home / ".local" / "share") / "holdfast"


def _load(file: Path) -> dict[str, Any]:
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
