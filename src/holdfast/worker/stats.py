"""Statistics of a worker: counts since its start, and run-time estimates per kind."""

from __future__ import annotations

import logging
import threading
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Hashable, Sequence
from itertools import repeat

from holdfast.domain.batches.done_units import DoneUnits
from holdfast.domain.batches.unit import MAX_LABELS, UnitOutcome, UnitState
from holdfast.domain.jobs.job import COMMAND, Lease

log = logging.getLogger("holdfast")

WAIT_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0, 3600.0)
UNIT_BUCKETS = (0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0)
PLANNER_BUCKETS = (0.001, 0.005, 0.025, 0.1, 0.5, 1.0, 5.0, 30.0)
RUN_BUCKETS = (0.001, 0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0)

#: Claimed-ahead jobs should keep the slots busy for this long, and for the second value at most if all of them are of
#: the slowest kind.
AHEAD_S, MAX_AHEAD_S = 0.1, 0.4
#: A kind whose runs take longer than this is never claimed ahead.
SHORT_RUN_S = 0.05
#: Commands that are claimed ahead for each slot, at most: those of a killed worker wait until their leases expire.
COMMANDS_AHEAD = 8
#: When this many kinds are known and all of them are short, a new one is taken to be short too. After a claim with jobs
#: of new kinds, this many are claimed ahead for each slot and known kind: the more are short, the fewer will be long.
ENOUGH_KINDS, AHEAD_OF_NEW = 8, 4
MAX_AHEAD = 2000
#: Payloads of claimed-ahead jobs should take no more memory than this.
AHEAD_BYTES = 1024 * 1024

#: What metrics count by name: pairs of queue and kind, functions of units, and labels of each function. All of these
#: come from data: without a limit they grow for as long as a worker runs, and every scrape with them.
MAX_LANES, MAX_FUNCTIONS = 500, 500
#: Under this name metrics count the others.
OTHER = "other"

#: The result of units whose results went to an inbox.
HANDED_OVER = "handed_over"


class Histogram:
    """Counts of values by bucket, for each combination of labels."""

    def __init__(self, buckets: Sequence[float]) -> None:
        self.buckets = tuple(buckets)
        self.counts: dict[tuple[str, ...], list[int]] = {}
        self.sums: Counter[tuple[str, ...]] = Counter()

    def add(self, labels: tuple[str, ...], values: Sequence[float]) -> None:
        if not values:
            return
        counts = self.counts.get(labels) or self.counts.setdefault(labels, [0] * (len(self.buckets) + 1))
        ordered, below = sorted(values), 0
        last = bisect_left(self.buckets, ordered[-1])
        # A search for each bucket takes less time than one for each value; most groups lie in one bucket.
        for place in range(bisect_left(self.buckets, ordered[0]), last):
            end = bisect_right(ordered, self.buckets[place], below)
            counts[place] += end - below
            below = end
        counts[last] += len(ordered) - below
        self.sums[labels] += sum(values)  # type: ignore[assignment]


class KnownNames:
    """The first names that a worker meets, up to *most* of them. Every other name counts as ``other``."""

    def __init__(self, most: int, *, named: str) -> None:
        self._known: set[Hashable] = set()
        self._most = most
        self._named = named
        self._is_full = False

    def has(self, name: Hashable) -> bool:
        """Whether *name* is one of them, or becomes one now."""
        if name in self._known:
            return True
        if len(self._known) < self._most:
            self._known.add(name)
            return True
        if not self._is_full:
            self._is_full = True
            log.warning("metrics count %d %s by name, and all others as %r", self._most, self._named, OTHER)
        return False


