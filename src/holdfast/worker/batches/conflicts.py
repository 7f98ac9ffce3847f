"""Conflicts of a run: other runs of its batch, services that write the same data."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from holdfast.domain.access.masking import mask_text
from holdfast.domain.quantities import format_short_duration
from holdfast.errors import ConfigurationError, InvalidInput
from holdfast.store import Store
from holdfast.worker.commands.identity import ProcessId

#: Time for the answer of a service manager.
PROBE_TIMEOUT_S = 10.0
#: The hint when a service manager does not report whether a service runs.
UNKNOWN = "Pass --allow-concurrent if you know that the service is stopped."


def first_running(probes: Sequence[str], store: Store) -> str | None:
    """A description of the first service that is running, with its pid, its command and its age.

    Probes are ``pid:/run/mail.pid``, ``systemd:mail.service``, ``pm2:mail`` and ``worker:QUEUE``.
    """
    for probe in probes:
        kind, colon, name = probe.partition(":")
        if not colon or not name or kind not in _PROBES:
            known = ", ".join(f"{word}:NAME" for word in _PROBES)
            raise InvalidInput(f"{probe!r} names no service", hint=f"Write one of {known}.")
        process = _PROBES[kind](name, store)
        if process is not None:
            return f"{probe} ({process})"
    return None


def _pid_file(name: str, _: Store) -> str | None:
    """A service with a pid file; a stale file names no living process."""
    try:
        text = Path(name).read_text(encoding="ascii").strip()
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"the pid file {name} cannot be read: {error}") from None
    if not text.isdecimal():
        raise ConfigurationError(f"the pid file {name} contains no pid", hint="Remove it if the service is gone.")
    return _process(int(text))


def _systemd(name: str, _: Store) -> str | None:
    answer = _output_of(["systemctl", "show", "--property=ActiveState,MainPID", "--", name])
    properties = dict(line.partition("=")[::2] for line in answer.splitlines())
    if properties.get("ActiveState") not in ("active", "activating", "reloading", "deactivating"):
        return None
    pid = properties.get("MainPID", "0")
    return (_process(int(pid)) if pid.isdecimal() and pid != "0" else None) or properties["ActiveState"]


def _pm2(name: str, _: Store) -> str | None:
    """A process of pm2; where pm2 is missing, it runs nothing."""
    if shutil.which("pm2") is None:
        return None
    for process in _pm2_processes(_output_of(["pm2", "jlist"])):
        status = process.get("pm2_env", {}).get("status")
        if process.get("name") == name and status in ("online", "launching"):
            pid = process.get("pid")
            return (_process(pid) if isinstance(pid, int) and pid > 0 else None) or str(status)
    return None


def _pm2_processes(answer: str) -> list[dict[str, Any]]:
    """The processes in an answer of pm2, which may print notices before its JSON."""
    for start in re.finditer(r"\[(?=\s*[{\]])", answer):
        with suppress(msgspec.MsgspecError):
            return msgspec.json.decode(answer[start.start() :], type=list[dict[str, Any]])
    raise ConfigurationError("pm2 jlist did not answer with JSON", hint=UNKNOWN)


def _worker(name: str, store: Store) -> str | None:
    workers = [worker for worker in store.workers.list() if name in msgspec.json.decode(worker.queues)]
    if not workers:
        return None
    age = max(0.0, time.time() - workers[0].started_at.timestamp())
    return f"pid {workers[0].pid} on {workers[0].host}, for {format_short_duration(age)}"


_PROBES = {"pid": _pid_file, "systemd": _systemd, "pm2": _pm2, "worker": _worker}


def _output_of(argv: list[str]) -> str:
    executable = shutil.which(argv[0])
    if executable is None:
        raise ConfigurationError(f"{argv[0]} is not on this machine", hint="Name the service by a pid file: pid:PATH.")
    try:
        finished = subprocess.run(  # noqa: S603, PLW1510 - a service manager on the user's PATH; checked below
            [executable, *argv[1:]], capture_output=True, text=True, timeout=PROBE_TIMEOUT_S, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ConfigurationError(f"{argv[0]} does not answer: {error}", hint=UNKNOWN) from None
    if finished.returncode != 0:
        raise ConfigurationError(f"{argv[0]} failed: {finished.stderr.strip() or finished.returncode}", hint=UNKNOWN)
    return finished.stdout


def _process(pid: int) -> str | None:
    import psutil

    try:
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_ZOMBIE:
            return None
        age = format_short_duration(max(0.0, time.time() - process.create_time()))
        return f"pid {pid}, {' '.join(process.cmdline()) or process.name()}, for {age}"
    except psutil.NoSuchProcess:
        return None
    except psutil.AccessDenied:
        return f"pid {pid}"


class Owner(Struct, frozen=True, omit_defaults=True):
    """A process, identified so that other processes can check whether it is alive."""

    host: str
    pid: int
    #: In clock ticks since the boot: a start by the wall clock would move with the clock.
    started: int | None
    boot: str
    namespace: str
    command: str
    #: Set by views: why the process does not work any more.
    problem: str | None = None

    @property
    def here(self) -> bool:
        """Whether its pid means the same in this process."""
        return bool(self.boot) and (self.boot, self.namespace) == _pid_space()

    def encode(self) -> str:
        """The owner as the store keeps it."""
        return msgspec.json.encode(self).decode()


def this_process() -> Owner:
    """This process as an owner."""
    process = ProcessId.of(os.getpid())
    return Owner(socket.gethostname(), process.pid, process.started, *_pid_space(), command_line())


def command_line() -> str:
    """The command line that started this process, quoted for a shell."""
    return shlex.join([Path(sys.orig_argv[0]).name, *sys.orig_argv[1:]])


def is_owner_dead(encoded: str) -> bool:
    """Whether the owner is known to be gone. The owner on another host always counts as alive."""
    owner = _decode(encoded)
    return owner is not None and owner.here and ProcessId(owner.pid, owner.started).is_gone


def describe_owner(owner_or_json: str | Mapping[str, Any]) -> str:
    """A description of the owner for people."""
    encoded = owner_or_json if isinstance(owner_or_json, str) else msgspec.json.encode(owner_or_json).decode()
    owner = _decode(encoded)
    if owner is None:
        return "another run"
    problem = f"; {owner.problem}" if owner.problem else ""
    return f"pid {owner.pid} on {owner.host} ({mask_text(owner.command)}){problem}"


def command_of(encoded: str) -> str | None:
    """The command line of the owner, if it is known."""
    owner = _decode(encoded)
    return None if owner is None else owner.command


def _decode(encoded: str) -> Owner | None:
    try:
        return msgspec.json.decode(encoded, type=Owner)
    except msgspec.MsgspecError:
        return None


@cache
def _pid_space() -> tuple[str, str]:
    """The boot and the namespace in which pids of this process are valid; empty where it is unknown."""
    boot = namespace = ""
    with suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    with suppress(OSError):
        namespace = str(Path("/proc/self/ns/pid").readlink())
    return boot, namespace
