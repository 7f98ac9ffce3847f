"""Errors of the user's code: their first line, and the line at which they came up."""

from __future__ import annotations

import sysconfig
import traceback
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parents[1]
_LIBRARY = Path(sysconfig.get_paths()["stdlib"]).resolve()
#: Folders of installed packages.
_INSTALLED = {"site-packages", "dist-packages"}


def user_place(error: BaseException) -> str | None:
    """The file and line at which *error* came up in the user's code: ``m.py, line 4``; None without such a frame.

    That is the last frame of the user's own files. Code that runs from an installed package has none: there it is the
    last frame outside Holdfast.
    """
    if isinstance(error, SyntaxError) and error.filename is not None:
        return f"{error.filename}, line {error.lineno}"
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not _is_in(frame.filename, _PACKAGE)]
    frames = [frame for frame in frames if not frame.filename.startswith("<")]
    own = [frame for frame in frames if not _is_library(frame.filename)]
    if not frames:
        return None
    last = (own or frames)[-1]
    return f"{last.filename}, line {last.lineno}"


def short_error(error: BaseException) -> str:
    """The class and the first line of an error: ``ValueError: no such file``. Never raises."""
    try:
        text = str(error).strip().partition("\n")[0]
    except Exception:  # noqa: BLE001 - code of the exception may raise anything
        text = ""
    name = type(error).__name__
    return f"{name}: {text}" if text else name


def _is_library(file: str) -> bool:
    return _is_in(file, _LIBRARY) or not _INSTALLED.isdisjoint(Path(file).parts)


def _is_in(file: str, folder: Path) -> bool:
    return Path(file).resolve().is_relative_to(folder)
