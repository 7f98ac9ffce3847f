"""Lost workers: which of them no later worker has replaced."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Protocol, TypeVar

#: A lost worker is reported for this long: then its loss is old news, or it was meant.
REPORTED_FOR = timedelta(hours=1)


class Served(Protocol):
    """What decides whether one worker replaces another."""

    @property
    def queues(self) -> str | list[str]: ...
    @property
    def started_at(self) -> datetime: ...
    @property
    def seen_at(self) -> datetime: ...


W = TypeVar("W", bound=Served)


def unreplaced(lost: Iterable[W], alive: Sequence[Served]) -> list[W]:
    """The lost workers without a replacement: a live one of the same queues that has started after the loss.

    Each live worker replaces one.
    """
    free = sorted(alive, key=lambda worker: worker.started_at)
    missing = []
    for worker in sorted(lost, key=lambda worker: worker.seen_at, reverse=True):
        later = [each for each in free if each.queues == worker.queues and each.started_at > worker.seen_at]
        if later:
            free.remove(later[0])
        else:
            missing.append(worker)
    return missing[::-1]
