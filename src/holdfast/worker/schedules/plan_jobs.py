"""The jobs of plans: built from the definition of a schedule and the options of a kind."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from functools import lru_cache

import msgspec
from msgspec import structs

from holdfast.domain.jobs.kind_options import PublishedKind, load_options, new_job_of, plan_parameter
from holdfast.domain.jobs.new_job import Actor, NewJob
from holdfast.domain.schedules.definition import MAX_CACHED, MAX_CACHED_CHARACTERS, Definition, load_definition
from holdfast.domain.schedules.plan import GLOBAL, Plan, jittered, scope_tag
from holdfast.store.schedules.fired_plans import PlanToFire
from holdfast.worker.schedules.ping import ping_request

_encode = msgspec.json.Encoder().encode
#: The plan of the request that all others are copies of.
_SAMPLE = Plan("sample", datetime(2000, 1, 1, tzinfo=UTC))


class PlanJobs:
    """Builds the jobs of the plans of one definition.

    The options are checked and the payload is encoded once. A plan adds its JSON, its label, its time, and the tag of
    its scope. *at_once*: ignore delay and jitter.
    """

    def __init__(
        self, definition: Definition, kind: PublishedKind, *, actor: str = Actor.SCHEDULER, at_once: bool = False
    ) -> None:
        self._definition, self._kind, self._actor = definition, kind, actor
        self._jitter = None if at_once else definition.jitter or None
        self._parameter = plan_parameter(kind.options)
        self._keyed = self._parameter in load_options(kind.options, version=kind.version).unique
        self._model = self._build(_SAMPLE)
        others = {name: value for name, value in definition.payload.items() if name != self._parameter}
        #: The payload up to the JSON of the plan.
        self._opening = f"{_encode(others).decode()[:-1]}{',' if others else ''}{_encode(self._parameter).decode()}:"

    def fires(self, plans: Iterable[Plan]) -> list[PlanToFire]:
        """Build the jobs of *plans*, each with the ping that follows it."""
        ping, queue = self._definition.ping, self._model.queue
        return [
            PlanToFire(plan, self._request(plan), None if ping is None else ping_request(ping, queue, plan.schedule))
            for plan in plans
        ]

    def _request(self, plan: Plan) -> NewJob:
        text, model = _encode(plan).decode(), self._build(plan) if self._keyed else self._model
        payload = model.payload if self._parameter is None else f"{self._opening}{text}}}"
        tags = None if plan.scope == GLOBAL else _encode([scope_tag(plan.scope)]).decode()
        if self._jitter is None:
            return structs.replace(model, payload=payload, label=plan.schedule, tags=tags, plan=text)
        run_at = plan.time + self._definition.delay + jittered(plan, self._jitter)
        return structs.replace(model, payload=payload, label=plan.schedule, tags=tags, plan=text, run_at=run_at)

    def _build(self, plan: Plan) -> NewJob:
        definition, name = self._definition, self._parameter
        return new_job_of(
            self._kind,
            definition.payload if name is None else {**definition.payload, name: plan},
            kind_version=definition.kind_version,
            queue=definition.queue,
            priority=definition.priority,
            actor=self._actor,
        )


def jobs_of(definition: str, kind: PublishedKind) -> PlanJobs:
    """Return the jobs of a definition, as JSON. Cached like :func:`load_definition`: few definitions ever change."""
    if len(definition) > MAX_CACHED_CHARACTERS:
        return PlanJobs(load_definition(definition), kind)
    return _cached_jobs(definition, _shared(kind))


@lru_cache(maxsize=MAX_CACHED)
def _cached_jobs(definition: str, kind: PublishedKind) -> PlanJobs:
    return PlanJobs(load_definition(definition), kind)


@lru_cache(maxsize=1000)
def _shared(kind: PublishedKind) -> PublishedKind:
    """Return one copy of equal kinds: each tick reads them anew, and the cached jobs would keep every copy."""
    return kind
