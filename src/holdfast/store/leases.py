"""Leases: who may run what until when, and how runs end."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

from msgspec import Struct

from holdfast.domain.history import EventName
from holdfast.domain.job import (
    Done,
    EndReason,
    Failed,
    JobId,
    Lease,
    Lost,
    OnLost,
    Outcome,
    Released,
    Standing,
    State,
    Stopped,
    Token,
    Verdict,
    WorkerId,
    judge,
)
from holdfast.domain.request import Actor
from holdfast.domain.result import is_json, kept_result
from holdfast.domain.text import clean_text
from holdfast.errors import InvalidInput, LeaseLost
from holdfast.store import needs
from holdfast.store.backend import Backend
from holdfast.store.events import record_all
from holdfast.store.flow import Ask, ById, Flow, Rows, ask
from holdfast.store.needs import Ended

TERM = timedelta(seconds=60)
MAX_ERROR = 64 * 1024
MAX_MESSAGE = 1000
MAX_CHECKPOINT = 64 * 1024
FIRST = JobId(0)


class Settlement(Struct, frozen=True):
    """How one run ended. *ran* is how long it took, by the holder's monotonic clock."""

    lease: Lease
    outcome: Outcome
    ran: timedelta | None = None


class Renewal(Struct, frozen=True):
    """A lease that is still the holder's. Not *renewed*: somebody held the row just then."""

    job_id: JobId
    renewed: bool
    cancel_wanted: bool


class TakenOver(Struct, frozen=True):
    """A lapsed lease that was ended, and what became of its job."""

    job_id: JobId
    token: Token
    state: State


class Leases:
    """Claims jobs for workers and ends their runs. Every write is fenced by the token."""

    def __init__(self, backend: Backend, *, chance: Callable[[], float] = random.random) -> None:
        self._backend = backend
        self._chance = chance

    def claim(
        self,
        worker: WorkerId,
        *,
        queues: Sequence[str],
        kinds: Sequence[str],
        limit: int = 1,
        term: timedelta = TERM,
        mark: bool = False,
    ) -> list[Lease]:
        """Take leases on up to *limit* ready jobs, the most urgent first.

        - Every job is handed to exactly one holder, with a token higher than any before.
        - Only jobs of these queues and kinds are touched; paused queues start nothing.
        - Limits of queues are exact over all workers; jobs of limited queues come marked.
        - *mark*: the starts are marked at once, each costs an attempt if its holder is lost.
          Jobs that are suspect, or whose ``on_lost`` is not ``retry``, are handed out only so.
        """
        lanes = {"queues": list(queues), "kinds": list(kinds), "worker": worker, "term": term}
        lanes |= {"limit": limit, "mark": mark}
        leases: list[Lease] = self._backend.run(ask("claim", Lease, **lanes))
        if leases and leases[-1].token == 0:
            leases = self._backend.write(_claim_ranked, lanes)
        leases.sort(key=lambda lease: (-lease.priority, lease.due_at, lease.job_id))
        return leases

    def renew(self, leases: Sequence[Lease], *, term: timedelta = TERM) -> list[Renewal]:
        """Extend leases by *term* from now; what is missing in the answer is lost.

        - A lease that lapsed but that nobody took over is renewed.
        - A row that somebody else has locked holds up no other renewal.
        - The answer tells for which jobs a cancel is wanted.
        """
        if not leases:
            return []
        held = ById(
            id=[lease.job_id for lease in leases],
            token=[lease.token for lease in leases],
            term=[term] * len(leases),
        )
        return self._backend.run(ask("renew", Renewal, held=held), repeatable=True)

    def mark(self, lease: Lease) -> int:
        """Mark durably that the run begins, and return its attempt number; idempotent.

        Raises:
            LeaseLost: The job was taken over or given back; nothing was written.
        """
        rows = self._backend.run(ask("mark", id=lease.job_id, token=lease.token), repeatable=True)
        if not rows:
            raise _lost(lease)
        number: int = rows[0][0]
        return number

    def settle(self, lease: Lease, outcome: Outcome, *, ran: timedelta | None = None) -> None:
        """Record how a run ended; a repeated settle with the same outcome is a success.

        Raises:
            LeaseLost: The job was taken over or given back; nothing was written.
        """
        if self.settle_many([Settlement(lease, outcome, ran)]):
            raise _lost(lease)

    def settle_many(self, settlements: Sequence[Settlement]) -> set[JobId]:
        """Record how many runs ended; answers the jobs whose lease was lost.

        A lost lease changes nothing and holds up no other settlement.
        """
        done = [s for s in settlements if isinstance(s.outcome, Done)]
        others = [s for s in settlements if not isinstance(s.outcome, Done)]
        lost = self._settle_done(done) if done else set()
        if others:
            lost |= self._backend.write(_settle_others, others, self._chance)
        return lost

    def give_back(self, leases: Sequence[Lease]) -> int:
        """Return prefetched jobs that were never begun: at no cost, to their places."""
        return self._backend.write(_give_back, list(leases)) if leases else 0

    def take_over(self, *, limit: int = 100) -> list[TakenOver]:
        """End leases that have lapsed, and judge their jobs as the rules say.

        - Queue by queue, the longest lapsed first, no more than *limit*.
        - The token is raised: the old holder can no longer write anything.
        - A marked start costs an attempt and counts as a crash; an unmarked one costs
          nothing, and makes the job suspect.
        - No lease is handed out, and no kind needs to be known.
        """
        return self._backend.write(_take_over, limit, self._chance)

    def promote(self, *, limit: int = 1000) -> int:
        """Make scheduled jobs ready whose time has come; answers how many."""
        return len(self._backend.run(ask("promote", limit=limit), repeatable=True))

    def sweep_waiting(self, *, after: JobId = FIRST, limit: int = 1000) -> JobId | None:
        """Judge one page of waiting jobs by their needs; answers where the next page begins.

        This is the truth about dependencies: whatever was missed is found here.
        """
        return self._backend.write(needs.sweep, after, limit)

    def report(
        self,
        lease: Lease,
        *,
        done: int | None = None,
        total: int | None = None,
        message: str | None = None,
        checkpoint: str | None = None,
    ) -> None:
        """Write progress, or a checkpoint for the next attempt; what is not said stays.

        Raises:
            LeaseLost: The job was taken over or given back; nothing was written.
        """
        text = None if message is None else clean_text(message, limit=MAX_MESSAGE)
        if checkpoint is not None and not is_json(checkpoint, limit=MAX_CHECKPOINT):
            raise InvalidInput(f"a checkpoint is JSON of at most {MAX_CHECKPOINT:,} bytes")
        told = {"done": done, "total": total, "message": text, "checkpoint": checkpoint}
        if not self._backend.run(ask("report", id=lease.job_id, token=lease.token, **told), repeatable=True):
            raise _lost(lease)

    def _settle_done(self, done: list[Settlement]) -> set[JobId]:
        done.sort(key=lambda settlement: settlement.lease.job_id)
        ended: list[Ended] = self._backend.run(_done_statement(done), repeatable=True)
        needed = [job.id for job in ended if job.needed]
        missing = {s.lease.job_id: s for s in done}
        for job in ended:
            del missing[job.id]
        lost: set[JobId] = self._backend.write(_truly_lost, list(missing.values())) if missing else set()
        # Ends that were recorded by an answer that got lost: nobody has told their dependents.
        needed += missing.keys() - lost
        if needed:
            self._backend.write(needs.after_end, needed)
        return lost


