"""The executor of commands: the supervisor starts and kills them, and a log keeps the output of each attempt."""

from __future__ import annotations

import errno
import logging
import os
import select
import shutil
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

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
from holdfast.domain.jobs.context import Cancelled
from holdfast.domain.jobs.job import EndReason, JobId, Lease, State
from holdfast.domain.jobs.kind import Kind
from holdfast.domain.jobs.kind_options import ExecutorName, KindOptions
from holdfast.domain.jobs.verdict import Done, Failed, Lost, Outcome, Unreadable
from holdfast.domain.names import clean_text
from holdfast.errors import HoldfastError
from holdfast.worker import clock
from holdfast.worker.active_runs import Handle, Run
from holdfast.worker.commands.kernel import kill_abandoned
from holdfast.worker.commands.log_files import MAX_BYTES, TAIL_BYTES, AttemptLog, log_path
from holdfast.worker.commands.resource_caps import NOT_ENFORCED, WATCH, enforcer_here
from holdfast.worker.executors.channel import CANNOT_START, ProcessExited, StartProcess
from holdfast.worker.executors.children import SupervisorClient
from holdfast.worker.executors.threads import SlotExecutor
from holdfast.worker.handler_call import outcome_of
from holdfast.worker.options import WorkerSetup
from holdfast.worker.run_lifecycle import RunLifecycle
from holdfast.worker.shortage import SHORTAGES

log = logging.getLogger("holdfast")

#: Long enough that a restart of the database costs no command: it runs on without contact for 60 % of this time.
LEASE = timedelta(seconds=300)
#: Longest wait for output between two checks whether the command has ended.
POLL_INTERVAL_MS = 500
READ_BYTES = 64 * 1024
#: The end of a command is awaited for this long before its output is read: a short command wakes its slot once.
SHORT_S = 0.01
SWITCHED_OFF = "commands are switched off on this store (holdfast db commands)"


def command_kind(*, lease: timedelta = LEASE) -> Kind:
    """The kind that runs commands, once each. A worker without contact to the store keeps them for the *lease*."""
    options = KindOptions(max_attempts=1, timeout=None, lease=lease, executor=ExecutorName.COMMAND)
    return Kind(COMMAND, _command, options)


def _command(
    *,
    argv: tuple[str, ...],
    cwd: str,
    env: dict[str, str] | None = None,
    parameters: dict[str, str] | None = None,
    timeout: timedelta | None = None,
    stop_delay: timedelta | None = None,
    memory: int | None = None,
    cpus: float | None = None,
    require_cap: bool = False,
    log_cap: int | None = None,
    pause_queue: bool = False,
    about: int | None = None,
    origins: dict[str, str] | None = None,
) -> None:
    """The fields of a payload of this kind. The executor never calls this function."""


@dataclass(slots=True, eq=False)
class CommandHandle(Handle):
    """Controls the process of a command through the supervisor."""

    _supervisor: SupervisorClient
    _name: str
    _run: Run

    def interrupt(self) -> None:
        self._supervisor.kill(self._name, gently=True)

    def kill(self) -> None:
        self._supervisor.kill(self._name)

    def renewed(self) -> None:
        self._supervisor.limit(self._name, until=self._run.lease_expires_at)

    def freeze(self, *, frozen: bool) -> bool:
        self._supervisor.freeze(self._name, frozen=frozen)
        return True

    def resident(self) -> int:
        return self._supervisor.resident(self._name)


