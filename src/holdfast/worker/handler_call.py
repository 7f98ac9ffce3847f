"""The call of a handler, and the outcome that its return value or exception means."""

from __future__ import annotations

import asyncio
import json
import traceback
from collections.abc import Callable
from contextlib import nullcontext
from contextvars import copy_context
from datetime import timedelta
from itertools import dropwhile
from pathlib import Path
from types import AsyncGeneratorType, CoroutineType, GeneratorType
from typing import Any

import msgspec

from holdfast.domain.access.masking import mask_text, secret_values
from holdfast.domain.commands.command import COMMAND, secret_variables
from holdfast.domain.jobs.context import Asleep, Cancelled, Context, Fail, Release, Retry
from holdfast.domain.jobs.job import EndReason, Lease
from holdfast.domain.jobs.json_values import storable_result, to_json
from holdfast.domain.jobs.kind import Kind
from holdfast.domain.jobs.verdict import Done, Failed, Lost, Outcome, Released, Stopped, Unreadable
from holdfast.domain.names import class_name, clean_text
from holdfast.errors import InvalidPayload, LeaseLost, StoreBusy, StoreUnavailable
from holdfast.store.engine import forks
from holdfast.worker.active_runs import Run, StopReason
from holdfast.worker.exit import exit_process

#: Longest first line of an error in the log, in characters; the attempt has the full text.
MAX_LINE = 300
#: Delay of a job whose handler could not reach the store: another run would probably fail in the same way.
OUTAGE_DELAY = timedelta(seconds=5)
_PACKAGE = str(Path(__file__).parents[1])

#: The label of each outcome in metrics.
RESULTS: dict[type[Outcome], str] = {
    Done: "done",
    Failed: "failed",
    Released: "released",
    Unreadable: "unreadable",
    Stopped: "cancelled",
    Lost: "crashed",
}

MakeContext = Callable[[Run], Context]


def run_handler(run: Run, context: MakeContext) -> Outcome:
    """Call the handler in this thread. An exception fails its own job only.

    The run has a context of its own: variables that it sets are gone when it ends.
    """
    return copy_context().run(_call_handler, run, context)


def _call_handler(run: Run, context: MakeContext) -> Outcome:
    arguments = _arguments(run, context)
    if isinstance(arguments, Unreadable):
        return arguments
    depth = forks.depth
    try:
        if run.span is None:
            outcome: Outcome = done(run.kind.function(**arguments))
        else:
            with run.span():
                outcome = done(run.kind.function(**arguments))
    except BaseException as error:  # noqa: BLE001 - SystemExit of a handler must not end the worker
        outcome = outcome_of(error, run.stop_reason)
    _exit_if_forked(depth)
    return outcome


async def await_handler(run: Run, context: MakeContext) -> Outcome:
    """Await a coroutine handler on the running loop, in the context of the caller."""
    arguments = _arguments(run, context)
    if isinstance(arguments, Unreadable):
        return arguments
    depth = forks.depth
    try:
        with nullcontext() if run.span is None else run.span():
            outcome: Outcome = done(await run.kind.function(**arguments))
    except asyncio.CancelledError as error:
        # Without a stop request, the handler has cancelled itself.
        outcome = outcome_of(error if run.stop_reason is None else Cancelled(), run.stop_reason)
    except BaseException as error:  # noqa: BLE001 - SystemExit of a handler must not end the loop
        outcome = outcome_of(error, run.stop_reason)
    _exit_if_forked(depth)
    return outcome


def _exit_if_forked(depth: int) -> None:
    """End a fork that the handler has left: in there, this thread would take and run the jobs that wait here."""
    if forks.depth != depth:
        exit_process(0, "a fork that a handler left behind ends here")


def _arguments(run: Run, context: MakeContext) -> dict[str, Any] | Unreadable:
    """The arguments of the handler. A payload that this code cannot read may be for other code."""
    kind, lease = run.kind, run.lease
    try:
        return kind.arguments(lease.payload, lambda: context(run), version=lease.kind_version)
    except InvalidPayload as error:
        text = safe_text(error)
    except BaseException as error:  # noqa: BLE001 - types and upgrades of the user may raise anything
        text = describe_error(error)
    return Unreadable(error=text, version=kind.options.version)


