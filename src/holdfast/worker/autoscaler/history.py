"""The memory history of commands: profiles read from the store, and new peaks written to it."""

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

#: Profiles are read again after this time, since other hosts learn too.
MAX_AGE_S = 5.0
#: Number of finished runs of a label that are read when its profile is empty.
EARLIER_RUNS = 20


class _Result(Struct):
    peak_bytes: int | None = None


class MemoryHistory:
    """Profiles by name. Any thread may add a peak; :meth:`flush` writes them."""

    def __init__(self, store: AutoscalerStore, views: JobQueries) -> None:
        self._store = store
        self._views = views
        #: Profiles with the time of their reading.
        self._profiles: dict[str, tuple[float, Profile]] = {}
        #: Names whose earlier runs were read already.
        self._searched: set[str] = set()
        self._peaks: list[tuple[str, int]] = []

    def of(self, line: Sequence[ReadyCommand]) -> dict[JobId, Profile]:
        names = {command.job_id: name_of(command) for command in line}
        now = clock.now()
        profiles = {name: item for name, item in self._profiles.items() if now - item[0] < MAX_AGE_S}
        missing = sorted(set(names.values()) - profiles.keys())
        for name, profile in self._read(missing).items():
            profiles[name] = (now, profile)
        self._profiles = profiles
        return {job_id: profiles[name][1] for job_id, name in names.items()}

    def add_peak(self, name: str, peak: int) -> None:
        self._peaks.append((name, peak))

    def flush(self) -> None:
        """Write new peaks; their profiles are read again on the next use."""
        peaks, self._peaks = self._peaks, []
        if peaks:
            try:
                self._store.learn(peaks)
            except StoreUnavailable:
                self._peaks = peaks + self._peaks
                raise
            changed = {name for name, _ in peaks}
            self._profiles = {name: item for name, item in self._profiles.items() if name not in changed}

    def _read(self, names: Sequence[str]) -> dict[str, Profile]:
        profiles = self._store.profiles(names)
        empty = [name for name, profile in profiles.items() if not profile.samples and name not in self._searched]
        self._searched.update(empty)
        peaks = [(name, peak) for name in empty for peak in self._earlier_peaks(name)]
        if not peaks:
            return profiles
        self._store.learn(peaks)
        return self._store.profiles(names)

    def _earlier_peaks(self, label: str) -> list[int]:
        """Peaks of commands with this label that ran under a cap before the queue was autoscaled."""
        if "*" in label:
            return []
        done = Selector(labels=(label,), kinds=(COMMAND,), states=(State.DONE,))
        peaks = [_peak(job.result) for job in self._views.page(done, limit=EARLIER_RUNS).jobs]
        return [peak for peak in reversed(peaks) if peak]


def _peak(result: str | None) -> int | None:
    try:
        return None if result is None else msgspec.json.decode(result, type=_Result).peak_bytes
    except msgspec.DecodeError:
        return None  # the result was too large to be kept
