"""Steps of a handler that are done for good: the next attempt does not repeat them."""

from __future__ import annotations

from datetime import timedelta

from msgspec import Struct

from holdfast.domain.jobs.job import Lease
from holdfast.domain.jobs.result import MAX_RESULT, is_json
from holdfast.domain.text import checked_name
from holdfast.errors import InvalidInput, LeaseLost
from holdfast.store.engine.backend import Backend
from holdfast.store.engine.operation import query


class StoredStep(Struct, frozen=True):
    """A finished step with its result, JSON; or a sleep, and how long it goes on."""

    name: str
    result: str | None
    remaining: timedelta | None


class Steps:
    """Remembers what the attempts of a job have finished."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def kept(self, lease: Lease) -> dict[str, StoredStep]:
        """All steps of the job, by name."""
        steps: list[StoredStep] = self._backend.look(query("list_steps", StoredStep, id=lease.job_id))
        return {step.name: step for step in steps}

    def keep(self, lease: Lease, name: str, result: str | None = None, *, delay: timedelta | None = None) -> StoredStep:
        """Remember a step; one that is known already stays as it was, and is the answer.

        *delay* makes it a sleep, which ends so long from now.

        Raises:
            LeaseLost: The job was taken over or given back; nothing was written.
        """
        checked_name(name, what="the step")
        if result is not None and not is_json(result, limit=MAX_RESULT):
            raise InvalidInput(f"the result of step {name!r} is JSON of at most {MAX_RESULT:,} bytes")
        facts = {"name": name, "result": result, "delay": delay}
        steps: list[StoredStep] = self._backend.run(
            query("insert_step", StoredStep, id=lease.job_id, token=lease.token, **facts), repeatable=True
        )
        if not steps:
            raise LeaseLost.of(lease.job_id, lease.token)
        return steps[0]
