"""Helpers for your own files: atomic writes, locked appends, and paths that carry every parameter."""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from holdfast.domain.names import path_part
from holdfast.errors import InvalidInput


def write(path: str | os.PathLike[str], data: bytes | str) -> None:
    """Replace the content of a file atomically: readers see the old or the new content, also after a crash.

    An existing file keeps its mode. Symbolic links are followed. Missing folders are created.
    """
    with writing(path) as file:
        file.write(data.encode() if isinstance(data, str) else data)


@contextmanager
def writing(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """Write a file piece by piece; it replaces *path* at the end of the ``with``, unless an exception is raised."""
    target = Path(os.path.realpath(path))
    _make_folder(target.parent)
    descriptor, name = tempfile.mkstemp(prefix=f".{target.name[:100]}.", suffix=".part", dir=target.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fchmod(file.fileno(), _mode_of(target))
            os.fsync(file.fileno())
        Path(name).replace(target)
    except BaseException:
        with suppress(FileNotFoundError):
            Path(name).unlink()
        raise
    _sync_folder(target.parent)


def append(path: str | os.PathLike[str], line: bytes | str) -> None:
    """Append one line to a file under its lock. Lines of several processes never mix, and are synced to disk.

    Missing folders are created.
    """
    data = line.encode() if isinstance(line, str) else line
    _make_folder(Path(path).parent)
    with Path(path).open("ab+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        if file.seek(0, os.SEEK_END):
            file.seek(-1, os.SEEK_END)
            data = data if file.read(1) == b"\n" else b"\n" + data  # a crash may have cut the last line off
        file.write(data if data.endswith(b"\n") else data + b"\n")
        file.flush()
        os.fsync(file.fileno())


def delete(path: str | os.PathLike[str]) -> bool:
    """Delete a file, or a folder with its content. Returns false if it does not exist."""
    target = Path(path)
    try:
        if target.is_dir() and not target.is_symlink():
            shutil.rmtree(target)
        else:
            target.unlink()
    except FileNotFoundError:
        # Another process deleted parts of the folder: delete the rest.
        if target.is_dir() and not target.is_symlink():
            shutil.rmtree(target, ignore_errors=True)
            return not target.exists()
        return False
    return True


def path_for(root: str | os.PathLike[str], /, *, suffix: str = "", **parameters: object) -> Path:
    """A path below *root* that carries every parameter, in their order: ``out/symbol=A/year=2020.csv``.

    Two sets of parameters never share a path, and no value leads out of *root*.

    Raises:
        InvalidInput: There are no parameters.
    """
    if not parameters:
        hint = 'Write path_for("out", symbol="A", year=2020).'
        raise InvalidInput("a path carries at least one parameter", hint=hint)
    parts = [f"{name}={path_part(str(value))}" for name, value in parameters.items()]
    return Path(root, *parts[:-1], parts[-1] + suffix)


def _mode_of(target: Path) -> int:
    try:
        return stat.S_IMODE(target.stat().st_mode)
    except FileNotFoundError:
        mask = os.umask(0o077)
        os.umask(mask)
        return 0o666 & ~mask


def _make_folder(folder: Path) -> None:
    """Create a folder and its parents; each name survives a crash."""
    if not folder.exists():
        _make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
        _sync_folder(folder.parent)


def _sync_folder(folder: Path) -> None:
    """Sync the folder, so that the new name survives a crash."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
