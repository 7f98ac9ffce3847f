"""The file of a SQLite store: its errors name the cause."""

from __future__ import annotations

import os
from contextlib import closing

import pytest

from holdfast.errors import StoreReadOnly, StoreUnavailable
from tests.support.processes import open_store


@pytest.mark.parametrize(("writable", "error"), [(False, StoreReadOnly), (True, StoreUnavailable)])
def test_a_directory_that_cannot_be_written_is_named(tmp_path, monkeypatch, writable, error):
    """S14: SQLite opens its log beside the file; "is the database running?" would lead nowhere."""
    url = f"sqlite:///{tmp_path}/jobs.db"
    open_store(url).close()
    (tmp_path / "jobs.db-wal").unlink(missing_ok=True)
    (tmp_path / "jobs.db-wal").mkdir()  # SQLite cannot open it, as in a directory that is read-only
    monkeypatch.setattr(os, "access", lambda path, mode: writable)
    with pytest.raises(error), closing(open_store(url)):
        pass
