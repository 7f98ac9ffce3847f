"""Workers of an application: their options as people write them, their kinds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypedDict

from holdfast.domain.commands.command import COMMAND
from holdfast.domain.jobs.job import PING
from holdfast.domain.jobs.kind import Kind, suggest_kind
from holdfast.domain.names import checked_name
from holdfast.domain.quantities import Duration, as_bytes, as_duration, host_limit
from holdfast.domain.retention import Retention, retention_of
from holdfast.errors import InvalidInput, UnknownKind
from holdfast.settings import command_url, load_settings, log_folder
from holdfast.worker.commands.executor import command_kind
from holdfast.worker.executors.children import ChildOptions
from holdfast.worker.options import AutoscalerOptions, WorkerOptions
from holdfast.worker.schedules.ping import ping_kind


class WorkerArguments(TypedDict, total=False):
    """The options of :meth:`holdfast.Holdfast.worker`, which explains them."""

    queues: Sequence[str] | None
    kinds: Sequence[str] | None
    slots: int
    version: str | None
    drain: bool
    grace: Duration
    heartbeat: Duration
    poll: Duration
    child_jobs: int
    child_memory: int | str
    plans: bool
    echo: Callable[[bytes], None] | None
    stdin: int | None
    memory_profiles: Mapping[str, str] | None
    host_limits: Mapping[str, str] | None
    log_keep_free: str | None
    retention: Mapping[str, Duration] | None


def worker_options(
    own_kinds: Mapping[str, Kind],
    *,
    url: str,
    version: str | None = None,
    queues: Sequence[str] | None = None,
    kinds: Sequence[str] | None = None,  # noqa: ARG001 - see chosen_kinds
    slots: int = 8,
    drain: bool = False,
    grace: Duration = 30,
    heartbeat: Duration = 10,
    poll: Duration = 1,
    child_jobs: int = 1000,
    child_memory: int | str = "512M",
    plans: bool = True,
    echo: Callable[[bytes], None] | None = None,
    stdin: int | None = None,
    memory_profiles: Mapping[str, str] | None = None,
    host_limits: Mapping[str, str] | None = None,
    log_keep_free: str | None = None,
    retention: Mapping[str, Duration] | None = None,
) -> WorkerOptions:
    """Convert the options of a worker; the default for *queues* is the queues of its own kinds."""
    return WorkerOptions(
        queues=_served_queues(queues, own_kinds),
        slots=_checked_slots(slots),
        drain=drain,
        grace=as_duration(grace),
        heartbeat=as_duration(heartbeat).total_seconds(),
        poll=as_duration(poll).total_seconds(),
        version=version,
        children=ChildOptions(child_jobs, as_bytes(child_memory)),
        plans=plans,
        logs=log_folder(url),
        log_keep_free=_checked_share(load_settings().log_keep_free if log_keep_free is None else log_keep_free),
        url=command_url(url),
        echo=echo,
        stdin=stdin,
        autoscaler=_autoscaler_options(memory_profiles, host_limits),
        retention=chosen_retention(retention),
    )


def _served_queues(queues: Sequence[str] | None, own_kinds: Mapping[str, Kind]) -> tuple[str, ...]:
    if isinstance(queues, str):
        raise InvalidInput(f"queues is a list of names, not {queues!r}")
    served = queues or sorted({kind.options.queue for kind in own_kinds.values()}) or ["default"]
    return tuple(checked_name(name, label="the queue") for name in served)


def chosen_retention(ages: Mapping[str, Duration] | None) -> Retention:
    """The retention of the configuration, but for these ages."""
    return retention_of({**load_settings().retention, **(ages or {})})


def _autoscaler_options(profiles: Mapping[str, str] | None, limits: Mapping[str, str] | None) -> AutoscalerOptions:
    sizes: Mapping[str, str] = load_settings().memory_profiles if profiles is None else profiles
    host_limits: Mapping[str, str] = load_settings().host_limits if limits is None else limits
    for limit in host_limits.values():
        host_limit(limit, 1)
    memory = {label: as_bytes(size) for label, size in sizes.items()}
    return AutoscalerOptions(memory_profiles=memory, host_limits=dict(host_limits))


def _checked_slots(slots: int) -> int:
    if not isinstance(slots, int) or slots < 1:
        raise InvalidInput(f"slots is at least 1, not {slots!r}")
    return slots


def _checked_share(text: str) -> str:
    """A size, or a share of a disk."""
    host_limit(text, 1)
    return text


def chosen_kinds(kinds: Mapping[str, Kind], names: Sequence[str] | None) -> dict[str, Kind]:
    """The kinds that a worker is restricted to, each under all its names; None or nothing: all of them."""
    if not names:
        return dict(kinds)
    if isinstance(names, str):
        raise InvalidInput("kinds is a list of names", hint=f"Write kinds=[{names!r}].")
    for name in names:
        if name not in kinds:
            raise UnknownKind(f"this app has no kind {name!r}", hint=suggest_kind(name, list(kinds)), kind=name)
    chosen = {kinds[name].name for name in names}
    return {name: kind for name, kind in kinds.items() if kind.name in chosen}


def built_in_kinds(*, commands: bool) -> dict[str, Kind]:
    """The kinds of Holdfast itself: pings of schedules, and *commands* if the worker runs them."""
    ping = {PING: ping_kind(load_settings().ping_hosts)}
    return {**ping, COMMAND: command_kind()} if commands else ping


def scheduler_options(
    heartbeat: Duration, retention: Mapping[str, Duration] | None, *, version: str | None
) -> WorkerOptions:
    """The options of a worker that runs no jobs."""
    interval = as_duration(heartbeat).total_seconds()
    return WorkerOptions(queues=(), slots=1, heartbeat=interval, retention=chosen_retention(retention), version=version)
