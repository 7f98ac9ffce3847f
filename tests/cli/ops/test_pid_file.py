"""The pid file of ``up``."""

from __future__ import annotations

import pytest

from holdfast.cli.ops.pid_file import PidFile


@pytest.fixture(autouse=True)
def _home(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))


def test_relative_paths_of_a_sqlite_store_share_a_pid_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert PidFile.of("sqlite:///jobs.db").path == PidFile.of(f"sqlite:///{tmp_path}/jobs.db").path
    assert PidFile.of("sqlite:///jobs.db").path != PidFile.of("sqlite:///other.db").path
