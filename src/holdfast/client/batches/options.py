"""Options of batches: of their unit functions, and of their runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, TypedDict

from msgspec import Struct, field

from holdfast.domain.batches.batch import DEFAULT_SHARDS, FailureLimits
from holdfast.domain.jobs.kind_options import ExecutorName, KindOptions
from holdfast.domain.jobs.retry_curve import Curve, retry_curve
from holdfast.domain.quantities import Duration, as_bytes, as_duration
from holdfast.errors import InvalidInput, InvalidKind
from holdfast.output.printer import Format, Output, SilentOutput
from holdfast.settings import load_settings
from holdfast.store.access.audit import AuditedAction
from holdfast.worker.commands.identity import user_name

#: Retries within a run follow each other in seconds, not minutes.
UNIT_CURVE = Curve(base=1.0, cap=30.0)
UNIT_KIND_OPTIONS = KindOptions(retry=UNIT_CURVE, timeout=None, executor=ExecutorName.THREAD)


class UnitOptions(Struct, frozen=True, kw_only=True):
    """The options of a unit function; *kind* holds those that it shares with handlers of jobs."""

    name: str = ""
    kind: KindOptions = UNIT_KIND_OPTIONS
    #: Names the code: a run refuses to continue with another version.
    version: str | None = None
    retries: int = 0
    max_failures: int = 5
    #: ``retry``, ``hold`` or ``verify``; shards themselves are always retried.
    on_lost: str = "retry"
    rate: float | None = None
    conflicts: tuple[str, ...] = ()
    operational: tuple[str, ...] = ()
    #: Lists all keys, for ``--all``.
    keys: Callable[[], Iterable[Any]] | None = None

    def __post_init__(self) -> None:
        if self.on_lost not in ("retry", "hold", "verify"):
            raise InvalidKind(f"on_lost is 'retry', 'hold' or 'verify', not {self.on_lost!r}")

    @property
    def in_process(self) -> bool:
        """Whether units run in child processes."""
        return self.kind.executor is ExecutorName.PROCESS

    @property
    def timeout_s(self) -> float | None:
        return None if self.kind.timeout is None else self.kind.timeout.total_seconds()


class UnitArguments(TypedDict, total=False):
    """The options of :meth:`holdfast.BatchRegistry.unit`, which explains them."""

    retries: int
    retry: Curve | Sequence[Duration] | None
    timeout: Duration | None
    executor: str
    memory: int | str | None
    max_failures: int
    on_lost: str
    rate: float | None
    queue: str
    lease: Duration
    conflicts: Sequence[str]
    version: str | None
    operational: Sequence[str]
    keys: Callable[[], Iterable[Any]] | None


def unit_options(
    *,
    queue: str = "default",
    retry: Curve | Sequence[Duration] | None = None,
    timeout: Duration | None = None,
    lease: Duration = "60s",
    executor: str = "thread",
    memory: int | str | None = None,
    conflicts: Sequence[str] = (),
    operational: Sequence[str] = (),
    **options: Any,
) -> UnitOptions:
    """Convert the arguments of a decorator; :class:`UnitOptions` takes the other *options* as they are."""
    if executor not in (ExecutorName.THREAD, ExecutorName.PROCESS):
        raise InvalidKind(f"executor is 'thread' or 'process', not {executor!r}")
    kind = KindOptions(
        queue=queue,
        retry=retry_curve(retry, UNIT_CURVE),
        timeout=None if timeout is None else as_duration(timeout),
        lease=as_duration(lease),
        executor=ExecutorName(executor),
        memory=None if memory is None else as_bytes(memory),
    )
    return UnitOptions(kind=kind, conflicts=tuple(conflicts), operational=tuple(operational), **options)


class Selection(Struct, frozen=True, kw_only=True):
    """The units of the input that a run considers."""

    limit: int | None = None
    resume_from: Any = None
    only: Sequence[Any] | None = None


class RunLimits(Struct, frozen=True, kw_only=True):
    """The conditions that stop a run or slow it down; None means the default of the unit function."""

    max_failures: int | None = None
    max_total_failures: int | None = None
    max_failure_rate: float | None = None
    deadline: Duration | None = None
    rate: float | None = None

    def failure_limits(self, defaults: UnitOptions) -> FailureLimits:
        """The limits at which the breaker trips."""
        return FailureLimits(
            in_a_row=defaults.max_failures if self.max_failures is None else self.max_failures,
            total=self.max_total_failures,
            rate=self.max_failure_rate,
        )

    def units_per_second(self, defaults: UnitOptions) -> float | None:
        """The rate at which units may begin."""
        rate = defaults.rate if self.rate is None else self.rate
        if rate is not None and not (isinstance(rate, int | float) and rate > 0):
            raise InvalidInput(f"a rate is a number of units in a second, above 0, not {rate!r}")
        return rate


class Placement(Struct, frozen=True, kw_only=True):
    """Where a run happens: in this process (``here``), or on the ``workers``."""

    where: str = "here"
    shards: int = DEFAULT_SHARDS
    queue: str | None = None
    priority: int = 0


class RunOptions(Struct, frozen=True, kw_only=True):
    """The options of a run; :meth:`holdfast.Holdfast.run` explains them."""

    selection: Selection = Selection()
    limits: RunLimits = RunLimits()
    placement: Placement = Placement()
    jobs: int = 1
    name: str | None = None
    source: str | None = None
    inputs: Sequence[str | Path] = ()
    conflicts: Sequence[str] = ()
    retry_failed: bool = True
    fresh: bool = False
    once: bool = False
    dry_run: bool = False
    allow_concurrent: bool = False
    accept_drift: bool = False
    wait: bool = False
    progress_every: int | None = None
    checkpoint: Duration | None = None
    output: str | Output | None = None
    actor: str = field(default_factory=user_name)
    #: The action of a person that starts the run; the library's own runs have none.
    audit: AuditedAction | None = None

    def printer(self) -> Output:
        """The output that the run reports to."""
        if isinstance(self.output, Output):
            return self.output
        if self.output == "none":
            return SilentOutput()
        name = self.output or load_settings().output
        if name not in list(Format):
            raise InvalidInput(f"output is text, json, ndjson or none, not {name!r}")
        return Output(Format(name))


def run_options(**options: Any) -> RunOptions:
    """Group the flat keywords of :meth:`holdfast.Holdfast.run`; an unknown one is a TypeError."""

    def group(struct: type[Struct]) -> Any:
        return struct(**{name: options.pop(name) for name in struct.__struct_fields__ if name in options})

    return RunOptions(selection=group(Selection), limits=group(RunLimits), placement=group(Placement), **options)
