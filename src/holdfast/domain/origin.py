"""Origins: where functions live, as ``module:qualname``, the same in every process that has them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import PurePath


def module_of_file(file: PurePath, path: Sequence[PurePath], is_package: Callable[[PurePath], bool]) -> str:
    """The name under which *file* would be imported.

    The folders around it that are packages belong to the name. Outside of packages, the name begins below the deepest
    folder of *path* above the file's own folder, if there is one.
    """
    root = file.parent
    while is_package(root):
        root = root.parent
    if root == file.parent:
        above = [folder for folder in path if folder in root.parents and _is_importable(root.relative_to(folder))]
        root = max(above, key=lambda folder: len(folder.parts), default=root)
    if root == file.parent and file.name == "__main__.py":  # python FOLDER is python -m FOLDER
        root = root.parent
    parts = (*file.parent.relative_to(root).parts, file.name.partition(".")[0])
    return ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts)


def _is_importable(folder: PurePath) -> bool:
    return all(part.isidentifier() for part in folder.parts)


def is_same_place(one: str, other: str) -> bool:
    """Whether two origins are one place. A module alone is the place of every function in it."""
    if ":" in one and ":" in other:
        return one == other
    return one.partition(":")[0] == other.partition(":")[0]
