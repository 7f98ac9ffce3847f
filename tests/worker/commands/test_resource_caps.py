"""Caps: whether the kernel enforces every limit of a command."""

from __future__ import annotations

import os

import pytest

from holdfast.worker.commands import kernel, resource_caps
from holdfast.worker.commands.resource_caps import CgroupV1, SystemdScope


@pytest.mark.parametrize(
    ("controllers", "cpus", "complete"),
    [(("memory", "cpu"), 0.5, True), (("memory",), 0.5, False), (("memory",), None, True)],
)
def test_a_group_without_the_processor_controller_is_not_complete(tmp_path, controllers, cpus, complete):
    """K82: --require-cap passed although nothing kept the processor quota."""
    homes = {name: tmp_path / name for name in controllers}
    for home in homes.values():
        home.mkdir()
    assert CgroupV1(homes, "x", 10**6, cpus).complete is complete


@pytest.mark.parametrize(("controllers", "complete"), [("cpu memory pids", True), ("pids", False), ("cpu pids", False)])
def test_a_scope_needs_the_controllers_of_its_systemd(tmp_path, monkeypatch, controllers, complete):
    """K82: systemd accepts a limit whose controller is not delegated, and does not keep it."""
    user = os.geteuid()
    home = tmp_path if user == 0 else tmp_path / f"user.slice/user-{user}.slice/user@{user}.service"
    home.mkdir(parents=True, exist_ok=True)
    (home / "cgroup.controllers").write_text(controllers)
    monkeypatch.setattr(resource_caps, "ROOT", tmp_path)
    assert SystemdScope("x", 10**6, None).complete is complete


@pytest.mark.parametrize(
    ("swap_kb", "limited", "complete"), [(1024, True, True), (1024, False, False), (0, False, True)]
)
def test_a_host_with_swap_keeps_a_cap_only_if_it_limits_swap(tmp_path, monkeypatch, swap_kb, limited, complete):
    """K82: --require-cap passed although the kernel did not count swap, and the program grew into it."""
    (tmp_path / "meminfo").write_text(f"SwapTotal: {swap_kb} kB\n")
    (tmp_path / "memory").mkdir()
    monkeypatch.setattr(kernel, "PROC", tmp_path)
    monkeypatch.setattr(resource_caps, "_try_put", lambda *_: limited)
    assert CgroupV1({"memory": tmp_path / "memory"}, "x", 10**6, None).complete is complete
