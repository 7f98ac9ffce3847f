"""Owners: the processes that run batches."""

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
    """A process, identified so that other processes can check whether it is alive."""

    host: str
    pid: int
    started: float
    boot: str
    namespace: str
    command: str

    @property
    def here(self) -> bool:
        """Whether its pid means the same in this process."""
        return bool(self.boot) and (self.boot, self.namespace) == (_boot(), _namespace())

    def encode(self) -> str:
        """The owner as the store keeps it."""
        return msgspec.json.encode(self).decode()


def this_process() -> Owner:
    """This process as an owner."""
    import psutil

    return Owner(
        socket.gethostname(), os.getpid(), psutil.Process().create_time(), _boot(), _namespace(), command_line()
    )  # fmt: skip


def command_line() -> str:
    """The command line that started this process, quoted for a shell."""
    return shlex.join([Path(sys.orig_argv[0]).name, *sys.orig_argv[1:]])


def is_dead(encoded: str) -> bool:
    """Whether the owner is known to be gone. The owner on another host always counts as alive."""
    import psutil

    try:
        owner = msgspec.json.decode(encoded, type=Owner)
    except msgspec.MsgspecError:
        return False
    if not owner.here:
        return False
    try:
        process = psutil.Process(owner.pid)
        return abs(process.create_time() - owner.started) > 1 or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def describe(encoded: str) -> str:
    """A description of the owner for people."""
    try:
        owner = msgspec.json.decode(encoded, type=Owner)
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
