"""Forks of the test process."""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from typing import Any, Self

#: Seconds after which a forked child counts as hanging.
PATIENCE = 30


class Fork:
    """A forked child that calls *work* with a function that waits for :meth:`go`. As a context, it is killed at the end."""

    def __init__(self, work: Callable[[Callable[[], Any]], Any]) -> None:
        reading, self._writing = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self._writing)
            code = 1
            try:
                work(lambda: os.read(reading, 1))
                code = 0
            except BaseException:  # noqa: BLE001 - the test process must not continue twice
                traceback.print_exc(file=sys.__stderr__)
            finally:
                os._exit(code)
        os.close(reading)
        self._code: int | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._code is None:
            os.kill(self.pid, signal.SIGKILL)
            self.code()

    def go(self) -> None:
        os.write(self._writing, b"!")

    def code(self) -> int:
        """Its exit code; a child that hangs is killed."""
        timer = threading.Timer(PATIENCE, os.kill, (self.pid, signal.SIGKILL))
        timer.start()
        _, status = os.waitpid(self.pid, 0)
        timer.cancel()
        os.close(self._writing)
        self._code = os.waitstatus_to_exitcode(status)
        return self._code
