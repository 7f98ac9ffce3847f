"""The doctor's check of open files, on processes that a folder describes."""

from __future__ import annotations

import socket
from datetime import UTC, datetime

import pytest

from holdfast.admin.doctor.fleet import check_descriptors
from holdfast.admin.views.fleet import Liveness, WorkerView

NOW = datetime(2030, 1, 1, tzinfo=UTC)


def worker(host=None, slots=8):
    place = socket.gethostname() if host is None else host
    return WorkerView("w", place, 7, None, ["default"], [], NOW, NOW, Liveness.FRESH, slots)


@pytest.mark.parametrize(
    ("limit", "used", "slots", "message"),
    [
        ("1024", 30, 8, None),
        ("64", 10, 60, "60 slots may need 304"),
        ("100", 80, 8, "has 80 of 100 files open"),
    ],
)
def test_limits_are_compared_with_slots_and_with_use(tmp_path, limit, used, slots, message):
    """K72: before the worker runs out."""
    (tmp_path / "7" / "fd").mkdir(parents=True)
    (tmp_path / "7" / "limits").write_text(f"Max processes 5 5 processes\nMax open files   {limit}   4096   files\n")
    for number in range(used):
        (tmp_path / "7" / "fd" / str(number)).touch()
    checks = list(check_descriptors([worker(slots=slots)], processes=tmp_path))
    if message is None:
        assert checks == []
    else:
        assert (checks[0].level, message in checks[0].message, "ulimit" in checks[0].fix) == ("warn", True, True)


def test_other_hosts_and_unlimited_processes_are_not_judged(tmp_path):
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "limits").write_text("Max open files   unlimited   unlimited   files\n")
    assert list(check_descriptors([worker(), worker(host="elsewhere")], processes=tmp_path)) == []