def first_line(lease: Lease, outcome: Failed | Lost | Unreadable, kind: Kind | None) -> str:
    """One line for the log about a failed run, without the secrets of its payload."""
    try:
        payload = msgspec.json.decode(lease.payload)
    except msgspec.DecodeError:
        payload = None
    secrets = secret_variables(lease.payload) if lease.kind == COMMAND and payload is not None else []
    values = secret_values({"payload": payload, "secrets": secrets}, () if kind is None else kind.options.secrets)
    text = outcome.error or (EndReason.UNREADABLE if isinstance(outcome, Unreadable) else outcome.reason)
    return mask_text(text, values).partition("\n")[0][:MAX_LINE]


def refuse_unrun(value: Any) -> None:
    """Refuse a coroutine or a generator as a result: nothing of the function has run.

    A decorator whose wrapper is a plain function returns one in place of an ``async def`` function.
    """
    if isinstance(value, CoroutineType | GeneratorType | AsyncGeneratorType):
        if not isinstance(value, AsyncGeneratorType):
            value.close()  # otherwise Python warns that it was never awaited
        name = type(value).__name__.replace("_", " ")
        raise TypeError(f"the function returned a {name}, so nothing of it has run; make its decorator's wrapper async")


def done(value: Any) -> Done:
    """Success with a result. A result that cannot be stored is converted, or dropped with the reason."""
    if value is None:
        return Done()
    if isinstance(value, Done):
        return value  # made by our own code; it is not stored
    refuse_unrun(value)
    try:
        return Done(*storable_result(to_json(value, label="the result").decode()))
    except Exception as error:  # noqa: BLE001 - code of the value may raise anything
        try:
            return Done(*storable_result(json.dumps(value, ensure_ascii=False, allow_nan=False)))
        except Exception:  # noqa: BLE001 - as above
            of_ours = isinstance(error, InvalidPayload)
            reason = str(error) if of_ours else f"the result, a {class_name(value)}, cannot be written as JSON"
            return Done(dropped=clean_text(reason, limit=MAX_LINE))


def outcome_of(error: BaseException, stop_reason: StopReason | None) -> Outcome:
    """The outcome that an exception means. An exception whose own code raises is a failure like others."""
    try:
        return _meaning(error, stop_reason)
    except BaseException:  # noqa: BLE001 - a property of the exception may raise anything
        return Failed(error=describe_error(error))


def _meaning(error: BaseException, stop_reason: StopReason | None) -> Outcome:
    match error:
        case Cancelled():
            return _stopped(stop_reason)
        case Release() | Asleep():
            return Released(delay=error.delay)
        case Retry():
            return Failed(error=describe_error(error), after=error.after)
        case Fail():
            return Failed(error=describe_error(error), permanent=error.permanent)
        case StoreUnavailable() | StoreBusy() | LeaseLost() if stop_reason is not StopReason.RUN_TIMEOUT:
            # The store failed, not the handler, which may have had effects before: on_lost decides.
            return Released(delay=OUTAGE_DELAY, interrupted=True, error=describe_error(error))
        case _ if stop_reason is StopReason.RUN_TIMEOUT:
            return Failed(error=describe_error(error), reason=EndReason.RUN_TIMEOUT)
        case _:
            return Failed(error=describe_error(error))


def _stopped(stop_reason: StopReason | None) -> Outcome:
    match stop_reason:
        case StopReason.RUN_TIMEOUT:
            return Failed(error="the run took longer than its timeout", reason=EndReason.RUN_TIMEOUT)
        case StopReason.SHUTDOWN | StopReason.LEASE_LOST | StopReason.PAUSED | StopReason.EVICTED:
            return Released(interrupted=True)
        case StopReason.CANCELLED | None:
            return Stopped()


def describe_overdue(ran: timedelta, timeout_s: float) -> str:
    """The mark of a run that returned after its timeout."""
    return f"it took {ran.total_seconds():.3g} s, past its timeout of {timeout_s:g} s"


def safe_text(error: BaseException) -> str:
    """The text of an error whose ``__str__`` may raise."""
    try:
        return clean_text(str(error))
    except BaseException:  # noqa: BLE001 - code of the exception may raise anything
        return f"{class_name(error)} (its text cannot be read)"


def describe_error(error: BaseException) -> str:
    """The text of an error: its last line first, then the traceback. Never raises, whatever the class does."""
    try:
        last = "".join(traceback.format_exception_only(error)).strip()
        frames = traceback.extract_tb(error.__traceback__)
        own = list(dropwhile(lambda frame: frame.filename.startswith(_PACKAGE), frames))
        where = "".join(traceback.format_list(own))
    except BaseException:  # noqa: BLE001 - code of the exception and of its class may raise anything
        return f"{class_name(error)} (its text cannot be read)"
    return f"{last}\n\n{where}".strip()
