"""Work of every sort, all at once: jobs, children, needs, keys, batches, schedules, programs, pauses."""

from __future__ import annotations

import itertools
import json
import random
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from holdfast.domain.batches.batch import BatchId, sharding_of
from holdfast.domain.commands.command import COMMAND, Command
from holdfast.domain.jobs.new_job import NewJob
from holdfast.domain.jobs.retry_curve import Curve
from holdfast.domain.jobs.selector import Selector
from holdfast.errors import BatchHeld, HoldfastError
from holdfast.worker.shortage import WorkerShortage
from tests.chaos import audit, kinds
from tests.chaos.history import Phase, Recorder

PROGRAM = Path(__file__).with_name("program.sh")
#: After a pause was answered, claims that were under way have ended within so many seconds.
SETTLED = 2.0
#: Live jobs beyond which a client waits.
BACKLOG = 400
#: Batches that are not over beyond which no more are submitted.
MOST_BATCHES = 40
#: States of batches that are not over.
UNFINISHED = "('ready', 'running', 'paused', 'stopped')"
#: Seconds between two batches in the foreground.
BREATH = 0.5
#: Exit codes of batches that have come to their end: done, failed, partial.
OVER = (0, 1, 6)


class Client:
    """Asks for work, again and again, and tells the history what it was answered.

    *heavy* load starts processes: programs, and handlers in children.
    """

    def __init__(
        self, recorder: Recorder, database: audit.Database, seed: int, *, every: float, longest: float, heavy: bool
    ) -> None:
        self._recorder = recorder
        self._database = database
        self._random = random.Random(seed)
        self._every = every
        self._longest = longest
        self._names = itertools.count(1)
        self._submitted: dict[str, str] = {}
        self._recent: list[int] = []
        self._end = threading.Event()
        self._threads = [threading.Thread(target=self._work, daemon=True)]
        self._threads.append(threading.Thread(target=self._be_moody, daemon=True))
        light: dict[Callable[[], None], float] = {
            self._plain: 50,
            self._keyed: 10,
            self._needing: 6,
            self._many: 2,
            self._cancel: 2,
            self._batch: 0.6,
        }
        self._loads = {**light, self._program: 3, self._apart: 2} if heavy else light
        self.asked = 0

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._end.set()
        for thread in self._threads:
            thread.join(120)

    def submit_rest(self) -> bool:
        """Submit again the batches whose submission got no answer; whether the workers have all of them now."""
        for name, kind in list(self._submitted.items()):
            self._submit(name, kind)
        return not self._submitted

    # -- jobs ------------------------------------------------------------------------------------

    def _work(self) -> None:
        loads, weights = list(self._loads), list(self._loads.values())
        while not self._end.wait(self._random.expovariate(1 / self._every)):
            if self.asked % 50 == 49 and self._too_much():
                continue
            (load,) = self._random.choices(loads, weights)
            self.asked += 1
            with suppress(HoldfastError):  # told in the history
                load()

    def _too_much(self) -> bool:
        """Whether the workers are so far behind that new work would only lengthen the wait at the end."""
        with suppress(Exception):  # the store may be away
            return self._database.execute("SELECT count(*) FROM holdfast.live")[0][0] > BACKLOG
        return False

    def _name(self) -> str:
        return f"{self._recorder.process}-{next(self._names)}"

    def _enqueue(
        self, kind: str, payload: dict[str, Any], *, facts: dict[str, Any] | None = None, **options: Any
    ) -> None:
        with self._recorder.asking("enqueue", kind=kind, **payload, **(facts or {})) as answer:
            ref = kinds.app.enqueue(kind, payload, **options)
            answer.update(id=ref.id, created=ref.created)
        self._recent = [*self._recent[-20:], ref.id]

    def _plain(self) -> None:
        kind = self._random.choice(
            ["quick", "slow", "slow", "slow", "flaky", "parent", "no_prefetch", "narrow", "moody", "aside"]
        )
        payload: dict[str, Any] = {"name": self._name()}
        if kind == "slow":
            payload["seconds"] = round(self._random.uniform(0.01, self._longest), 3)
        if kind == "flaky":
            payload["fails"] = self._random.randrange(3)
        self._enqueue(kind, payload, priority=self._random.randrange(3))

    def _apart(self) -> None:
        self._enqueue("apart", {"name": self._name()})

    def enqueue(self, kind: str, *, priority: int = 0, **payload: Any) -> None:
        """One job of any kind, with a name of its own."""
        self._enqueue(kind, {"name": self._name(), **payload}, priority=priority)

    def enqueue_version(self, version: int) -> None:
        """A job as one version of an application writes it."""
        name = self._name()
        payload = {"name": name, **({"size": 7} if version == 1 else {"colour": "red"})}
        retry = Curve(steps=(0.0,)).dumps()
        request = NewJob(
            kind="deployed", kind_version=version, payload=json.dumps(payload), max_attempts=None, retry=retry
        )
        with self._recorder.asking("enqueue", name=name, kind="deployed") as answer:
            made = kinds.app.store.jobs.enqueue(request)
            answer.update(id=made.id, created=made.created)

    def hungry(self) -> None:
        """A job that is killed for the memory that it takes."""
        self._enqueue("hungry", {"name": self._name()})

    def _keyed(self) -> None:
        key = f"key-{self._random.randrange(5)}"
        self._enqueue("slow", {"name": self._name(), "seconds": 0.05}, facts={"key": key}, key=key)

    def _needing(self) -> None:
        if self._recent:
            dependencies = self._random.sample(self._recent, min(2, len(self._recent)))
            self._enqueue("quick", {"name": self._name()}, after=dependencies)

    def _cancel(self) -> None:
        """A job that may be ready, run, or be over."""
        if self._recent:
            job_id = self._random.choice(self._recent[-5:])
            with self._recorder.asking("cancel", job=job_id):
                kinds.app.control.cancel(Selector(ids=(job_id,)), actor="client")

    def _many(self) -> None:
        """Twenty in one transaction: all of them, or none."""
        names = [self._name() for _ in range(20)]
        numbers = [self._recorder.tell("enqueue", Phase.INVOKE, kind="quick", name=name) for name in names]
        try:
            refs = kinds.quick.options(priority=1).enqueue_many([{"name": name} for name in names])
        except HoldfastError as error:
            for number in numbers:
                self._recorder.tell("enqueue", Phase.UNKNOWN, number, error=str(error))
            raise
        for number, ref in zip(numbers, refs, strict=True):
            self._recorder.tell("enqueue", Phase.OK, number, id=ref.id, created=ref.created)

    def _program(self) -> None:
        self.add_program()

    def add_program(self, *, queue: str = "default", until: str = "") -> None:
        """*until*: the name of the file that ends it, in the folder of the history."""
        name = self._name()
        words = (str(PROGRAM), name, str(kinds.folder()), until)
        command = Command(argv=words, cwd="/", env={"CHAOS_NAME": name, "PATH": "/usr/bin:/bin"})
        request = NewJob(
            kind=COMMAND,
            queue=queue,
            payload=command.dumps(),
            max_attempts=None,
            max_crashes=None,
            retry=Curve(steps=(0.0,)).dumps(),
        )
        with self._recorder.asking("enqueue", name=name, kind=COMMAND) as answer:
            made = kinds.app.store.jobs.enqueue(request)
            answer.update(id=made.id, created=made.created)

    # -- batches -----------------------------------------------------------------------------------

    def submit_batch(self) -> None:
        """A batch for the workers, unless they are far behind or many batches are open."""
        if not self._too_much() and not self._too_many_batches():
            self._batch()

    def _too_many_batches(self) -> bool:
        unfinished = f"SELECT count(*) FROM holdfast.batch WHERE state IN {UNFINISHED}"
        return self._database.execute(unfinished)[0][0] > MOST_BATCHES

    def _batch(self) -> None:
        name, kind = self._name(), self._random.choice(["count", "count_tx"])
        self._submitted[name] = kind
        batch = self._submit(name, kind)
        if batch is not None and self._random.random() < 0.15:
            self._end.wait(self._random.uniform(0, 0.3))
            with self._recorder.asking("cancel", batch=batch):
                kinds.app.store.batches.cancel(batch)

    def _submit(self, name: str, kind: str) -> BatchId | None:
        """Hand a batch over to the workers; answers which it is, if this call was the one that did."""
        unit = kinds.count if kind == "count" else kinds.count_tx
        try:
            with self._recorder.asking("submit", name=name) as answer:
                batch = kinds.app.submit(unit.bind(run=name), range(30), shards=2)
                answer.update(id=batch.id)
        except BatchHeld as held:
            # By the workers, or by our own call that failed halfway: then it is free when that lease has lapsed.
            if sharding_of(kinds.app.store.batches.get(held.context["batch_id"])) is None:
                return None
            batch = None
        del self._submitted[name]
        return None if batch is None else batch.id

    # -- pauses --------------------------------------------------------------------------------------

    def _be_moody(self) -> None:
        while not self._end.wait(self._random.uniform(1, 4)):
            with suppress(HoldfastError, OSError, Exception):
                kinds.app.queues.pause(kinds.MOODY)
                self._end.wait(SETTLED if self._database.name != "sqlite" else 0)
                seq = audit.newest_move(self._database)
                self._recorder.tell("pause", queue=kinds.MOODY, seq=seq)
                self._end.wait(1)
                self._recorder.tell("resume", Phase.INVOKE, queue=kinds.MOODY, seq=audit.newest_move(self._database))
                kinds.app.queues.resume(kinds.MOODY)


