"""Admission: which program may begin, judged by what it will take, not by what is free just now.

A program grows after it has begun, so a look at free memory comes too late by as long as programs take to grow. What
the programs of one label took before tells what the next one will take.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from fnmatch import fnmatchcase
from math import sqrt

from msgspec import Struct

from holdfast.domain.commands.command import HOST_SHARE
from holdfast.domain.jobs.job import JobId
from holdfast.domain.sizes import as_bytes, format_size
from holdfast.errors import InvalidInput

#: With fewer runs than these nobody knows what a label takes: its programs run one at a time.
MIN_SAMPLES = 5
#: So many runs weigh; older ones fade.
MAX_SAMPLES = 100
#: So much of the limit may be forecast.
MAX_FORECAST_SHARE = 0.95
#: What a program of which nothing is known is taken for: a share of the limit.
DEFAULT_PEAK_SHARE = 1 / 8
#: The first in line is not overtaken for longer than this, in seconds.
MAX_OVERTAKEN_S = 1800.0


class Profile(Struct, frozen=True):
    """What is known of the peak memory of programs of one name, in bytes."""

    name: str
    samples: int = 0
    mean: float = 0.0
    variance: float = 0.0
    largest: int = 0


def add_sample(profile: Profile, peak: int) -> Profile:
    """The profile after one more run: plain moments at first, then ones in which older runs fade."""
    samples = min(profile.samples + 1, MAX_SAMPLES)
    weight = 1 / samples
    away = peak - profile.mean
    return Profile(
        profile.name,
        samples,
        profile.mean + weight * away,
        (1 - weight) * (profile.variance + weight * away * away),
        max(profile.largest, peak),
    )


def profile_name(label: str | None, argv: Sequence[str]) -> str:
    """Whose history a program shares: its label without parameters, or the program's own name."""
    return (label or "").partition("/")[0] or argv[0].rpartition("/")[2] or argv[0]


class ExpectedMemory(Struct, frozen=True):
    """The peak memory that a program is expected to have, in bytes, and by what: *known* ones may run side by side."""

    name: str
    mean: float
    deviation: float
    known: bool
    source: str


def expected_memory(profile: Profile, *, cap: int | None, declared: Mapping[str, int], limit: int) -> ExpectedMemory:
    """What a program will take: what a person has declared, what was measured, or what its cap allows.

    Names in *declared* match whole, or by ``*``; the first that matches counts.
    """
    name = profile.name
    figure = next((size for pattern, size in declared.items() if fnmatchcase(name, pattern)), None)
    if figure is not None:
        return ExpectedMemory(name, figure, 0.0, known=True, source="its memory profile")
    if profile.samples >= MIN_SAMPLES:
        mean = profile.mean if cap is None else min(profile.mean, cap)
        deviation = sqrt(profile.variance) if cap is None else min(sqrt(profile.variance), cap - mean)
        return ExpectedMemory(name, mean, deviation, known=True, source=f"{profile.samples} runs")
    if cap is not None:
        return ExpectedMemory(name, cap, 0.0, known=True, source="its cap")
    if profile.samples:
        return ExpectedMemory(name, profile.largest, 0.0, known=False, source=f"{profile.samples} runs")
    return ExpectedMemory(name, limit * DEFAULT_PEAK_SHARE, 0.0, known=False, source="nothing but a guess")


class RunningCommand(Struct, frozen=True):
    """A program that runs: what it takes now, in bytes, and what it was expected to take."""

    resident: int
    expected: ExpectedMemory


class MemoryRoom(Struct, frozen=True):
    """The memory that programs may take on a host, in bytes; less *now*, when others take more than is theirs."""

    limit: int
    now: int


def room(limit: int, total: int, used: int, *, own: int, promised: int = 0) -> MemoryRoom:
    """The room for programs. What the rest of the host takes must fit beside the limit, or it lessens the room.

    *own* is what our programs take of *used*, *promised* what those of other workers here have yet to take.
    """
    others = max(0, used - own)
    return MemoryRoom(limit, max(0, min(limit, total - others) - promised))


