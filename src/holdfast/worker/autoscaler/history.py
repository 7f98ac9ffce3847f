"""What programs take, as this worker knows it: read from the store now and then, and told to it."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec import Struct

from holdfast.domain.commands.command import COMMAND
from holdfast.domain.fleet.admission import Profile
from holdfast.domain.jobs.job import JobId, State
from holdfast.domain.jobs.selector import Selector
from holdfast.errors import StoreUnavailable
from holdfast.store.fleet.autoscaler import AutoscalerStore, ReadyCommand
from holdfast.store.jobs.queries import JobQueries
from holdfast.worker import clock
from holdfast.worker.autoscaler.queue import name_of

#: What is known is read again after so many seconds: other hosts learn too.
FRESH = 5.0
#: So many earlier runs of a label are looked at, when none was measured for its profile.
EARLIER = 20


class _Result(Struct):
    peak_bytes: int | None = None


class MemoryHistory:
    """Profiles by name. What was measured is written by :meth:`flush`; any thread may tell."""

    def __init__(self, scaling: AutoscalerStore, views: JobQueries) -> None:
        self._autoscaler = scaling
        self._views = views
        self._known: dict[str, tuple[float, Profile]] = {}
        self._asked: set[str] = set()
        self._peaks: list[tuple[str, int]] = []

    def of(self, line: Sequence[ReadyCommand]) -> dict[JobId, Profile]:
        """The profile of each program in line."""
        names = {each.job_id: name_of(each) for each in line}
        now = clock.now()
        known = {name: found for name, found in self._known.items() if now - found[0] < FRESH}
        missing = sorted(set(names.values()) - known.keys())
        for name, profile in self._read(missing).items():
            known[name] = (now, profile)
        self._known = known
        return {job_id: known[name][1] for job_id, name in names.items()}

    def measured(self, name: str, peak: int) -> None:
        self._peaks.append((name, peak))

    def flush(self) -> None:
        """Write what was measured, and forget what was read before it."""
        peaks, self._peaks = self._peaks, []
        if peaks:
            try:
                self._autoscaler.learn(peaks)
            except StoreUnavailable:
                self._peaks = peaks + self._peaks
                raise
            told = {name for name, _ in peaks}
            self._known = {name: found for name, found in self._known.items() if name not in told}

    def _read(self, names: Sequence[str]) -> dict[str, Profile]:
        found = self._autoscaler.profiles(names)
        unknown = [name for name, profile in found.items() if not profile.samples and name not in self._asked]
        self._asked.update(unknown)
        peaks = [(name, peak) for name in unknown for peak in self._earlier(name)]
        if not peaks:
            return found
        self._autoscaler.learn(peaks)
        return self._autoscaler.profiles(names)

    def _earlier(self, label: str) -> list[int]:
        """What earlier programs of this label took, before the queue was scaled, where a cap had them measured."""
        if "*" in label:
            return []
        done = Selector(labels=(label,), kinds=(COMMAND,), states=(State.DONE,))
        peaks = [_peak(job.result) for job in self._views.page(done, limit=EARLIER).jobs]
        return [peak for peak in reversed(peaks) if peak]


def _peak(result: str | None) -> int | None:
    try:
        return None if result is None else msgspec.json.decode(result, type=_Result).peak_bytes
    except msgspec.DecodeError:
        return None  # a result that was too large to be kept
