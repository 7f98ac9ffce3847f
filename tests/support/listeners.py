"""Something that listens for rings, for tests."""

from __future__ import annotations

import threading


class Listener:
    """Collects changes, and lets a test wait for the next notification."""

    def __init__(self, store):
        self._rung = threading.Event()
        self.changes = set()
        self.listener = store.backend.listen(self._receive)

    def _receive(self, changes):
        self.changes |= changes
        self._rung.set()

    def hears(self, *, within=5.0):
        heard = self._rung.wait(within)
        self._rung.clear()
        return heard

    def settle(self):
        """Wait until it listens, and forget what it has heard so far."""
        if not self.listener.works:
            assert self.hears()
        assert self.listener.works
        while self.hears(within=0.05):
            pass
        self.changes.clear()
