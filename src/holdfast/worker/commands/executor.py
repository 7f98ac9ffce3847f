"""Programs, one per slot: started and ended by the supervisor, their output kept in a log of the attempt."""

from __future__ import annotations

import os
import select
import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
from msgspec import structs

from holdfast.domain.commands.command import (
    COMMAND,
    Command,
    callback_values,
    encode_outcome,
    environment,
    load_command,
    substitute,
)
from holdfast.domain.jobs.handler_exceptions import Cancelled
from holdfast.domain.jobs.job import EndReason, JobId, Lease, State
from holdfast.domain.jobs.kind import Kind
from holdfast.domain.jobs.kind_options import ExecutorName, KindOptions
from holdfast.domain.jobs.verdict import Done, Failed, Lost, Outcome
from holdfast.domain.names import clean_text, path_part
from holdfast.errors import HoldfastError
from holdfast.store import Store
from holdfast.worker import clock
from holdfast.worker.active_runs import Run
from holdfast.worker.commands.cgroups import enforcer_here
from holdfast.worker.commands.output import LARGEST, TAIL, AttemptLog, Echo
from holdfast.worker.commands.supervisor import CANNOT_START, ProcessExited
from holdfast.worker.executors import Finish
from holdfast.worker.executors.children import SupervisorClient
from holdfast.worker.executors.slots import SlotExecutor
from holdfast.worker.handler import outcome_of

LEASE = timedelta(seconds=60)
#: How often a program that says nothing is looked after, in milliseconds; and how much is read at once.
LOOK_EVERY, CHUNK = 500, 64 * 1024


def command_kind(*, lease: timedelta = LEASE) -> Kind:
    """The kind that runs programs; a silent worker keeps them for the *lease*."""
    return Kind(COMMAND, _command, KindOptions(timeout=None, lease=lease, executor=ExecutorName.COMMAND))


def _command(
    *,
    argv: tuple[str, ...],
    cwd: str,
    env: dict[str, str] | None = None,
    parameters: dict[str, str] | None = None,
    timeout: timedelta | None = None,
    memory: int | None = None,
    cpus: float | None = None,
    require_cap: bool = False,
    log_cap: int | None = None,
    pause_queue: bool = False,
    about: int | None = None,
    origins: dict[str, str] | None = None,
) -> None:
    """What a payload of the kind holds; it is run by the executor, not by a call."""


class CommandExecutor(SlotExecutor):
    """Slots whose runs are programs."""

    def __init__(self, slots: int, *, logs: Path, echo: Echo | None, store: Store, finish: Finish) -> None:
        self._supervised = SupervisorClient()
        self._logs = logs
        self._echo = echo
        self._store = store

        def make_slot() -> tuple[Callable[[Run], Outcome], Callable[[], None]]:
            return self._perform, lambda: None

        super().__init__("command", slots, make_slot=make_slot, finish=finish)

    def close(self) -> None:
        super().close()
        self._supervised.close()

    def _perform(self, run: Run) -> Outcome:
        try:
            command = load_command(run.lease.payload)
        except (msgspec.DecodeError, HoldfastError) as error:
            return Failed(error=str(error), reason=EndReason.BAD_PAYLOAD, permanent=True)
        if command.about is not None:
            command = structs.replace(command, argv=substitute(command.argv, self._told(JobId(command.about))))
        run.timeout = None if command.timeout is None else command.timeout.total_seconds()
        path = log_path(self._logs, run.lease.job_id, run.lease.token, command.parameters)
        log = AttemptLog(path, largest=command.log_cap or LARGEST, echo=self._echo)
        try:
            refused = _refused(command)
            return refused or self._run(run, command, log)
        finally:
            log.close()

    def _told(self, job_id: JobId) -> dict[str, str]:
        """What there is to say about the job that a callback follows."""
        job = self._store.views.get(job_id)
        attempts = self._store.views.attempts(job_id)
        last = attempts[-1] if attempts else None
        output = ""
        if job.kind == COMMAND and last is not None:
            path = log_path(self._logs, job_id, last.token, load_command(job.payload).parameters)
            output = path.read_bytes()[-TAIL:].decode(errors="replace") if path.exists() else ""
        code = 0 if job.state is State.DONE else None if last is None else last.exit_code
        return callback_values(job, code, output.replace("\0", ""))

    def _number(self, lease: Lease) -> int:
        """Which attempt this is, as people count them: also those before a restart, as ``holdfast log`` does."""
        if lease.token == 1:
            return 1
        with suppress(HoldfastError):  # a store that does not answer now is no reason to fail
            return len(self._store.views.attempts(lease.job_id))
        return lease.attempt

    def _run(self, run: Run, command: Command, log: AttemptLog) -> Outcome:
        lease = run.lease
        env = environment(command, os.environ, job_id=lease.job_id, attempt=self._number(lease), queue=lease.queue)
        reading, writing = os.pipe()
        try:
            name = self._supervised.command(
                list(command.argv),
                writing,
                cwd=command.cwd,
                env=env,
                memory=command.memory,
                cpus=command.cpus,
                measured=run.measured,
            )
        except OSError as error:
            os.close(reading)
            return Failed(error=f"the program cannot be started: {error}", reason=EndReason.CANNOT_START)
        finally:
            os.close(writing)
        run.begun_at = clock.now()
        self._supervised.limit(name, until=run.lease_expires_at)
        run.attach(
            interrupt=lambda: self._supervised.kill(name, gently=True),
            kill=lambda: self._supervised.kill(name),
            dated=lambda: self._supervised.limit(name, until=run.lease_expires_at),
            freeze=lambda frozen: self._supervised.freeze(name, frozen=frozen),
            resident=lambda: self._supervised.resident(name),
        )
        try:
            exited = self._follow(name, reading, log)
        finally:
            os.close(reading)
            run.attach()
        run.peak = None if exited is None else exited.peak
        return _outcome(run, command, exited, log)

    def _follow(self, name: str, reading: int, log: AttemptLog) -> ProcessExited | None:
        """Read what it writes until it has ended, and what is left then; None: its supervisor is gone."""
        look = select.poll()
        look.register(reading, select.POLLIN)
        exited: ProcessExited | None = None
        while exited is None:
            if look.poll(LOOK_EVERY):
                data = os.read(reading, CHUNK)
                if data:
                    log.write(data)
                    continue
                exited = self._supervised.exit_of(name)
            else:
                exited = self._supervised.exit_of(name, patience=0.0)
            if exited is None and self._supervised.gone:
                return None
        while look.poll(0) and (data := os.read(reading, CHUNK)):
            log.write(data)
        return exited


