"""A world to be struck: real workers on a store, work of every sort, and at the end a verdict."""

from __future__ import annotations

import itertools
import logging
import multiprocessing
import os
import random
import shutil
import tempfile
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import psutil

from holdfast import Selector, State
from holdfast.domain.fleet.autoscaler import Bounds
from holdfast.errors import HoldfastError
from tests.chaos import audit, kinds, loads
from tests.chaos.checker import Violation, check
from tests.chaos.facts import Batch, Facts
from tests.chaos.history import History, Op, read
from tests.chaos.sites import Site, stepped_store
from tests.support.processes import Child, gone

#: What every worker loads when it begins: the clean process that they are forked from has it already.
NEEDED = (
    *(
        "holdfast.client.batches.local",
        "holdfast.client.batches.remote",
        "holdfast.client.schedules.api",
        "holdfast.worker.schedules.ping",
        "holdfast.worker.worker",
    ),
    *(
        "holdfast.worker.commands.executor",
        "holdfast.worker.executors.processes",
    ),
)
#: After it is healed, a world comes to rest within so many seconds, on a slow machine too.
PATIENCE = float(os.environ.get("HOLDFAST_PATIENCE", "300"))
#: The forms of batches in the foreground.
FORMS = ("here", "session", "process")
#: Batches in the foreground that are not over beyond which no new one is begun, until all but a few are over.
MOST_BEGUN, FEW_BEGUN = 20, 5
OPEN = (State.READY, State.RUNNING, State.SCHEDULED, State.WAITING)
#: What no worker could read is held until one can.
UNREAD = Selector(states=(State.HELD,), kinds=("deployed",))


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """How large a world is. *every*: seconds between two requests of its client; *longest*: those of its longest job."""

    workers: int = 4
    slots: int = 4
    every: float = 0.03
    longest: float = 0.5
    heavy: bool = True
    drivers: bool = True
    stepped: bool = False
    #: No nemesis ends a worker: all must stay alive, and their slots useful.
    steady: bool = False
    #: Workers serve an autoscaled queue, over narrow sockets to their supervisors.
    measured: bool = False
    #: Workers run different versions of the application.
    rolling: bool = False


@dataclass(slots=True)
class Verdict:
    """What came of a world: what was broken, and how much was done."""

    violations: list[Violation]
    figures: dict[str, int] = field(default_factory=dict)


def work(pipe: Any, url: str, folder: str, shape: Shape, version: int | None) -> None:
    """What a worker process does."""
    os.chdir(folder)  # far from any file of settings
    multiprocessing.current_process()._config["daemon"] = False  # its handlers may have children
    kinds.prepare(url, folder, "worker")
    if version is not None:
        kinds.register_version(version)
    logging.basicConfig(filename=Path(folder) / "workers.log", level=logging.WARNING)
    kinds.shorten_commands()
    if shape.measured:
        kinds.narrow_sockets()
    if shape.stepped and url.startswith("sqlite"):
        kinds.app.use(url, stepped_store(url))
    queues = ["default", kinds.NARROW, kinds.MOODY, *([kinds.MEASURED] if shape.measured else [])]
    options = {"slots": shape.slots, "poll": 0.2, "heartbeat": kinds.LEASE / 5, "grace": 5}
    worker = kinds.app.worker(commands=True, queues=queues, **options)
    pipe.send(worker.id)
    threading.Thread(target=_tell_ready, args=(worker,), daemon=True).start()
    worker.run()
    kinds.app.close()


def _tell_ready(worker: Any) -> None:
    """Tell the history again and again whether the worker calls itself ready."""
    while not kinds.NEVER.wait(0.5):
        kinds.recorder().tell("ready", worker=worker.id, ready=worker.ready)