def _claim_ranked(lanes: dict[str, Any]) -> Flow[list[Lease]]:
    yield ask("lock_queues", queues=lanes["queues"])
    leases: list[Lease] = yield ask("claim_ranked", Lease, **lanes)
    return leases


def _done_statement(done: list[Settlement]) -> Ask:
    return ask(
        "settle_done",
        Ended,
        held=ById(
            id=[s.lease.job_id for s in done],
            token=[s.lease.token for s in done],
            result=[kept_result(s.outcome.result) for s in done if isinstance(s.outcome, Done)],
            ran=[s.ran for s in done],
        ),
    )


def _give_back(leases: list[Lease]) -> Flow[int]:
    rows = yield ask("give_back", held=_held(leases))
    back = {row[0] for row in rows}
    # Of the rest, what was begun or is lost stays as it is; what shall be cancelled ends here.
    rest: list[Standing] = yield ask(
        "lock_held", Standing, held=_held([lease for lease in leases if lease.job_id not in back])
    )
    unbegun = [job for job in rest if job.cancel_wanted and not job.marked]
    ends = [_End(job, judge(job, Released(), chance=0.5), None) for job in unbegun]
    yield from _write_ends(ends, raised=0, actor=Actor.WORKER)
    return len(back) + len(ends)


def _settle_others(settlements: list[Settlement], chance: Callable[[], float]) -> Flow[set[JobId]]:
    by_id = {s.lease.job_id: s for s in settlements}
    rows: list[Standing] = yield ask("lock_held", Standing, held=_held([s.lease for s in settlements]))
    ends = [_End(job, judge(job, by_id[job.job_id].outcome, chance=chance()), by_id[job.job_id].ran) for job in rows]
    yield from _write_ends(ends, raised=0, actor=Actor.WORKER)
    missing = [s for s in settlements if s.lease.job_id not in {job.job_id for job in rows}]
    return (yield from _truly_lost(missing))


