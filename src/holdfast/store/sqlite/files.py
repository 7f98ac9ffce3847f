"""The file of a SQLite store: private, local, and opened only by SQLite."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from holdfast.errors import NetworkFileSystem, StoreReadOnly, StoreUnavailable

_REMOTE_TYPES = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "smbfs", "afs", "9p", "fuse.sshfs", "glusterfs", "ceph", "lustre"}
)


def create_private(path: Path) -> None:
    """Create an empty file that only this user can read, unless it exists.

    An existing file is not opened: closing a second descriptor would release SQLite's locks.
    """
    if path.is_dir():
        raise StoreReadOnly(f"{path} is a directory, not a file", path=str(path), hint="Name a file in it.")
    try:
        if not path.parent.exists():
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with suppress(FileExistsError):
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except (PermissionError, NotADirectoryError) as error:
        raise StoreReadOnly(f"the store cannot be created: {error}", path=str(path)) from error
    except OSError as error:
        raise StoreUnavailable(f"the store cannot be created: {error}", path=str(path)) from error


def refuse_network_file_system(path: Path, *, mounts: str | None = None) -> None:
    """Raise NetworkFileSystem if *path* is on one; *mounts* is the text of /proc/mounts."""
    if mounts is None:
        try:
            mounts = Path("/proc/self/mounts").read_text(encoding="utf-8", errors="replace")
        except OSError:
            return
    kind = _file_system(path, mounts)
    if kind in _REMOTE_TYPES:
        raise NetworkFileSystem(f"{path} lies on a network file system ({kind})", path=str(path), file_system=kind)


def _file_system(path: Path, mounts: str) -> str:
    best, kind = "", ""
    for line in mounts.splitlines():
        fields = line.split(" ")
        if len(fields) < 3:
            continue
        point = fields[1].replace("\\040", " ")
        if len(point) >= len(best) and path.is_relative_to(point):
            best, kind = point, fields[2]
    return kind


def size_of(path: str) -> int:
    """The size of a file, 0 if it does not exist."""
    try:
        return os.stat(path).st_size  # noqa: PTH116 - called at every commit
    except OSError:
        return 0