class CommandExecutor(SlotExecutor):
    """Slots whose runs are commands."""

    def __init__(self, setup: WorkerSetup, *, lifecycle: RunLifecycle) -> None:
        self._supervisor = SupervisorClient()
        self._supervisor.prepare()
        self._logs, self._url = setup.options.logs, setup.options.url
        self._echo, self._keep_free = setup.options.echo, setup.options.log_keep_free
        self._stdin = setup.options.stdin
        self._env = dict(os.environ)  # a lookup in os.environ encodes and decodes
        self._store = setup.store
        self.joins_settlements = setup.store.backend.single_writer
        super().__init__(
            "command", setup.options.slots, make_slot=lambda: (self._perform, lambda: None), lifecycle=lifecycle
        )

    def close(self) -> None:
        super().close()
        self._supervisor.close()

    def _perform(self, run: Run) -> Outcome | None:
        try:
            started = self._lifecycle.start_command(run)
        except Exception as error:  # noqa: BLE001 - perhaps only the answer was lost: the release refunds the start
            return self._lifecycle.shortage.release(error, lacks="the worker cannot record the start of a command")
        if started is None:
            return None
        run.started = True
        try:
            command = load_command(run.lease.payload)
        except (msgspec.DecodeError, HoldfastError) as error:
            return Unreadable(error=str(error))
        if started.is_off:
            return Failed(error=SWITCHED_OFF, reason=EndReason.CANNOT_START, permanent=True)
        if command.about is not None:
            argv = substitute(command.argv, self._callback_values(JobId(command.about)))
            command = structs.replace(command, argv=argv)
        if command.timeout is not None:
            run.timeout = command.timeout.total_seconds()
        run.stop_delay = command.stop_delay_s
        path = log_path(self._logs, run.lease.job_id, run.lease.token, command.parameters)
        output = AttemptLog(path, max_bytes=command.log_cap or MAX_BYTES, echo=self._echo, keep_free=self._keep_free)
        try:
            # Whether the system can start it, the start itself shows. The program of a cap hides that.
            return (_refusal(command) if command.capped else None) or self._run(run, command, output, started.label)
        finally:
            output.close()

    def _callback_values(self, job_id: JobId) -> dict[str, str]:
        """The values that a callback's arguments may name, about the job that it follows."""
        job = self._store.views.get(job_id)
        attempts = self._store.views.attempts(job_id)
        last = attempts[-1] if attempts else None
        output = ""
        if job.kind == COMMAND and last is not None:
            path = log_path(self._logs, job_id, last.token, load_command(job.payload).parameters)
            output = path.read_bytes()[-TAIL_BYTES:].decode(errors="replace") if path.exists() else ""
        code = 0 if job.state is State.DONE else None if last is None else last.exit_code
        return callback_values(job, code, output.replace("\0", ""))

    def _attempt(self, lease: Lease) -> int:
        """The number of the attempt. Those before a restart count, as in ``holdfast log``."""
        if lease.token > 1:
            with suppress(HoldfastError):  # an unreachable store does not fail the command
                return len(self._store.views.attempts(lease.job_id))
        return lease.attempt

    def _message(self, run: Run, command: Command, label: str | None) -> StartProcess:
        lease = run.lease
        values = {"job_id": lease.job_id, "attempt": self._attempt(lease), "queue": lease.queue, "label": label}
        return StartProcess(
            list(command.argv),
            command=True,
            cwd=command.cwd,
            env=environment(command, self._env, **values, url=self._url),
            memory=command.memory,
            cpus=command.cpus,
            require_cap=command.require_cap,
            measured=run.measured,
            stdin=self._stdin is not None,
            until=run.lease_expires_at,
        )

    def _run(self, run: Run, command: Command, output: AttemptLog, label: str | None) -> Outcome:
        message = self._message(run, command, label)
        if run.lease.token > 1:
            kill_abandoned()  # its last worker may have been killed with its supervisor, and the program not
        reading, writing = os.pipe()
        try:
            name = self._supervisor.start_process(message, writing, stdin=self._stdin)
        except BaseException:
            os.close(reading)
            raise
        finally:
            os.close(writing)
        run.begun_at = clock.now()
        handle = CommandHandle(self._supervisor, name, run)
        run.attach(handle)
        if run.lease_expires_at != message.until:
            handle.renewed()
        try:
            exited = self._follow(name, reading, output)
        finally:
            os.close(reading)
            run.detach()
        if exited is not None and exited.errno in SHORTAGES:
            return self._lifecycle.shortage.release(OSError(exited.errno, exited.error))
        self._lifecycle.shortage.recovered()
        run.peak = None if exited is None else exited.peak
        return _outcome(run, command, exited, output)

    def _follow(self, name: str, reading: int, output: AttemptLog) -> ProcessExited | None:
        """Copy the output to the log until the command has ended; None: its supervisor is gone."""
        poll = select.poll()
        poll.register(reading, select.POLLIN)
        exited = self._supervisor.exit_of(name, timeout=SHORT_S)
        while exited is None:
            ready = poll.poll(POLL_INTERVAL_MS)
            if ready and ready[0][1] & select.POLLIN and (data := os.read(reading, READ_BYTES)):
                output.write(data)
                continue
            exited = self._supervisor.exit_of(name) if ready else self._supervisor.exit_of(name, timeout=0.0)
            if exited is None and self._supervisor.has_lost(name):
                return None
        while (ready := poll.poll(0)) and ready[0][1] & select.POLLIN and (data := os.read(reading, READ_BYTES)):
            output.write(data)
        return exited


