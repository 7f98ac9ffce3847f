"""The part of an application that is about batches: unit functions, and runs over many keys."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from holdfast.client.jobs import kind_options
from holdfast.domain.durations import Duration, as_duration
from holdfast.domain.jobs.kind import Kind
from holdfast.domain.jobs.retry import Curve
from holdfast.domain.names import checked_name
from holdfast.domain.sizes import as_bytes
from holdfast.errors import InvalidKind
from holdfast.store import Store

if TYPE_CHECKING:
    from holdfast.client.batches.function import BoundFunction, UnitFunction
    from holdfast.client.batches.inbox import Inbox
    from holdfast.client.batches.local import BatchResult
    from holdfast.client.batches.session import Session
    from holdfast.domain.batches.batch import Batch

P = ParamSpec("P")
R = TypeVar("R")


class Batching(ABC):
    """Unit functions of an application, and what is done with them."""

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.RLock()
        self._units: dict[str, UnitFunction[..., Any]] = {}

    @property
    @abstractmethod
    def store(self) -> Store:
        """Where the ledgers are."""

    def unit(
        self,
        name: str | None = None,
        *,
        retries: int = 0,
        retry: Curve | Sequence[Duration] | None = None,
        timeout: Duration | None = None,
        executor: str = "thread",
        memory: int | str | None = None,
        max_failures: int = 5,
        on_lost: str = "retry",
        rate: float | None = None,
        queue: str = "default",
        lease: Duration = "60s",
        conflicts: Sequence[str] = (),
        version: str | None = None,
        operational: Sequence[str] = (),
        keys: Callable[[], Iterable[Any]] | None = None,
    ) -> Callable[[Callable[P, R]], UnitFunction[P, R]]:
        """Make a function the unit of batches: its first parameter is the key of the unit.

        *retries* are made within a run, with the delays of *retry*; each may take *timeout*. *executor*
        ``process`` runs units in child processes, which are killed when they take longer, or more than *memory*.
        *max_failures* in a row stop a run. *on_lost* says what becomes of units of a run that was lost: they
        ``retry``, ``hold`` (in doubt, for a person), or are run again unless a verifier says that they are done
        (``verify``). At most *rate* units begin in a second. *queue* is where shards wait for workers, *lease* how
        long a silent worker keeps them. *conflicts* are services that write the same data (``pid:PATH``,
        ``systemd:NAME``, ``pm2:NAME``, ``worker:QUEUE``). *version* guards against drift; *operational* arguments
        do not belong to the identity. *keys* lists all keys there are, for ``--all``.

        Raises:
            InvalidKind: The name is taken, or a setting makes no sense.
        """
        from holdfast.client.batches.function import UNIT_CURVE, UnitFunction, UnitOptions

        def make(function: Callable[P, R]) -> UnitFunction[P, R]:
            options = UnitOptions(
                name=checked_name(name or function.__name__, label="the name"),
                retries=retries,
                curve=UNIT_CURVE if retry is None else kind_options.curve(retry),
                timeout=None if timeout is None else as_duration(timeout),
                executor=executor,
                memory=None if memory is None else as_bytes(memory),
                max_failures=max_failures,
                on_lost=on_lost,
                rate=rate,
                queue=checked_name(queue, label="the queue"),
                lease=as_duration(lease),
                conflicts=tuple(conflicts),
                version=version,
                operational=tuple(operational),
            )
            made = UnitFunction(function, options, store=lambda: self.store, keys=keys)
            self._add_unit(made)
            return made

        return make

    def _add_unit(self, unit: UnitFunction[..., Any]) -> None:
        with self._lock:
            if unit.options.name in self._units:
                raise InvalidKind(
                    f"the unit {unit.options.name!r} is registered already", hint="Give one of the two another name."
                )
            self._units[unit.options.name] = unit

    def unit_kinds(self) -> dict[str, Kind]:
        """The kinds that run units: shards on workers, and units in children."""
        if not self._units:
            return {}
        from holdfast.client.batches.shard import kinds_of

        return {kind.name: kind for unit in self._units.values() for kind in kinds_of(unit)}

    def run(self, units: UnitFunction[..., Any] | BoundFunction, keys: Iterable[Any], **options: Any) -> BatchResult:
        """Run a unit function over *keys*, resumable; *options* are those of ``RunOptions``.

        It runs in this process, or with ``where="workers"`` on the workers, and comes back when it has ended.
        The same call again goes on where the last one stopped, and runs failed units again.
        """
        from holdfast.client.batches.local import RunOptions
        from holdfast.client.batches.remote import run_anywhere

        return run_anywhere(self.store, _bound(units), keys, RunOptions(**options))

    def submit(self, units: UnitFunction[..., Any] | BoundFunction, keys: Iterable[Any], **options: Any) -> Batch:
        """Have the workers run a unit function over *keys*, ``shards=3`` at a time; comes back when all are planned.

        Raises:
            InvalidInput: An option is for runs in this process only.
            BatchHeld: Another run of this identity is alive, or the workers have it already.
            ServiceRunning: A service that writes the same data is running.
            BatchPaused: A person has paused it.
            Drift: The version or a declared input changed under an open run.
        """
        from holdfast.client.batches.local import RunOptions
        from holdfast.client.batches.remote import submit_batch

        return submit_batch(self.store, _bound(units), keys, RunOptions(**options))

    def inbox(self, name: str) -> Inbox:
        """The results that units hand over under this name, for their consumers."""
        from holdfast.client.batches.inbox import Inbox

        return Inbox(lambda: self.store, checked_name(name, label="the inbox"))

    def session(self, name: str, arguments: Mapping[str, Any] | None = None, **options: Any) -> Session:
        """A batch as a loop of your own: ``with app.session("resync") as run: for key in run.pending(keys): …``

        *name* and *arguments* are its identity; *options* are those of :meth:`run`.

        Raises:
            BatchHeld: Another run of this identity is alive.
            BatchPaused: A person has paused it.
        """
        from holdfast.client.batches.function import BoundFunction, UnitFunction, UnitOptions
        from holdfast.client.batches.local import RunOptions
        from holdfast.client.batches.session import Session

        function = UnitFunction(lambda key: None, UnitOptions(name=checked_name(name, label="the name")))  # noqa: ARG005
        return Session(self.store, BoundFunction(function, dict(arguments or {})), RunOptions(**options))


def _bound(units: UnitFunction[..., Any] | BoundFunction) -> BoundFunction:
    from holdfast.client.batches.function import BoundFunction

    return units if isinstance(units, BoundFunction) else units.bind()