def host_limit_text(host: str, limits: Mapping[str, str]) -> str:
    """What people say about a host, by its name, or by ``*``: the first that matches counts."""
    return next((limit for pattern, limit in limits.items() if fnmatchcase(host, pattern)), f"{HOST_SHARE:.0%}")


def host_limit(limit: str, total: int) -> int:
    """The bytes that programs may take of *total*: ``80%`` of it, or ``48G``, never more than there is.

    Raises:
        InvalidInput: It is neither.
    """
    if limit.endswith("%"):
        share = limit.removesuffix("%").strip()
        if not share.isdecimal() or not 1 <= int(share) <= 100:
            raise InvalidInput(f"{limit!r} is no share of a host", hint="Write 80%, or a size such as 48G.")
        return total * int(share) // 100
    return min(total, as_bytes(limit))


def forecast(running: Sequence[RunningCommand], newcomer: ExpectedMemory | None = None) -> float:
    """What all will take at their peaks, in bytes: the sum of the means and one standard deviation of that sum."""
    peaks = [program.expected for program in running] + ([] if newcomer is None else [newcomer])
    means = sum(max(program.resident, program.expected.mean) for program in running)
    deviation = sqrt(sum(peak.deviation**2 for peak in peaks))
    return means + (0.0 if newcomer is None else newcomer.mean) + deviation


class Refusal(StrEnum):
    """Why a program may not begin."""

    MEMORY = "memory"
    UNKNOWN = "unknown"
    NEVER = "never"


def refusal(newcomer: ExpectedMemory, running: Sequence[RunningCommand], room: MemoryRoom) -> Refusal | None:
    """Why a program may not begin beside those that run; None: it may.

    Where nothing of ours runs and the host is otherwise busy, one that fits the limit may begin when it fits what is
    left: nobody is promised room that is not there.
    """
    if forecast([], newcomer) > MAX_FORECAST_SHARE * room.limit:
        return Refusal.NEVER
    if not newcomer.known and any(program.expected.name == newcomer.name for program in running):
        return Refusal.UNKNOWN
    if forecast(running, newcomer) > MAX_FORECAST_SHARE * room.now:
        return Refusal.MEMORY
    return None


class Candidate(Struct, frozen=True):
    """A program in line."""

    job_id: JobId
    expected: ExpectedMemory


class AdmissionChoice(Struct, frozen=True):
    """Who may begin, if anybody, and why those before could not."""

    chosen: Candidate | None
    refused: dict[JobId, Refusal]


def choose(
    line: Sequence[Candidate], running: Sequence[RunningCommand], room: MemoryRoom, *, waited: Mapping[JobId, float]
) -> AdmissionChoice:
    """The first in line that fits. One that has *waited* too long at the head is not passed any more.

    What can never fit holds nobody up.
    """
    refused: dict[JobId, Refusal] = {}
    for candidate in line:
        reason = refusal(candidate.expected, running, room)
        if reason is None:
            return AdmissionChoice(candidate, refused)
        refused[candidate.job_id] = reason
        if reason is not Refusal.NEVER and waited.get(candidate.job_id, 0.0) >= MAX_OVERTAKEN_S:
            break
    return AdmissionChoice(None, refused)


def describe_refusal(
    reason: Refusal, newcomer: ExpectedMemory, running: Sequence[RunningCommand], room: MemoryRoom
) -> str:
    """The refusal in words, with its figures."""
    needs_text = f"it is expected to take {format_size(newcomer.mean + newcomer.deviation)} ({newcomer.source})"
    match reason:
        case Refusal.NEVER:
            most = format_size(MAX_FORECAST_SHARE * room.limit)
            return f"{needs_text}, and programs may take no more than {most} here: it can never begin"
        case Refusal.UNKNOWN:
            return (
                f"fewer than {MIN_SAMPLES} runs of {newcomer.name!r} were measured: they run one at a time until then"
            )
        case Refusal.MEMORY:
            taken = f"{len(running)} programs are forecast to take {format_size(forecast(running))}"
            return f"{needs_text}; {taken} of {format_size(MAX_FORECAST_SHARE * room.now)}"
