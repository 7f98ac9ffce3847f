"""How many jobs a host gets done in a day, and how many are killed for memory, under four rules of admission.

The rules that Holdfast runs (domain/fleet/admission.py, domain/fleet/autoscaler.py) against the ±1 rule of the earlier system (every
60 s: one more while CPU is below 40 % and memory below 60 %, one less when either is above 80 %), against AIMD on the
number of slots, and against an oracle that knows every peak beforehand. The host is simulated: 61 GB, 32 cores; programs
grow to their peaks, and when memory is spent the kernel kills the largest. Every mix is drawn from a seed.

    python -m bench.autoscaler --seeds 5
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Callable, Sequence
from statistics import mean

from msgspec import Struct

from holdfast.domain.fleet.admission import (
    MAX_OVERTAKEN_S,
    Candidate,
    ExpectedMemory,
    MemoryRoom,
    Profile,
    RunningCommand,
    add_sample,
    choose,
    expected_memory,
    room,
)
from holdfast.domain.fleet.autoscaler import (
    Bounds,
    HostCondition,
    HostLoad,
    Relief,
    ReliefAction,
    RunningLoad,
    Slots,
    Strain,
    relieve,
    step,
    strain,
)
from holdfast.domain.jobs.job import JobId
from holdfast.domain.quantities import host_limit

GB = 10**9
TOTAL, CORES = 61 * GB, 32
SYSTEM = 3 * GB
DAY, TICK = 24 * 3600, 15
SLOTS = Bounds(1, 64)


class Sort(Struct, frozen=True):
    """A sort of program: its label, its peak and how that varies, how long it takes to grow and to run, its cores."""

    label: str
    peak: float
    spread: float
    ramp: float
    runs: float
    cores: float


class Job(Struct):
    """A program of the mix, and how far it has come."""

    id: JobId
    sort: Sort
    peak: int
    runs: float
    worked: float = 0.0
    frozen: float | None = None

    @property
    def resident(self) -> int:
        return int(self.peak * min(1.0, 0.1 + 0.9 * self.worked / (self.sort.ramp * self.runs)))


class Result(Struct, frozen=True):
    done: float
    killed: float
    evicted: float


def draw_mix(seed: int) -> tuple[list[Sort], Callable[[], Job]]:
    """Five sorts of programs, and an endless line of them."""
    chance = random.Random(seed)
    sorts = [
        Sort(
            f"sort-{n}",
            peak=chance.choice([2, 4, 8, 12, 16]) * GB * chance.uniform(0.7, 1.3),
            spread=chance.uniform(0.05, 0.3),
            ramp=chance.uniform(0.3, 0.9),
            runs=chance.uniform(10, 50) * 60,
            cores=chance.choice([0.5, 1.0, 1.0, 2.0]),
        )
        for n in range(5)
    ]
    count = iter(range(1, 10**9))

    def draw() -> Job:
        sort = chance.choice(sorts)
        peak = max(0.2 * sort.peak, chance.gauss(sort.peak, sort.spread * sort.peak))
        return Job(JobId(next(count)), sort, int(peak), sort.runs * chance.uniform(0.6, 1.4))

    return sorts, draw


class Simulation:
    """One host for a day, under one rule. The line never ends."""

    def __init__(self, rule: Rule, seed: int) -> None:
        _, self._draw = draw_mix(seed)
        self.rule = rule
        self.now = 0.0
        self.line = [self._draw() for _ in range(20)]
        self.running: list[Job] = []
        self.load = 0.0
        self.done = self.killed = self.evicted = 0

    def run(self) -> Result:
        while self.now < DAY:
            self._begin()
            self._work()
            self._kill()
            self.rule.watch(self)
            self.now += TICK
        return Result(self.done, self.killed, self.evicted)

    @property
    def used(self) -> int:
        return SYSTEM + sum(job.resident for job in self.running)

    @property
    def requested(self) -> float:
        """Processors that programs want now."""
        return sum(job.sort.cores for job in self.running if job.frozen is None)

    def host(self) -> HostLoad:
        pressure = 100 * max(0.0, 1 - CORES / self.requested) if self.requested else 0.0
        used = min(self.used, TOTAL)
        short = max(0.0, self.used - 0.97 * TOTAL) / TOTAL
        return HostLoad(TOTAL, used, CORES, self.load, cpu_pressure=pressure, memory_pressure=min(100.0, 1000 * short))

    def back(self, job: Job) -> None:
        """To the head of the line, from its beginning."""
        self.running.remove(job)
        job.worked, job.frozen = 0.0, None
        self.line.insert(0, job)

    def _begin(self) -> None:
        while (job := self.rule.next(self)) is not None:
            self.line.remove(job)
            self.running.append(job)
            self.line.append(self._draw())

    def _work(self) -> None:
        speed = min(1.0, CORES / self.requested) if self.requested else 1.0
        self.load += (self.requested - self.load) * min(1.0, TICK / 60)
        for job in list(self.running):
            if job.frozen is not None:
                job.frozen += TICK
                continue
            job.worked += TICK * speed
            if job.worked >= job.runs:
                self.running.remove(job)
                self.done += 1
                self.rule.finished(job)

    def _kill(self) -> None:
        while self.used > TOTAL:
            largest = max(self.running, key=lambda job: job.resident)
            self.killed += 1
            self.back(largest)


class Rule:
    """Who begins next; what is watched between."""

    name = ""

    def next(self, host: Simulation) -> Job | None:
        raise NotImplementedError

    def watch(self, host: Simulation) -> None:
        """Once a tick."""

    def finished(self, job: Job) -> None:
        """One is done."""


class PlusMinusOne(Rule):
    """The earlier system: a minute apart, one more or one less by present use."""

    name = "±1 rule"

    def __init__(self) -> None:
        self.slots = 1
        self._next_at = 60.0

    def next(self, host: Simulation) -> Job | None:
        return host.line[0] if len(host.running) < self.slots else None

    def watch(self, host: Simulation) -> None:
        if host.now < self._next_at:
            return
        self._next_at = host.now + 60
        cpu, memory = min(1.0, host.requested / CORES), host.used / TOTAL
        if cpu > 0.8 or memory > 0.8:
            self.slots = max(1, self.slots - 1)
        elif cpu < 0.4 and memory < 0.6:
            self.slots = min(SLOTS.most, self.slots + 1)


class Aimd(Rule):
    """One slot more every ten seconds, half of them when memory passes 80 %."""

    name = "AIMD on slots"

    def __init__(self) -> None:
        self.slots = 1.0

    def next(self, host: Simulation) -> Job | None:
        return host.line[0] if len(host.running) < int(self.slots) else None

    def watch(self, host: Simulation) -> None:
        short = host.used > 0.8 * TOTAL or host.requested > CORES
        self.slots = max(1.0, self.slots / 2) if short else min(SLOTS.most, self.slots + TICK / 60)


class Forecast(Rule):
    """Holdfast's own: the forecast by label, slots by how the host bears them, freezing and evicting under pressure."""

    name = "forecast (ours)"

    def __init__(self) -> None:
        self.slots = Slots(SLOTS.least, 0.0)
        self.limit = host_limit("80%", TOTAL)
        self.profiles: dict[str, Profile] = {}
        self.blocked: tuple[JobId, float] | None = None
        self.strain = Strain.EASY
        self.evicted_at = float("-inf")

    def next(self, host: Simulation) -> Job | None:
        if self.strain is not Strain.EASY or len(host.running) >= self.slots.count:
            return None
        return self._choose(host)

    def _choose(self, host: Simulation) -> Job | None:
        line = [Candidate(job.id, self._expected(job)) for job in host.line]
        running, free = self._standing(host)
        waited = {} if self.blocked is None else {self.blocked[0]: host.now - self.blocked[1]}
        choice = choose(line, running, free, waited=waited)
        head = next(iter(choice.refused), None)
        if head is None or self.blocked is None or self.blocked[0] != head:
            self.blocked = None if head is None else (head, host.now)
        chosen = choice.chosen
        return None if chosen is None else next(job for job in host.line if job.id == chosen.job_id)

    def _standing(self, host: Simulation) -> tuple[list[RunningCommand], MemoryRoom]:
        running = [RunningCommand(job.resident, self._expected(job)) for job in host.running]
        own = sum(job.resident for job in host.running)
        return running, room(self.limit, TOTAL, host.used, own=own)

    def _expected(self, job: Job) -> ExpectedMemory:
        profile = self.profiles.get(job.sort.label) or Profile(job.sort.label)
        return expected_memory(profile, cap=None, declared={}, limit=self.limit)

    def finished(self, job: Job) -> None:
        label = job.sort.label
        self.profiles[label] = add_sample(self.profiles.get(label) or Profile(label), job.resident)

    def watch(self, host: Simulation) -> None:
        facts = host.host()
        self.strain = strain(facts, self.limit)
        working = [RunningLoad(job.id, job.worked, frozen=job.frozen) for job in host.running]
        self._act(host, relieve(self.strain, working, since_eviction=host.now - self.evicted_at))
        requested = len(host.running) >= self.slots.count and self._choose(host) is not None
        self.slots, _ = step(self.slots, HostCondition(facts, requested=requested), SLOTS, host.now)

    def _act(self, host: Simulation, relief: Relief | None) -> None:
        if relief is None:
            return
        job = next(job for job in host.running if job.id == relief.job_id)
        match relief.action:
            case ReliefAction.FREEZE:
                job.frozen = 0.0
            case ReliefAction.THAW:
                job.frozen = None
            case ReliefAction.EVICT:
                self.evicted_at = host.now
                host.evicted += 1
                host.back(job)