def drive(pipe: Any, url: str, folder: str, names: list[str]) -> None:
    """What a foreground process does: one batch after the other, each until it is done; after *names* new ones.

    It tells each one's name when it begins, and that it is over.
    """
    kinds.prepare(url, folder, "driver")
    for name in itertools.chain(names, (f"{names[-1]}+{n}" for n in itertools.count(1))):
        pipe.send((name, False))
        while not (over := run_to_its_end(name)) and not pipe.poll():
            kinds.NEVER.wait(0.1)
        pipe.send((name, over))
        if pipe.poll(BREATH):
            return


def run_to_its_end(name: str) -> bool:
    """Run a batch here, or go on with it; whether it is over. Its name says in which form, and whether in ``tx`` mode."""
    # A run ends with a shortage when its children are killed for ten seconds while they start.
    with suppress(HoldfastError, WorkerShortage), kinds.recorder().asking("batch", name=name) as answer:
        batch_id, exit_code = _run_session(name) if name.startswith("session") else _run_units(name)
        answer.update(id=batch_id, exit_code=exit_code)
        return exit_code in OVER
    return False


def _run_units(name: str) -> tuple[BatchId, int]:
    threads, children = (kinds.count_tx, kinds.count_tx_apart) if " tx " in name else (kinds.count, kinds.count_apart)
    unit = children if name.startswith("process") else threads
    result = kinds.app.run(unit.bind(run=name), range(40), jobs=2, output="none")
    if result.batch is None:
        result.check()
    assert result.batch is not None
    return result.batch.id, result.exit_code


def _run_session(name: str) -> tuple[BatchId, int | None]:
    with kinds.app.session(name, output="none") as session:
        for key in session.pending(range(40)):
            with session.unit(key) as unit:
                kinds.make(key, name, unit, tx=" tx " in name)
    return session._opened.batch.id, session.exit_code
