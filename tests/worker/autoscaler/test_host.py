"""The load of a host, read from made-up files of the kernel."""

from __future__ import annotations

import pytest

from holdfast.worker.autoscaler.host import read_host

GB = 1 << 30


@pytest.fixture
def machine(tmp_path):
    """Write files of a kernel and read the host load from them."""
    proc, groups = tmp_path / "proc", tmp_path / "cgroup"

    def put(path, text):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def read(cgroup="", **files):
        put(proc / "meminfo", f"MemTotal: {64 * GB // 1024} kB\nMemFree: 1 kB\nMemAvailable: {40 * GB // 1024} kB\n")
        put(proc / "vmstat", "nr_free_pages 5\npswpin 77\n")
        put(proc / "self/cgroup", cgroup)
        for name, text in files.items():
            put((proc if name.startswith("pressure") else groups) / name, text)
        return read_host(proc, groups)

    return read


def test_a_plain_machine(machine):
    """All of its memory, and no pressure where the kernel reports none."""
    host = machine()
    assert (host.total, host.used, host.swapped) == (64 * GB, 24 * GB, 77)
    assert (host.cpu_pressure, host.memory_pressure) == (None, None)
    assert host.cores >= 1


def test_pressure(machine):
    """The share of the last ten seconds in which some wait for a processor, or all wait for memory."""
    lines = "some avg10=12.50 avg60=1.00 avg300=0 total=1\nfull avg10=3.25 avg60=0 avg300=0 total=1\n"
    host = machine(**{"pressure/cpu": lines, "pressure/memory": lines})
    assert (host.cpu_pressure, host.memory_pressure) == (12.5, 3.25)


def test_a_container_with_control_groups_of_version_2(machine):
    """The tightest group counts, with its quota; cached files do not count."""
    host = machine(
        "0::/pods/one\n",
        **{
            "pods/one/memory.max": "max\n",
            "pods/one/memory.current": "1\n",
            "pods/one/cpu.max": "50000 100000\n",
            "pods/one/memory.pressure": "some avg10=9 avg60=0 avg300=0 total=1\nfull avg10=7.5 total=1\n",
            "pods/memory.max": f"{8 * GB}\n",
            "pods/memory.current": f"{5 * GB}\n",
            "pods/memory.stat": f"anon 5\ninactive_file {2 * GB}\n",
        },
    )
    assert (host.total, host.used, host.cores, host.memory_pressure) == (8 * GB, 3 * GB, 0.5, 7.5)


def test_a_container_with_control_groups_of_version_1(machine):
    """They have their own files. A limit beyond the machine's memory and a path that is not mounted are ignored."""
    host = machine(
        "5:memory:/docker/abc\n4:cpu,cpuacct:/docker/abc\n",
        **{
            "memory/memory.limit_in_bytes": f"{4 * GB}\n",
            "memory/memory.usage_in_bytes": f"{3 * GB}\n",
            "memory/memory.stat": f"total_inactive_file {GB}\n",
            "cpu/cpu.cfs_quota_us": "25000\n",
            "cpu/cpu.cfs_period_us": "100000\n",
        },
    )
    assert (host.total, host.used, host.cores) == (4 * GB, 2 * GB, 0.25)
    plain = machine("5:memory:/\n", **{"memory/memory.limit_in_bytes": "9223372036854771712\n"})
    assert plain.total == 64 * GB


def test_this_host():
    """Its values are plausible."""
    host = read_host()
    assert 0 <= host.used <= host.total
    assert host.cores > 0