class BoldForecast(Forecast):
    """The same on a host of which programs may take 95 %."""

    name = "ours, 95 % of host"

    def __init__(self) -> None:
        super().__init__()
        self.limit = host_limit("95%", TOTAL)


class Oracle(Rule):
    """Knows every peak: begins whoever fits at everybody's peak, and wastes nothing. Its head is overtaken as ours is."""

    name = "oracle"

    def __init__(self) -> None:
        self._head: tuple[JobId, float] | None = None

    def next(self, host: Simulation) -> Job | None:
        head = host.line[0]
        if self._head is None or self._head[0] != head.id:
            self._head = (head.id, host.now)
        taken = SYSTEM + sum(job.peak for job in host.running)
        for job in host.line[:1] if host.now - self._head[1] >= MAX_OVERTAKEN_S else host.line:
            if taken + job.peak <= TOTAL and host.requested + job.sort.cores <= CORES:
                return job
        return None


RULES: tuple[type[Rule], ...] = (PlusMinusOne, Aimd, Forecast, BoldForecast, Oracle)


def compare(seeds: Sequence[int]) -> dict[str, Result]:
    """The mean over all mixes, by rule."""
    found: dict[str, Result] = {}
    for rule in RULES:
        results = [Simulation(rule(), seed).run() for seed in seeds]
        means = (mean(getattr(result, name) for result in results) for name in ("done", "killed", "evicted"))
        found[rule.name] = Result(*means)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5, help="How many mixes. [5]")
    asked = parser.parse_args()
    print(f"A simulated day, 61 GB and 32 cores, mean of {asked.seeds} mixes:")
    print(f"{'rule':20} {'done':>8} {'OOM kills':>10} {'evicted':>8}")
    for name, result in compare(range(asked.seeds)).items():
        print(f"{name:20} {result.done:8.0f} {result.killed:10.1f} {result.evicted:8.1f}")


if __name__ == "__main__":
    main()
