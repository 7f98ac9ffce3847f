"""Snapshot files: compared with what was found, or written anew."""

from __future__ import annotations

import difflib
import os
from pathlib import Path

HERE = Path(__file__).parent
#: With this variable set to ``write``, the files are written and nothing is compared.
WRITES = os.environ.get("HOLDFAST_SNAPSHOTS") == "write"
HINT = "If the change is meant, write the snapshots anew: make snapshots"


def check(folder: str, name: str, found: str) -> None:
    """Fail unless the snapshot *name* says the same as *found*."""
    file = HERE / folder / f"{name}.txt"
    if WRITES:
        file.parent.mkdir(exist_ok=True)
        file.write_text(found, encoding="utf-8")
        return
    assert file.exists(), f"there is no snapshot {folder}/{file.name}. {HINT}"
    known = file.read_text(encoding="utf-8")
    if known != found:
        lines = difflib.unified_diff(known.splitlines(), found.splitlines(), "snapshot", "now", lineterm="", n=3)
        raise AssertionError(f"{folder}/{file.name} differs. {HINT}\n" + "\n".join(list(lines)[:200]))


def check_names(folder: str, names: set[str]) -> None:
    """Fail unless there is one snapshot for each of *names*, and no other."""
    files = (
        {file for file in (HERE / folder).iterdir() if file.name != "__init__.py"}
        if (HERE / folder).is_dir()
        else set()
    )
    known = {file.stem for file in files}
    if WRITES:
        for file in files:
            if file.stem not in names:
                file.unlink()
        return
    assert not known - names, f"no test writes these snapshots in {folder}: {sorted(known - names)}. {HINT}"
    assert not names - known, f"there is no snapshot in {folder} of: {sorted(names - known)}. {HINT}"
