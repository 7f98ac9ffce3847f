"""Defaults of workers: their queues, built-in kinds and autoscaler options."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from holdfast.domain.commands.command import COMMAND
from holdfast.domain.fleet.admission import host_limit
from holdfast.domain.jobs.kind import Kind
from holdfast.domain.names import checked_name
from holdfast.domain.sizes import as_bytes
from holdfast.errors import InvalidInput
from holdfast.settings import load_settings

if TYPE_CHECKING:
    from holdfast.worker.options import AutoscalerOptions

# The imports within the functions keep `import holdfast` quick for programs that run no worker.


def built_in_kinds() -> dict[str, Kind]:
    """The kinds that every worker runs: commands, and pings of schedules."""
    from holdfast.domain.schedules.definition import PING
    from holdfast.worker.commands.executor import command_kind
    from holdfast.worker.schedules.ping import ping_kind

    return {PING: ping_kind(load_settings().ping_hosts), COMMAND: command_kind()}


def served_queues(queues: Sequence[str] | None, slots: int, kinds: Mapping[str, Kind]) -> tuple[str, ...]:
    """The queues of a worker; the default is the queues of its kinds.

    Raises:
        InvalidInput: *queues* is not a list of names, or *slots* is not positive.
    """
    if isinstance(queues, str) or not isinstance(slots, int) or slots < 1:
        raise InvalidInput(f"queues is a list of names and slots at least 1, not {queues!r} and {slots!r}")
    served = queues or sorted({kind.options.queue for kind in kinds.values()}) or ["default"]
    return tuple(checked_name(name, label="the queue") for name in served)


def autoscaler_options(profiles: Mapping[str, str] | None, limits: Mapping[str, str] | None) -> AutoscalerOptions:
    """The options of the autoscaler: the arguments, or else the configuration."""
    from holdfast.worker.options import AutoscalerOptions

    sizes: Mapping[str, str] = load_settings().memory_profiles if profiles is None else profiles
    host_limits: Mapping[str, str] = load_settings().host_limits if limits is None else limits
    for limit in host_limits.values():
        host_limit(limit, 1)
    memory = {label: as_bytes(size) for label, size in sizes.items()}
    return AutoscalerOptions(memory_profiles=memory, host_limits=dict(host_limits))
