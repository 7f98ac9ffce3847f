"""Outages of the store: a run of a batch waits for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from holdfast.errors import StoreBusy, StoreUnavailable
from holdfast.store.jobs.leases import DEFAULT_LEASE
from holdfast.worker import clock

T = TypeVar("T")

#: Errors after which the same call may succeed.
OUTAGE = (StoreUnavailable, StoreBusy)
#: After the lease of a local run, another run may have its batch.
MAX_OUTAGE_S = DEFAULT_LEASE.total_seconds()
#: Pause between two calls.
RETRY_S = 0.5


def outlast(call: Callable[[], T], *, again: Callable[[], T] | None = None) -> T:
    """Call the store; while it does not answer, call it again, by *again* if that is given.

    Raises:
        StoreUnavailable: It did not answer for a minute.
    """
    until = clock.now() + MAX_OUTAGE_S
    while True:
        try:
            return call()
        except OUTAGE:
            if clock.now() >= until:
                raise
            clock.sleep(RETRY_S)
            call = again or call
