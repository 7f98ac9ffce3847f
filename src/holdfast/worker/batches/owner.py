"""Who runs a batch: what others are told, and whether it still lives."""

from __future__ import annotations

import os
import shlex
import socket
import sys
from functools import cache
from pathlib import Path

import msgspec
from msgspec import Struct


class Owner(Struct, frozen=True):
    """A process: where it runs, since when, and how it was started."""

    host: str
    pid: int
    started: float
    boot: str
    namespace: str
    command: str

    @property
    def here(self) -> bool:
        """Whether its pid means the same to this process."""
        return bool(self.boot) and (self.boot, self.namespace) == (_boot(), _namespace())


def this_process() -> Owner:
    """This process, as others see it."""
    import psutil

    return Owner(
        socket.gethostname(), os.getpid(), psutil.Process().create_time(), _boot(), _namespace(), command_line()
    )  # fmt: skip


def command_line() -> str:
    """The line that started this process, to be typed again."""
    return shlex.join([Path(sys.orig_argv[0]).name, *sys.orig_argv[1:]])


def is_dead(told: str) -> bool:
    """Whether the owner is known to be gone: only a process of this very system can be asked for."""
    import psutil

    try:
        owner = msgspec.json.decode(told, type=Owner)
    except msgspec.MsgspecError:
        return False
    if not owner.here:
        return False
    try:
        process = psutil.Process(owner.pid)
        return abs(process.create_time() - owner.started) > 1 or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def say(told: str) -> str:
    """The owner in words."""
    try:
        owner = msgspec.json.decode(told, type=Owner)
    except msgspec.MsgspecError:
        return "another run"
    return f"pid {owner.pid} on {owner.host} ({owner.command})"


@cache
def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


@cache
def _namespace() -> str:
    try:
        return str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return ""