class Stats:
    """The counts of one worker. One thread writes each count, or a lock protects it."""

    def __init__(self) -> None:
        self.ticks: Counter[tuple[str, str]] = Counter()
        self.completed: Counter[tuple[str, str, str]] = Counter()
        #: Rows that maintenance has changed, by table.
        self.maintained: Counter[str] = Counter()
        self.enqueued = 0
        self.lost = 0
        self.refused = 0
        self.waits = Histogram(WAIT_BUCKETS)
        self.runs = Histogram(RUN_BUCKETS)
        self.units: Counter[tuple[str, str]] = Counter()
        self.unit_labels: Counter[tuple[str, str]] = Counter()
        self.unit_runs = Histogram(UNIT_BUCKETS)
        self.plans: Counter[str] = Counter()
        self.missed: Counter[str] = Counter()
        self.set_back = 0
        #: Calls of scope providers that have not returned, by whether the planner still waits for them.
        self.scope_calls: dict[str, int] = {}
        self.planner = Histogram(PLANNER_BUCKETS)
        self._units_lock = threading.Lock()
        self._lanes = KnownNames(MAX_LANES, named="pairs of queue and kind")
        self._functions = KnownNames(MAX_FUNCTIONS, named="functions of units")
        #: The labels of each function.
        self._labels: dict[str, KnownNames] = {}

    def ticked(self, service: str, result: str) -> None:
        self.ticks[service, result] += 1

    def units_finished(self, kind: str, outcomes: Sequence[UnitOutcome]) -> None:
        """Count finished units; the threads of several shards may call it."""
        with self._units_lock:
            kind = kind if self._functions.has(kind) else OTHER
            if isinstance(outcomes, DoneUnits):
                self.units[kind, UnitState.DONE] += len(outcomes)
                self.unit_runs.add((kind,), [(each or 0) / 1000 for each in outcomes.durations_ms])
                return
            for outcome in outcomes:
                # A unit that handed its result over is finished by a consumer, which may be another process.
                self.units[kind, outcome.state if outcome.handed is None else HANDED_OVER] += 1
                if outcome.label is not None:
                    self.unit_labels[kind, self._label(kind, outcome.label)] += 1
            self.unit_runs.add((kind,), [each.duration_ms / 1000 for each in outcomes if each.duration_ms is not None])

    def lane(self, queue: str, kind: str) -> tuple[str, str]:
        """The queue and the kind under which to count a job. The caller holds the lock of the counts."""
        return (queue, kind) if self._lanes.has((queue, kind)) else (OTHER, OTHER)

    def _label(self, kind: str, label: str) -> str:
        """The label under which to count a unit of this function."""
        labels = self._labels.get(kind)
        if labels is None:
            self._labels[kind] = labels = KnownNames(MAX_LABELS, named=f"labels of the units of {kind!r}")
        return label if labels.has(label) else OTHER

    @property
    def results(self) -> dict[str, int]:
        results: Counter[str] = Counter()
        for (_, _, result), count in self.completed.items():
            results[result] += count
        return dict(results)


class RunTimes:
    """Moving means of run times and payload sizes per kind; a new kind is long, unless many others are short.

    Without a lock: it may miss one run of many.
    """

    def __init__(self) -> None:
        self._mean: dict[str, float] = {}
        self._bytes: dict[str, float] = {}
        self._long: set[str] = set()
        #: Whether jobs of new kinds, and commands, were in the last claim.
        self._claimed_new = self._claimed_commands = False
        #: Of the jobs of the last claims, whatever their kind.
        self._mean_of_claims: float | None = None

    def learn(self, kind: str, seconds: float) -> None:
        known = self._mean.get(kind)
        self._mean[kind] = mean = seconds if known is None else known + 0.1 * (seconds - known)
        (self._long.discard if mean < SHORT_RUN_S else self._long.add)(kind)

    def learn_claim(self, leases: Sequence[Lease]) -> None:
        """Learn how long the jobs of claims run, and their sizes: larger ones count at once, smaller ones in time."""
        sizes: dict[str, list[int]] = {}
        for lease in leases:
            sizes.setdefault(lease.kind, []).append(len(lease.payload))
        for kind, seen in sizes.items():
            mean, known = sum(seen) / len(seen), self._bytes.get(kind, 0.0)
            self._bytes[kind] = max(mean, known + 0.1 * (mean - known))
        self._claimed_new = any(kind not in self._mean for kind in sizes)
        self._claimed_commands = COMMAND in sizes
        known_kinds = [(len(seen), self._mean[kind]) for kind, seen in sizes.items() if kind in self._mean]
        if known_kinds:
            mean = sum(count * mean for count, mean in known_kinds) / sum(count for count, _ in known_kinds)
            before = self._mean_of_claims
            self._mean_of_claims = mean if before is None else before + 0.3 * (mean - before)

    def is_short(self, kind: str) -> bool:
        """Whether jobs of a kind may be claimed ahead. Commands may if there were some in the last claim: see ahead."""
        if kind == COMMAND and not self._claimed_commands:
            return False
        if kind in self._mean:
            return kind not in self._long
        return self._expects_short

    def ahead(self, kinds: list[str], slots: int) -> int:
        """Number of jobs to hold ahead of *slots*, by the run times of *kinds* and by their largest payloads."""
        if not kinds or slots <= 0:
            return 0
        slowest = max(1e-6, *map(self._mean.get, kinds, repeat(0.0)))
        usual = slowest if self._mean_of_claims is None else max(1e-6, min(slowest, self._mean_of_claims))
        largest = max(1.0, *map(self._bytes.get, kinds, repeat(0.0)))
        in_time = min(slots * AHEAD_S / usual, slots * MAX_AHEAD_S / slowest)
        most = MAX_AHEAD
        if self._claimed_new and self._expects_short:
            most = min(most, slots * AHEAD_OF_NEW * len(self._mean))
        if self._claimed_commands:
            most = min(most, slots * COMMANDS_AHEAD)
        return min(most, int(in_time), int(AHEAD_BYTES / largest))

    @property
    def _expects_short(self) -> bool:
        """Whether a new kind is taken to be short."""
        return len(self._mean) >= ENOUGH_KINDS and not self._long