def log_path(folder: Path, job_id: int, token: int, parameters: Mapping[str, str]) -> Path:
    """The log of one attempt, below folders that carry every parameter."""
    parts = [f"{name}={path_part(value)}" for name, value in parameters.items()]
    return folder.joinpath(*parts, f"{job_id}-{token}.log")


def pause_after(store: Store, lease: Lease) -> None:
    """Pause the queue of a program that has failed for good, if it was added so."""
    if not load_command(lease.payload).pause_queue:
        return
    job = store.views.get(lease.job_id)
    if job.state is State.DEAD:
        store.queues.pause(job.queue, note=f"job {job.id} failed ({job.reason})")


def _refused(command: Command) -> Failed | None:
    """What could not work is told before it is tried."""
    if not Path(command.cwd).is_dir():
        error = f"there is no directory {command.cwd}"
        return Failed(error=error, reason=EndReason.CANNOT_START)
    path = command.env.get("PATH", os.defpath)
    word = command.argv[0]
    found = shutil.which(word, path=path) if os.sep not in word else shutil.which(Path(command.cwd, word))
    if found is None:
        there = Path(command.cwd, word)
        why = "is a directory" if there.is_dir() else "cannot be executed" if there.exists() else "is not there"
        return Failed(error=f"the program {word!r} {why}", reason=EndReason.CANNOT_START)
    if command.require_cap and command.capped and enforcer_here() == "watch":
        error = "nothing on this host can enforce its caps, and --require-cap was said"
        return Failed(error=error, reason=EndReason.CANNOT_START, permanent=True)
    return None


def _outcome(run: Run, command: Command, exited: ProcessExited | None, log: AttemptLog) -> Outcome:
    if run.stop_reason is not None:
        return outcome_of(Cancelled(), run.stop_reason)
    if exited is None:
        return Lost(reason=EndReason.CRASHED, begun=True, error="the program was lost with its supervisor")
    if exited.error is not None and exited.status == CANNOT_START:
        return Failed(error=f"the program cannot be started: {exited.error}", reason=EndReason.CANNOT_START)
    facts: dict[str, Any] = {"exit_code": exited.status, "cpu_seconds": exited.cpu, "peak_bytes": exited.peak}
    facts |= {"enforcer": exited.enforcer, "log": str(log.path)}
    if exited.oom:
        cap, peak = command.memory or 0, exited.peak or 0
        error = f"it took more than its cap of {cap:,} bytes (peak {peak:,}) and was killed by {exited.enforcer}"
        error += f"\nRun it again with a larger one: holdfast restart {run.lease.job_id} --memory SIZE"
        return _failed(EndReason.OOM, error, exited, log)
    if exited.status == 0:
        return Done(encode_outcome(facts))
    if exited.status < 0:
        return _failed(f"signal_{-exited.status}", f"it was ended by signal {-exited.status}", exited, log)
    return _failed(f"exit_{exited.status}", f"it ended with exit code {exited.status}", exited, log)


def _failed(reason: str, text: str, exited: ProcessExited, log: AttemptLog) -> Failed:
    tail = log.tail().strip()
    error = clean_text(f"{text}\n\n{tail}" if tail else text)
    return Failed(error=error, reason=reason, exit_code=exited.status)
