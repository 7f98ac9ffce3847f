"""The answer of every action: which objects it changed, which it did not, and why."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct

from holdfast.admin.actions.table import Action, Target, find_action, plural
from holdfast.domain.jobs.job import JobId

#: Ids of unchanged objects in an answer, and ids in a sentence.
MAX_UNCHANGED, MAX_SHOWN = 1000, 10


class Unchanged(Struct, frozen=True):
    """Objects that an action did not change, for one reason; at most 1,000 of their ids."""

    why: str
    count: int
    ids: list[int | str]


class Changed(Struct, frozen=True, kw_only=True):
    """What an action changed, or in a *dry_run* would change. A dry run gives the same answer as the action itself.

    *ids* are the changed objects: ids of jobs and batches, names of queues, schedules and workers, times of plans.
    *requested* are further ones, which run: they change when their holders obey the request, unless they finish first.
    """

    action: str
    target: Target
    matched: int
    changed: int
    ids: list[int | str]
    requested: list[int | str] = []
    unchanged: list[Unchanged] = []
    dry_run: bool = False
    #: Units of batches that were changed, or deleted with their batch.
    units: int | None = None
    #: Jobs that a schedule has enqueued, or that the stop switch has stopped or resumed. None in a dry run.
    jobs: list[JobId] = []
    #: Jobs that stay cancelled because one of the changed ones had failed.
    left_behind: list[JobId] = []
    #: The next step of the person, if there is one.
    note: str | None = None

    @property
    def failed(self) -> bool:
        """Whether nothing could be changed, and the action is not one that sets something."""
        return not self.changed and not self.requested and not find_action(self.target, self.action).repeatable

    @property
    def text(self) -> str:
        """The answer as a sentence."""
        action = find_action(self.target, self.action)
        parts = [self._describe_changed(action)] if self.changed or not self.requested else []
        parts += [self._describe_requested(action)] if self.requested else []
        parts += [self._describe(group) for group in self.unchanged]
        if self.left_behind:
            stay = f"{count_objects(len(self.left_behind), 'job')} that depend on them stay cancelled"
            parts.append(f"{stay} (add --with-dependents)")
        return "; ".join([*parts, *([self.note] if self.note else [])])

    def _describe_changed(self, action: Action) -> str:
        noun = action.counts or action.target
        if not self.changed:
            return f"nothing {'would be' if self.dry_run else 'was'} {action.past}"
        past = f"would be {action.past}" if self.dry_run else action.past
        if noun is Target.STORE:
            jobs = f", {count_objects(len(self.jobs), 'job')} {action.request}".rstrip() if self.jobs else ""
            return f"the store {past}{jobs}"
        if noun not in (Target.JOB, Target.UNIT, Target.RESULT, "plan"):
            return f"{noun} {_join(self.ids)} {past}{self._with_units}"
        ids = f": {_join(self.ids)}" if self.ids else ""
        return f"{self._count(self.changed, noun)} {past}{ids}"

    def _describe_requested(self, action: Action) -> str:
        request, ids = f"would be {action.request}" if self.dry_run else action.request, _join(self.requested)
        if action.target is Target.BATCH:
            return f"batch {ids} {request}{'' if self.changed else self._with_units}"
        count = count_objects if self.changed else self._count
        return f"{count(len(self.requested), action.target)} {request}: {ids}"

    @property
    def _with_units(self) -> str:
        return "" if self.units is None else f", {count_objects(self.units, 'unit')}"

    def _count(self, count: int, noun: str) -> str:
        """The number of objects; of all that matched if some stay unchanged."""
        if self.changed + len(self.requested) == self.matched:
            return count_objects(count, noun)
        return f"{count:,} of {count_objects(self.matched, noun)}"

    def _describe(self, group: Unchanged) -> str:
        if self.target is Target.STORE:
            return f"the store is {group.why}"
        noun = find_action(self.target, self.action).counts or self.target
        names = f"{noun} {_join(group.ids)}" if group.count == 1 and group.ids else count_objects(group.count, noun)
        shown = f" ({_join(group.ids)})" if group.count > 1 and group.ids else ""
        return f"unchanged: {names}{shown}, {group.why}"


def answer_for_one(
    action: Action, name: int | str, state: str, *, changed: bool, dry_run: bool, requested: bool = False
) -> Changed:
    """The answer of an action on one object, which was in *state* before. *requested*: its holder has to change it."""
    unchanged = [] if changed else [Unchanged(action.explain(state), 1, [name])]
    ids: list[int | str] = [name] if changed else []
    return Changed(
        action=action.name,
        target=action.target,
        matched=1,
        changed=int(changed and not requested),
        ids=[] if requested else ids,
        requested=ids if requested else [],
        unchanged=unchanged,
        dry_run=dry_run,
    )


def group_unchanged(pairs: Iterable[tuple[int | str, str]]) -> list[Unchanged]:
    """Group (id, reason) pairs by their reason."""
    groups: dict[str, list[int | str]] = {}
    for name, why in pairs:
        groups.setdefault(why, []).append(name)
    return [Unchanged(why, len(ids), sorted(ids, key=_order)[:MAX_UNCHANGED]) for why, ids in groups.items()]


def _order(name: int | str) -> tuple[int, str]:
    return (name, "") if isinstance(name, int) else (0, name)


def count_objects(count: int, noun: str) -> str:
    return f"1 {noun}" if count == 1 else f"{count:,} {plural(noun)}"


def _join(ids: Sequence[int | str]) -> str:
    more = ", …" if len(ids) > MAX_SHOWN else ""
    return ", ".join(map(str, ids[:MAX_SHOWN])) + more