def _take_over(limit: int, chance: Callable[[], float]) -> Flow[list[TakenOver]]:
    rows: list[Standing] = yield ask("lock_lapsed", Standing, limit=limit)
    ends = [_End(job, judge(job, Lost(), chance=chance()), None) for job in rows]
    yield from _write_ends(ends, raised=1, actor=Actor.SWEEPER)
    return [TakenOver(end.job.job_id, Token(end.job.token + 1), end.verdict.state) for end in ends]


class _End(Struct, frozen=True):
    """A run, under its row's lock, and the verdict on it."""

    job: Standing
    verdict: Verdict
    ran: timedelta | None


def _write_ends(ends: list[_End], *, raised: int, actor: Actor) -> Flow[None]:
    """Write verdicts: the job's new place, its attempt, its event, its dependents' news."""
    back = [end for end in ends if not end.verdict.state.ended]
    over = [end for end in ends if end.verdict.state.ended]
    if back:
        yield ask("put_back", verdict=_put_back_columns(back, raised))
    if over:
        yield ask("end_held", verdict=_end_columns(over, raised))
    begun = [end for end in ends if not end.verdict.suspect]
    if begun:
        yield ask("write_attempts", run=_attempt_columns(begun))
    yield from record_all([(end.job.job_id, _event_name(end.verdict), _event_detail(end)) for end in ends], actor=actor)
    yield from needs.after_end(end.job.job_id for end in over if end.job.needed)


def _put_back_columns(ends: list[_End], raised: int) -> Rows:
    verdicts = [end.verdict for end in ends]
    return ById(
        id=[end.job.job_id for end in ends],
        token=[end.job.token for end in ends],
        state=[verdict.state for verdict in verdicts],
        attempts=[verdict.attempts for verdict in verdicts],
        crashes=[verdict.crashes for verdict in verdicts],
        raised=[raised] * len(ends),
        suspect=[verdict.suspect for verdict in verdicts],
        careful=[end.verdict.suspect or end.job.on_lost is not OnLost.RETRY for end in ends],
        note=[verdict.note for verdict in verdicts],
        delay=[verdict.delay or None for verdict in verdicts],
    )


def _end_columns(ends: list[_End], raised: int) -> Rows:
    return ById(
        id=[end.job.job_id for end in ends],
        token=[end.job.token for end in ends],
        state=[end.verdict.state for end in ends],
        attempts=[end.verdict.attempts for end in ends],
        crashes=[end.verdict.crashes for end in ends],
        raised=[raised] * len(ends),
        reason=[end.verdict.reason for end in ends],
        error=[_clean(end.verdict.error) for end in ends],
        ran=[end.ran for end in ends],
    )


def _attempt_columns(ends: list[_End]) -> Rows:
    return Rows(
        job_id=[end.job.job_id for end in ends],
        token=[end.job.token for end in ends],
        number=[end.job.attempt for end in ends],
        worker=[end.job.worker for end in ends],
        started_at=[end.job.started_at or end.job.claimed_at for end in ends],
        ran=[end.ran for end in ends],
        reason=[end.verdict.reason for end in ends],
        exit_code=[end.verdict.exit_code for end in ends],
        error=[_clean(end.verdict.error) for end in ends],
    )


def _truly_lost(settlements: Sequence[Settlement]) -> Flow[set[JobId]]:
    """Of settlements that changed no row, those that were not recorded before either."""
    if not settlements:
        return set()
    held = ById(
        id=[s.lease.job_id for s in settlements],
        token=[s.lease.token for s in settlements],
        reason=[_reason(s.outcome) for s in settlements],
    )
    rows = yield ask("settled_before", held=held)
    return {s.lease.job_id for s in settlements} - {row[0] for row in rows}


def _reason(outcome: Outcome) -> str:
    match outcome:
        case Done():
            return EndReason.DONE
        case Failed() | Lost():
            return outcome.reason
        case Released():
            return EndReason.RELEASED
        case Stopped():
            return EndReason.CANCELLED


def _event_name(verdict: Verdict) -> EventName:
    match verdict.reason:
        case EndReason.LEASE_LOST:
            return EventName.TAKEN_OVER
        case EndReason.RELEASED:
            return EventName.RELEASED
        case EndReason.CANCELLED:
            return EventName.CANCELLED
        case _:
            return EventName.FAILED


def _event_detail(end: _End) -> dict[str, Any]:
    return {"state": end.verdict.state, "reason": end.verdict.reason, "token": end.job.token}


def _held(leases: Sequence[Lease]) -> Rows:
    return ById(id=[lease.job_id for lease in leases], token=[lease.token for lease in leases])


def _clean(error: str | None) -> str | None:
    return None if error is None else clean_text(error, limit=MAX_ERROR)


def _lost(lease: Lease) -> LeaseLost:
    return LeaseLost(
        f"job {lease.job_id} is no longer leased under token {lease.token}", job_id=lease.job_id, token=lease.token
    )
