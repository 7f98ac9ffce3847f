"""Permanent failures in random patterns, with limits, breakers, kills and signals, over all four forms of a batch.

One history is one batch, repeated by real processes until every unit was begun. A run that nobody stopped must begin a
unit that no run had begun, if there is one (I19), and at every look the counters must equal a recount (I6).
"""

from __future__ import annotations

import json
import random
import signal
import time
from typing import Any

from holdfast.domain.batches.batch import Batch
from tests.chaos import kinds
from tests.chaos.nemeses import Nemesis
from tests.chaos.standing import Broken
from tests.chaos.world import World
from tests.support.processes import Child

FORMS = ("here", "session", "workers", "process")
#: Exit codes of runs that nobody stopped from outside.
UNDISTURBED = (0, 1, 6, 8)
OVER = (0, 1, 6)
#: Runs of one history that may be disturbed; later ones are left alone.
DISTURBED = 12
MOST_RUNS = 60


def repeat(pipe: Any, url: str, folder: str, name: str, form: str, plan: dict[str, Any]) -> None:
    """One run of the command, in a process of its own; tells its exit code."""
    kinds.prepare(url, folder, "scattered")
    keys, options = range(plan["size"]), plan["options"]
    if form == "session":
        pipe.send(_session(name, plan["bad"], keys, options))
        return
    unit = kinds.scattered_apart if form == "process" else kinds.scattered
    where = {"where": "workers", "shards": 2, "allow_concurrent": True} if form == "workers" else {"jobs": 2}
    result = kinds.app.run(unit.bind(run=name, bad=plan["bad"]), keys, output="none", **where, **options)
    pipe.send(result.exit_code)


def _session(name: str, bad: list[int], keys: range, options: dict[str, Any]) -> int | None:
    with kinds.app.session(name, output="none", **options) as session:
        for key in session.pending(keys):
            with session.unit(key) as unit:
                kinds.fail_if_bad(key, name, bad, unit)
    return session.exit_code


class Scattered(Nemesis):
    """Each strike is a whole history."""

    unit = "histories"
    every = 0.1
    shape = {"workers": 2, "slots": 4, "heavy": False, "drivers": False, "every": 1.0}  # noqa: RUF012 - read only

    def __init__(self) -> None:
        self._number = 0

    def strike(self, world: World) -> int:
        self._number += 1
        luck = random.Random(world.random.random())
        history = _History(world, f"scattered {self._number}", luck)
        history.run()
        world.tend()
        return 1


class _History:
    """One batch from its first run to its end."""

    def __init__(self, world: World, name: str, luck: random.Random) -> None:
        self._world = world
        self._name = name
        self._luck = luck
        self._form = luck.choice(FORMS)
        self._size = luck.randrange(4, 25 if self._form != "process" else 10)
        share = luck.choice([0.0, 0.1, 0.5, 1.0])
        self._bad = [key for key in range(self._size) if luck.random() < share]
        self._max_failures = luck.randrange(1, 5)

    def run(self) -> None:
        for number in range(MOST_RUNS):
            before = self._untouched()
            code = self._run_once(disturbed=number < DISTURBED)
            self._check_counters()
            untouched = self._untouched()
            if code in UNDISTURBED and before and untouched >= before:
                raise Broken("I19", f"{self._about()}: a run with exit {code} began none of {before} untouched units")
            batch = self._batch()
            if not untouched and code in OVER and batch is not None and batch.state.finished:
                return
        raise Broken("I19", f"{self._about()}: {self._untouched()} units were not reached in {MOST_RUNS} runs")

    def _run_once(self, *, disturbed: bool) -> int | None:
        """One run; None: it was killed."""
        luck, options = self._luck, {"max_failures": self._max_failures}
        if disturbed and self._form != "workers" and luck.random() < 0.4:
            options["limit"] = luck.randrange(1, 6)
        plan = {"size": self._size, "bad": self._bad, "options": options}
        child = Child(repeat, self._world.site.url, str(self._world.folder), self._name, self._form, plan)
        try:
            if disturbed and luck.random() < 0.5:
                self._world.rest(luck.uniform(0.0, 0.8))
                if not child.says():
                    child.signal(luck.choice([signal.SIGTERM, signal.SIGKILL]))
            while child.alive and not child.says():
                self._check_counters()
                kinds.NEVER.wait(0.05)
            return self._answer(child)
        finally:
            child.end()
            self._world.tend()

    def _answer(self, child: Child) -> int | None:
        try:
            return child.hear() if child.says() else None
        except EOFError:
            return None

    def _batch(self) -> Batch | None:
        wanted = (self._name, self._form)
        for batch in kinds.app.store.batches.page(limit=5).batches:
            run = batch.kind if self._form == "session" else json.loads(batch.arguments).get("run")
            if run == wanted[0]:
                return batch
        return None

    def _untouched(self) -> int:
        batch = self._batch()
        if batch is None:
            return self._size
        units = kinds.app.store.batches.units(batch.id)
        return self._size - sum(unit.state != "pending" or unit.last_run > 0 for unit in units)

    def _check_counters(self) -> None:
        """Counters and rows are read one after the other: only a lasting difference counts."""
        batch = self._batch()
        until = time.monotonic() + 5
        while batch is not None and (wrong := self._miscounted(batch)):
            if time.monotonic() > until:
                raise Broken("I6", f"{self._about()}: {wrong}")
            kinds.NEVER.wait(0.05)

    def _miscounted(self, batch: Batch) -> str | None:
        counters, rows = kinds.app.store.batches.counters(batch.id), kinds.app.store.batches.recount(batch.id)
        names = ("done", "failed", "skipped", "cancelled", "in_doubt")
        wrong = {name: (getattr(counters, name), rows.get(name, 0)) for name in names}
        wrong = {name: pair for name, pair in wrong.items() if pair[0] != pair[1] or pair[0] < 0}
        return f"counters and rows differ: {wrong}" if wrong else None

    def _about(self) -> str:
        return f"{self._name} ({self._form}, {self._size} units, bad {self._bad}, max_failures {self._max_failures})"
