"""``size``: the number of commands that this host can run at once."""

from __future__ import annotations

import os

import click
from msgspec import Struct

from holdfast.cli.command import command
from holdfast.cli.session import CliSession
from holdfast.domain.commands.command import host_capacity
from holdfast.domain.quantities import as_bytes


class SizeAnswer(Struct, frozen=True):
    """The number of commands that fit into 80 % of the host; *by* names the scarcer resource."""

    memory_bytes: int
    cores: int
    job_memory_bytes: int
    job_cores: float
    slots: int
    by: str


@command("size", answers=SizeAnswer)
@click.option("--memory", required=True, metavar="SIZE", help="What one program takes: 512M, 8G.")
@click.option("--cpus", default=1.0, show_default=True, help="How many processors one keeps busy.")
def size(session: CliSession, *, memory: str, cpus: float) -> None:
    """Say how many programs of a size this host could run: 80 % of its memory and of its cores, whichever is less.

    \b
    Example:
      holdfast up --slots "$(holdfast size --memory 2G --quiet)"
    """
    room = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    cores = os.cpu_count() or 1
    slots, by = host_capacity(room, cores, as_bytes(memory), cpus)
    answer = SizeAnswer(room, cores, as_bytes(memory), cpus, slots, by)
    text = f"{slots} at once, bounded by {by}: {room / 2**30:.1f} GiB and {cores} cores, of which 80 % are used"
    session.output.value(answer, lambda: [str(slots) if session.output.quiet else text])
