"""Dependencies: when a job that waits for others may start."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum

from msgspec import Struct
from msgspec.structs import force_setattr

from holdfast.domain.jobs.job import FINISHED, JobId, State
from holdfast.domain.names import checked_text
from holdfast.domain.quantities import plain_number
from holdfast.errors import InvalidInput


class When(StrEnum):
    """The condition on the dependencies. A cancelled job counts as failed."""

    DONE = "done"
    FINISHED = "finished"
    FAILED = "failed"


class IfNot(StrEnum):
    """What happens to a job whose condition can no longer be met."""

    CANCEL = "cancel"
    HOLD = "hold"


class After(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Start after other jobs, named by id, by key (kind and key) or by label."""

    ids: tuple[JobId, ...] = ()
    keys: tuple[tuple[str, str], ...] = ()
    labels: tuple[str, ...] = ()
    when: When = When.DONE
    if_not: IfNot = IfNot.CANCEL

    def __post_init__(self) -> None:
        """Accept plain strings for the enums."""
        for name in ("ids", "keys", "labels"):
            if isinstance(getattr(self, name), (str, int)):
                raise InvalidInput(f"{name} is a list", hint=f"Write {name}=({getattr(self, name)!r},).")
            force_setattr(self, name, tuple(dict.fromkeys(getattr(self, name))))
        if not all(isinstance(job_id, int) for job_id in self.ids):
            raise InvalidInput(f"ids are numbers of jobs, not {self.ids!r}")
        force_setattr(self, "ids", tuple(JobId(plain_number(job_id)) for job_id in self.ids))
        force_setattr(self, "keys", tuple((_name(kind), _name(key)) for kind, key in self.keys))
        force_setattr(self, "labels", tuple(map(_name, self.labels)))
        try:
            force_setattr(self, "when", When(self.when))
            force_setattr(self, "if_not", IfNot(self.if_not))
        except ValueError as error:
            hint = "when is 'done', 'finished' or 'failed'; if_not is 'cancel' or 'hold'."
            raise InvalidInput(f"{error}", hint=hint) from None
        if not (self.ids or self.keys or self.labels):
            raise InvalidInput("after names no job", hint="Leave it out when there is nothing to wait for.")

    @property
    def only_ids(self) -> bool:
        return not self.keys and not self.labels


def _name(text: str) -> str:
    return checked_text(text, label="a name in after")


class DependencyStep(StrEnum):
    """The next step of a waiting job."""

    WAIT = "wait"
    START = "start"
    CANCEL = "cancel"
    HOLD = "hold"


class DependencyEdge(Struct, frozen=True):
    """*job_id* needs *dependency_id*; state, kind and label are of the one farther from the requested job (*way*)."""

    way: str
    job_id: JobId
    dependency_id: JobId
    depth: int
    state: State | None
    kind: str | None
    label: str | None

    @property
    def far(self) -> JobId:
        return self.dependency_id if self.way == "dependencies" else self.job_id


class DependencyState(Struct, frozen=True):
    """One dependency of a waiting job; *state* is None if it no longer exists."""

    job_id: JobId
    dependency_id: JobId
    state: State | None


FAILED = frozenset({State.DEAD, State.CANCELLED})


def next_step(when: When, if_not: IfNot, states: Iterable[State | None]) -> DependencyStep:
    """Decide for a waiting job. A dependency that no longer exists (None) counts as failed."""
    seen = set(states)
    failed = bool(seen & FAILED) or None in seen
    finished = all(state is None or state in FINISHED for state in seen)
    give_up = DependencyStep.CANCEL if if_not is IfNot.CANCEL else DependencyStep.HOLD
    match when:
        case When.DONE:
            return give_up if failed else DependencyStep.START if finished else DependencyStep.WAIT
        case When.FINISHED:
            return DependencyStep.START if finished else DependencyStep.WAIT
        case When.FAILED:
            return DependencyStep.START if failed else give_up if finished else DependencyStep.WAIT


def reason_for(when: When, dependencies: Sequence[DependencyState]) -> str:
    """The reason why a waiting job was cancelled or held, for people."""
    if when is When.FAILED:
        return "all dependencies are done, and this job runs only if one fails"
    failed = next(each for each in dependencies if each.state is None or each.state in FAILED)
    state = failed.state.value if failed.state else "gone"
    return f"dependency {failed.dependency_id} is {state}"
