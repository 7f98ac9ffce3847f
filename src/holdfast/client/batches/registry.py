"""The unit functions of an application and their runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, Unpack

from msgspec import structs

from holdfast.client.jobs.kind_registry import KindRegistry
from holdfast.client.origin import origin_of
from holdfast.domain.jobs.kind import Kind
from holdfast.domain.names import checked_name, refuse_unknown_options
from holdfast.errors import InvalidKind

if TYPE_CHECKING:
    from holdfast.client.batches.function import BoundFunction, UnitFunction
    from holdfast.client.batches.inbox import Inbox
    from holdfast.client.batches.options import UnitArguments
    from holdfast.client.batches.report import BatchResult
    from holdfast.client.batches.session import BatchSession
    from holdfast.domain.batches.batch import Batch

P = ParamSpec("P")
R = TypeVar("R")


class BatchRegistry:
    """The unit functions of an application, and runs of them over many keys.

    :class:`holdfast.Holdfast` has all of its public methods but :meth:`kinds` under the same names.
    """

    # The imports within the methods keep `import holdfast` quick for programs without batches.

    def __init__(self, registry: KindRegistry) -> None:
        self._registry = registry
        self._units: dict[str, UnitFunction[..., Any]] = {}

    def unit(
        self, name: str | None = None, **options: Unpack[UnitArguments]
    ) -> Callable[[Callable[P, R]], UnitFunction[P, R]]:
        """Register a function as the unit of batches; its first parameter is the key of the unit.

        - *name* defaults to the name of the function. A *name* keeps the ledgers when the function is renamed. The
          same name from another module is drift: see :meth:`run`.
        - *retries* is the number of retries within a run (0), with the delays of *retry*.
        - *timeout* limits each attempt; the default is no limit.
        - *executor* is ``thread`` (the default), or ``process`` to run units in child processes. A child is killed when
          its unit exceeds *timeout* or takes more than *memory* (``"512M"``).
        - *max_failures* in a row stop a run (5).
        - *on_lost* decides what happens to units that were in flight when a run died: ``retry`` (the default) runs
          them again, ``hold`` leaves them in doubt for a person, ``verify`` runs again those that the verifier does
          not confirm.
        - *rate* is the highest number of units that begin in a second.
        - *queue* is where shards wait for workers (``default``); *lease* is how long a silent worker keeps a shard
          (60 s).
        - *conflicts* names services that write the same data and must not run: ``pid:PATH``, ``systemd:NAME``,
          ``pm2:NAME`` or ``worker:QUEUE``.
        - *version* names the code: a run refuses to continue with another version.
        - *operational* names arguments that are not part of the identity of a batch.
        - *keys* returns all keys, for ``--all``.

        Raises:
            InvalidKind: The name is taken, or an option is invalid.
        """
        from holdfast.client.batches.function import UnitFunction
        from holdfast.client.batches.options import UnitArguments, unit_options

        refuse_unknown_options("a unit", options, UnitArguments.__annotations__)
        checked = unit_options(**options)

        def register(function: Callable[P, R]) -> UnitFunction[P, R]:
            named = structs.replace(
                checked, name=self._registry.prefixed(checked_name(name or function.__name__, label="the name"))
            )
            origin = origin_of(function)
            origin = origin if name is None else origin.partition(":")[0]
            unit = UnitFunction(function, named, store=self._registry.store, origin=origin)
            with self._registry.lock:
                if named.name in self._units:
                    hint = "Give one of the two another name."
                    raise InvalidKind(f"the unit {named.name!r} is registered already", hint=hint)
                self._units[named.name] = unit
            return unit

        return register

    def kinds(self) -> dict[str, Kind]:
        """The kinds that run units: shards on workers, and units in child processes."""
        if not self._units:
            return {}
        from holdfast.client.batches.shard import kinds_of

        return {kind.name: kind for unit in self._units.values() for kind in kinds_of(unit)}

    def run(self, units: UnitFunction[..., Any] | BoundFunction, keys: Iterable[Any], **options: Any) -> BatchResult:
        """Run a unit function over *keys*, and return when the run is finished.

        The same call again resumes the batch: it skips finished units and runs failed ones again. The function, its
        arguments and the source of the keys are the identity of a batch. Options:

        - ``jobs``: units at a time (1).
        - ``limit``, ``resume_from``, ``only``: run no more units than this, begin at this key, run only these keys.
        - ``max_failures`` in a row, ``max_total_failures``, ``max_failure_rate`` (a share), ``deadline``: stop there.
        - ``rate``: the highest number of units that begin in a second.
        - ``retry_failed`` (true), ``fresh`` (begin a new generation), ``once`` (do nothing after a clean run).
        - ``where``: ``"here"``, or ``"workers"`` with ``shards`` units at a time, ``queue`` and ``priority``.
        - ``name`` or ``source``: replaces the source of the keys in the identity.
        - ``inputs`` (files), the version and the place of the function (``module:qualname``): a change under an open
          batch is refused, unless ``accept_drift``. It also gives up failed units that the input no longer has.
        - ``wait`` for another run of this identity, or join it with ``allow_concurrent``.
        - ``conflicts``: services that must not run, besides those of the decorator.
        - ``checkpoint``: write the ledger after ``"each"`` unit, every number of units, or every time such as ``"5s"``.
          The default is 50 units or 1 s, whichever comes first. ``"auto"`` writes short units every 1,000 units or
          50 ms. A run obeys a pause or a cancel at its next write.
        - ``dry_run``: count the units, and run none.
        - ``output``: ``"text"``, ``"json"``, ``"ndjson"`` or ``"none"``. ``progress_every``: units between two lines of
          progress on stderr (10; with JSON none).
        - ``actor``: the name of the person  [default: the user of this process].

        A run that cannot begin is not an exception: the error is printed, and the result carries it with its exit
        code. Another run, a conflicting service, a pause or drift can prevent a run, but also an invalid option, a
        store that does not answer, or a missing ``HOLDFAST_API_KEY``. Keys that raise stop a run (exit 8) after the
        units before the error, and the result carries :class:`InputFailed`.

        Raises:
            HoldfastError: With ``output="none"``, the last three, because nothing prints them.
        """
        from holdfast.client.batches.options import run_options
        from holdfast.client.batches.run import run_or_report

        return run_or_report(self._registry.store, units, keys, run_options(**options))

    def submit(self, units: UnitFunction[..., Any] | BoundFunction, keys: Iterable[Any], **options: Any) -> Batch:
        """Submit a run over *keys* to the workers, and return once all units are in the ledger.

        The options are those of :meth:`run`, without ``limit``, ``resume_from``, ``only`` and ``jobs``.

        Raises:
            InvalidInput: An option is invalid, or is for runs in this process only.
            InputFailed: The keys raised an error; the same call submits all of them.
            BatchHeld: Another run of this identity is alive, or the workers have it already.
            ServiceRunning: A service that writes the same data is running.
            BatchPaused: A person has paused the batch.
            Drift: The version or a declared input changed under an open run.
            Refused: The configuration requires a key, and ``HOLDFAST_API_KEY`` is another one.
        """
        from holdfast.client.batches.options import run_options
        from holdfast.client.batches.remote import submit_batch
        from holdfast.client.batches.run import bind, check_key

        check_key()
        return submit_batch(self._registry.store(), bind(units), keys, run_options(**options))

    def inbox(self, name: str) -> Inbox:
        """The inbox of this name, from which consumers take the results that units hand over."""
        from holdfast.client.batches.inbox import Inbox

        return Inbox(self._registry.store, checked_name(name, label="the inbox"))

    def session(self, name: str, arguments: Mapping[str, Any] | None = None, **options: Any) -> BatchSession:
        """Run a batch as your own loop: ``with app.session("resync") as run: for key in run.pending(keys): …``

        *name* and *arguments* are the identity of the batch; the options are those of :meth:`run`. A session that
        cannot begin prints the error and ends the program with its exit code, as ``app.run(…).exit()`` does.

        Raises, with ``output="none"``:
            BatchHeld: Another run of this identity is alive.
            ServiceRunning: A service that writes the same data is running.
            BatchPaused: A person has paused the batch.
            Drift: A declared input changed under an open run.
        """
        from holdfast.client.batches.function import BoundFunction, UnitFunction
        from holdfast.client.batches.options import UnitOptions, run_options
        from holdfast.client.batches.run import check_key, exit_on_error
        from holdfast.client.batches.session import BatchSession

        checked = self._registry.prefixed(checked_name(name, label="the name"))
        function = UnitFunction(lambda key: None, UnitOptions(name=checked))  # noqa: ARG005
        bound = BoundFunction(function, dict(arguments or {}))
        with exit_on_error(run_options(**options)) as run:
            check_key()
            return BatchSession(self._registry.store(), bound, run)