class World:
    """Starts everything on entry; :meth:`verdict` heals, waits until all is quiet, and checks."""

    def __init__(self, site: Site, *, seed: int, shape: Shape | None = None) -> None:
        self.site = site
        self.random = random.Random(seed)
        self.shape = shape or Shape()
        self.folder = Path(tempfile.mkdtemp(prefix="holdfast-chaos-"))
        self.workers: list[Child] = []
        self.driver: Child | None = None
        self.samples: list[Batch] = []
        #: The versions of the application that new workers may have.
        self.versions = [1, 2]
        #: Workers of a steady world that ended nevertheless.
        self.fallen: list[str] = []
        #: Programs that ran on after the lease of their stopped worker.
        self.outliving: list[str] = []
        #: Keep the history and a copy of the store, for somebody to look at.
        self.kept = False
        #: Whether so many batches in the foreground are not over that none is begun.
        self.behind = False
        self._begun = itertools.count()
        #: Batches in the foreground that are not over; the newest run is that of the last.
        self._driving: list[str] = []
        self._seed = seed
        self._finished = threading.Event()
        self._witness = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> Self:
        kinds.prepare(self.site.url, str(self.folder), "client")
        assert kinds.app.store  # its tables are there
        if self.shape.stepped:
            self.site.set_clock(0)
            if self.site.name == "sqlite":
                kinds.app.use(self.site.url, stepped_store(self.site.url))
        kinds.app.queues.set_limits(kinds.NARROW, limit=kinds.LIMIT)
        if self.shape.measured:
            kinds.app.store.autoscaler.set_bounds(kinds.MEASURED, Bounds(2, 2))
        audit.install(self.site)
        run_times = {"every": self.shape.every, "longest": self.shape.longest, "heavy": self.shape.heavy}
        self.client = loads.Client(kinds.recorder(), self.site, self._seed, **run_times)
        self.workers = [self._start_worker() for _ in range(self.shape.workers)]
        self.tend()
        self.client.start()
        self._witness.start()
        return self

    def __exit__(self, kind: object, error: BaseException | None, _: object) -> None:
        self.client.stop()
        self._finished.set()
        self._witness.join(60)
        for process in self._processes():
            process.resume()
            process.kill()
            process.end()
        kinds.forget()
        if error is not None:
            self.kept = True
            error.add_note(f"the history and the store are in {self.folder}")
        with suppress(Exception):
            if self.kept:
                self.site.keep(self.folder)
        with suppress(Exception):
            audit.remove(self.site)
        if not self.kept:
            shutil.rmtree(self.folder, ignore_errors=True)

    # -- while it goes on --------------------------------------------------------------------------

    def tend(self) -> None:
        """Put new processes in the place of dead ones."""
        for place, worker in enumerate(self.workers):
            if not worker.alive:
                if self.shape.steady and not self._finished.is_set():
                    self.fallen.append(f"worker process {worker.pid}")
                worker.end()
                self.workers[place] = self._start_worker()
        if self.shape.drivers:
            is_dead, was_behind = self.driver is None or not self.driver.alive, self.behind
            self._hear_driver()  # all that it told before it died
            if is_dead or (self.behind and not was_behind):
                self._start_driver()

    def rest(self, seconds: float) -> None:
        """Let them work."""
        kinds.NEVER.wait(seconds)

    def _start_worker(self) -> Child:
        version = self.random.choice(self.versions) if self.shape.rolling else None
        return Child(work, self.site.url, str(self.folder), self.shape, version)

    def _start_driver(self) -> None:
        """Goes on with the batch of its form at which the last one was killed, or with all when there are many."""
        if self.driver is not None:
            self.driver.kill()
            self._hear_driver()
            self.driver.end()
        form = self.random.choice(FORMS)
        names = self._driving if self.behind else [name for name in self._driving if name.startswith(form)][-1:]
        if not names or (not self.behind and self.random.random() < 0.2):
            names = [f"{form} {self.random.choice(['', 'tx '])}batch {next(self._begun)}"]
        self.driver = Child(loads.drive, self.site.url, str(self.folder), names)

    def driver_began(self) -> bool:
        """Whether the driver, or a child of it, has begun a unit."""
        if self.driver is None or not self.driver.alive:
            return False
        files = (file for pid in (self.driver.pid, *_tree(self.driver.pid)) for file in self.folder.glob(f"*-{pid}-*"))
        return any(b'["unit"' in file.read_bytes() for file in files)

    def _hear_driver(self) -> None:
        """Follow which batches of the foreground are begun, and which are over."""
        with suppress(EOFError, OSError):
            while self.driver is not None and self.driver.says():
                name, over = self.driver.hear()
                self._driving = [each for each in self._driving if each != name] + ([] if over else [name])
        self.behind = len(self._driving) > (FEW_BEGUN if self.behind else MOST_BEGUN)

    def _look(self) -> None:
        """Count the units of all batches again and again, each time in one snapshot."""
        while not self._finished.wait(0.5):
            with suppress(Exception):  # the store may be away
                self.samples += [batch for batch in audit.read_batches(self.site) if batch.counters != _plain(batch)]

    def _processes(self) -> list[Child]:
        return [*self.workers, *([self.driver] if self.driver else [])]

    # -- at the end ----------------------------------------------------------------------------------

    def verdict(self) -> Verdict:
        """Let everything come to its end, and check. The nemeses must have healed what they did."""
        for process in self._processes():
            process.resume()
        self.client.stop()
        stuck = self._come_to_rest()
        self._finished.set()
        self._witness.join(60)
        pids = [pid for process in self._processes() for pid in _tree(process.pid)]
        for process in self._processes():
            process.kill()
        survivors = [*self.outliving, *self._survivors(pids)]
        facts = audit.read_facts(
            self.site,
            tx_kinds=kinds.TX_KINDS,
            stuck=stuck,
            survivors=survivors,
            samples=self.samples,
            stepped=self.shape.stepped,
            slots=self.shape.workers * self.shape.slots if self.shape.steady else None,
            fallen=self.fallen,
        )
        ops = read(self.folder)
        return Verdict(check(ops, facts), _figures(ops, facts))

    def _come_to_rest(self) -> dict[int | str, str]:
        """Wait until everything has ended; what has not by then is stuck."""
        until = time.monotonic() + PATIENCE
        _again(until, self.client.submit_rest)
        _again(until, lambda: kinds.app.queues.resume(kinds.MOODY) or True)
        _again(until, lambda: kinds.app.schedules.pause(kinds.SCHEDULE))
        self._end_driver()
        for name in self._unfinished():
            _again(until, lambda name=name: loads.run_to_its_end(name))
        _again(until, self._is_quiet)
        return self._stuck()

    def _unfinished(self) -> list[str]:
        """Batches of the foreground that were begun, and whose last run did not say that they are over."""
        last = {op.facts["name"]: op for op in History(read(self.folder)).asked("batch")}
        over = {name for name, op in last.items() if op.facts.get("exit_code") in loads.OVER}
        return [name for name in dict.fromkeys(self._driving) if name not in over]

    def _end_driver(self) -> None:
        if self.driver is not None:
            self.driver.kill()
            self._hear_driver()

    def _is_quiet(self) -> bool:
        self.tend_workers()
        counted = (kinds.app.views.count(each, cap=1).count for each in (Selector(states=OPEN), UNREAD))
        return not any(counted) and not self._open_batches()

    def tend_workers(self) -> None:
        self.shape = Shape(**{**_fields(self.shape), "drivers": False})
        self.tend()

    def _open_batches(self) -> list[tuple[int, str]]:
        return self.site.execute(f"SELECT id, state FROM holdfast.batch WHERE state IN {loads.UNFINISHED}")

    def _stuck(self) -> dict[int | str, str]:
        found: dict[int | str, str] = {f"batch {number}": f"it is {state}" for number, state in self._open_batches()}
        left = [job for each in (Selector(states=OPEN), UNREAD) for job in kinds.app.views.page(each, limit=20).jobs]
        for job in left:
            reasons = [str(reason) for reason in kinds.app.views.why(job.id)]
            found[job.id] = f"{job.kind} is {job.state}, {job.note or ''} {reasons}"
        return found

    def _survivors(self, pids: list[int]) -> list[str]:
        """What the workers had started must be gone soon after they are; the supervisors see to it."""
        until = time.monotonic() + 60
        while (left := [pid for pid in pids if not gone(pid)]) and time.monotonic() < until:
            kinds.NEVER.wait(0.05)
        return [f"process {pid}: {' '.join(psutil.Process(pid).cmdline())}" for pid in left if not gone(pid)]


def _again(until: float, ask: Any) -> None:
    """Ask until it is so; the store may still be on its way back."""
    while time.monotonic() < until:
        with suppress(HoldfastError):
            if ask():
                return
        kinds.NEVER.wait(0.1)


def _tree(pid: int) -> list[int]:
    try:
        return [child.pid for child in psutil.Process(pid).children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def _plain(batch: Batch) -> dict[str, int]:
    return {name: batch.recount.get(name, 0) for name in batch.counters}


def _fields(shape: Shape) -> dict[str, Any]:
    return {name: getattr(shape, name) for name in shape.__slots__}


def _figures(ops: list[Op], facts: Facts) -> dict[str, int]:
    """How much was done, for the table."""
    tokens: dict[int, int] = {}
    raised = 0
    for move in facts.moves:
        raised += move.old == "running" and move.token > tokens.get(move.job, 0)
        tokens[move.job] = move.token
    return {
        "jobs": len(facts.jobs),
        "units": len(facts.units),
        "plans": len(facts.fired),
        "runs": sum(op.name == "run" and op.phase == "invoke" for op in ops),
        "taken over": raised,
        "unknown": sum(op.phase == "unknown" for op in ops),
        "dead": sum(job.state == "dead" for job in facts.jobs.values()),
    }