def _refusal(command: Command) -> Failed | None:
    """The failure of a command that cannot start here; None: nothing is known against it."""
    if not Path(command.cwd).is_dir():
        return Failed(error=f"there is no directory {command.cwd}", reason=EndReason.CANNOT_START)
    path, name = command.env.get("PATH", os.defpath), command.argv[0]
    file = Path(command.cwd, name)
    if (shutil.which(name, path=path) if os.sep not in name else shutil.which(file)) is None:
        why = "is a directory" if file.is_dir() else "cannot be executed" if file.exists() else "is not there"
        return Failed(error=f"the program {name!r} {why}", reason=EndReason.CANNOT_START)
    if command.require_cap and command.capped and enforcer_here() == WATCH:
        return Failed(error=NOT_ENFORCED, reason=EndReason.CANNOT_START, permanent=True)
    return None


def _interpreter_problem(command: Command, number: int | None) -> str | None:
    """Why the system cannot execute a program that is there; None: for another reason."""
    name = command.argv[0]
    located = None if os.sep in name else shutil.which(name, path=command.env.get("PATH", os.defpath))
    file = Path(located or Path(command.cwd, name))
    try:
        with file.open("rb") as content:
            first = content.readline(256)
    except OSError:
        return None
    if number == errno.ENOEXEC:
        is_binary = first.startswith(b"\x7fELF")
        why = "is for another machine" if is_binary else f"has no #! line: add one, or run sh {name}"
        return f"the program {name!r} {why}"
    if number == errno.ENOENT and first.startswith(b"#!"):
        interpreter = first[2:].removesuffix(b"\n").strip(b" \t").partition(b" ")[0].decode(errors="replace")
        ends = ": its lines end with CR and LF" if interpreter.endswith("\r") else ""
        return f"the interpreter {interpreter!r} of {name!r} is not there{ends}"
    return None


def _outcome(run: Run, command: Command, exited: ProcessExited | None, output: AttemptLog) -> Outcome:
    if run.stop_reason is not None:
        return outcome_of(Cancelled(), run.stop_reason)
    if exited is None:
        return Lost(reason=EndReason.CRASHED, begun=True, error="the command was lost with its supervisor")
    if exited.error is not None and exited.status == CANNOT_START:
        permanent = exited.error == NOT_ENFORCED
        error = _interpreter_problem(command, exited.errno) or f"the command cannot be started: {exited.error}"
        return _refusal(command) or Failed(error=error, reason=EndReason.CANNOT_START, permanent=permanent)
    if exited.oom:
        cap, peak = command.memory or 0, exited.peak or 0
        error = (
            f"it used more than its memory limit of {cap:,} bytes (peak {peak:,}) and was killed by {exited.enforcer}"
        )
        error += f"\nRun it again with a larger one: holdfast restart {run.lease.job_id} --memory SIZE"
        return _failed(EndReason.OOM, error, exited, output)
    if exited.status == 0:
        result = {"exit_code": 0, "cpu_seconds": exited.cpu, "peak_bytes": exited.peak}
        path = str(output.path) if output.has_output else None
        return Done(encode_outcome({**result, "enforcer": exited.enforcer, "log": path, "log_lost": output.lost}))
    if exited.status < 0:
        return _failed(f"signal_{-exited.status}", f"it was ended by signal {-exited.status}", exited, output)
    return _failed(f"exit_{exited.status}", f"it ended with exit code {exited.status}", exited, output)


def _failed(reason: str, text: str, exited: ProcessExited, output: AttemptLog) -> Failed:
    text = text if output.lost is None else f"{text}\n{output.lost}"
    error = clean_text(f"{text}\n\n{output.tail().strip()}".rstrip())
    return Failed(error=error, reason=reason, exit_code=exited.status)
