"""An application whose handlers and units fork, as users' code does."""

from __future__ import annotations

import multiprocessing
import threading

import holdfast

app = holdfast.Holdfast()
_FORK = multiprocessing.get_context("fork")


def fork(mode: str) -> object:
    """Terminate a forked process, or use and end a pool of them."""
    if mode == "pool":
        with _FORK.Pool(2) as pool:
            return pool.map(abs, [-1, -2])
    helper = _FORK.Process(target=threading.Event().wait, args=(60,))
    helper.start()
    helper.terminate()
    helper.join()
    return helper.exitcode


@app.job(max_attempts=1)
def in_thread(mode: str) -> object:
    return fork(mode)


@app.job(max_attempts=1)
async def in_loop(mode: str) -> object:
    return fork(mode)


@app.job(max_attempts=1, executor="process")
def in_child(mode: str) -> object:
    return fork(mode)


@app.unit(max_failures=1)
def in_unit(key: str) -> object:
    return fork(key)
