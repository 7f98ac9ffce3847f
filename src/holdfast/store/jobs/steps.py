"""Finished steps of a handler, across its attempts."""

from __future__ import annotations

from datetime import timedelta

from msgspec import Struct

from holdfast.domain.jobs.job import Lease
from holdfast.domain.jobs.json_values import MAX_RESULT, is_json
from holdfast.domain.names import checked_name
from holdfast.errors import InvalidInput, LeaseLost
from holdfast.store.engine.operation import Noun, query


class StoredStep(Struct, frozen=True):
    """A finished step with its result as JSON, or a sleep and its remaining time."""

    name: str
    result: str | None
    remaining: timedelta | None


class Steps(Noun):
    """Stores the finished steps of jobs."""

    def kept(self, lease: Lease) -> dict[str, StoredStep]:
        """All steps of the job, by name."""
        steps: list[StoredStep] = self._fetch("list_steps", StoredStep, id=lease.job_id)
        return {step.name: step for step in steps}

    def keep(self, lease: Lease, name: str, result: str | None = None, *, delay: timedelta | None = None) -> StoredStep:
        """Store a step; a step of this name that is stored already stays as it is, and is returned.

        *delay* makes it a sleep that ends after this time.

        Raises:
            LeaseLost: The job was taken over or released; nothing was written.
            JobLocked: Another transaction has locked the job's row; nothing was written.
        """
        checked_name(name, label="the step")
        if result is not None and not is_json(result, limit=MAX_RESULT):
            raise InvalidInput(f"the result of step {name!r} is JSON of at most {MAX_RESULT:,} bytes")
        values = {"name": name, "result": result, "delay": delay}
        steps: list[StoredStep] = self._backend.run(
            query("insert_step", StoredStep, **lease.fence, **values), repeatable=True
        )
        if not steps:
            raise LeaseLost.of(lease.job_id, lease.token)
        return steps[0]
