"""Fixtures of the executors."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A unit in a child opens the store of the application in its module, a file in the folder of its worker."""
    monkeypatch.chdir(tmp_path)
