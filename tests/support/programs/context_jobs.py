"""Kinds and units that set a context variable, in each executor; children import this."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar

import holdfast

tenant: ContextVar[str | None] = ContextVar("tenant", default=None)


def enter(name: str) -> str | None:
    """Set the variable; returns what it was."""
    before = tenant.get()
    tenant.set(name)
    return before


def in_thread(name: str) -> list[str | None]:
    return [enter(name), tenant.get()]


def in_process(name: str) -> list[str | None]:
    return [enter(name), tenant.get()]


async def in_child_loop(name: str) -> list[str | None]:
    return [enter(name), tenant.get()]


async def in_coroutine(name: str) -> list[str | None]:
    """What it starts itself sees its variable, and what that sets stays there."""
    before = enter(name)

    async def task() -> str | None:
        return enter(f"{name} in a task")

    loop = asyncio.get_running_loop()
    answers = [
        await asyncio.create_task(task()),
        await asyncio.to_thread(enter, f"{name} in a thread"),
        await loop.run_in_executor(None, enter, f"{name} in the executor"),
    ]
    assert answers == [name] * 3
    return [before, tenant.get()]


def of_key(key: int) -> str | None:
    return enter(f"unit {key}")


def of_unit(key: int, unit: holdfast.Unit) -> str | None:
    del unit
    return enter(f"unit {key}")


async def of_loop(key: int) -> str | None:
    return enter(f"unit {key}")


def of_child(key: int) -> str | None:
    return enter(f"unit {key}")


KINDS = (in_thread, in_coroutine, in_process, in_child_loop)
UNITS = (of_key, of_unit, of_loop, of_child)


def register(app: holdfast.Holdfast, *, timeout: str | None = None) -> dict[str, object]:
    """Register all of them; returns the handlers and units by name."""
    in_child = {"in_process", "in_child_loop", "of_child"}
    handlers: dict[str, object] = {
        function.__name__: app.job(executor="process" if function.__name__ in in_child else None)(function)
        for function in KINDS
    }
    for function in UNITS:
        executor = "process" if function.__name__ in in_child else "thread"
        # A timeout cannot stop a function that gets only its key.
        unit = app.unit(executor=executor, timeout=None if function is of_key else timeout)
        handlers[function.__name__] = unit(function)
    return handlers


APP = holdfast.Holdfast("sqlite:///never-opened.db")
register(APP)
