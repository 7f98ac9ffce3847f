"""Admission: the next command to start, by its expected peak memory.

Free memory alone does not decide: a command grows after its start. Earlier runs of the same label predict the peak.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from enum import StrEnum
from fnmatch import fnmatchcase
from math import sqrt

from msgspec import Struct

from holdfast.domain.commands.command import HOST_SHARE
from holdfast.domain.jobs.job import JobId
from holdfast.domain.names import MAX_NAME
from holdfast.domain.quantities import format_size

#: With fewer measured runs, commands of a label run one at a time.
MIN_SAMPLES = 5
#: The weight of older runs fades beyond this number.
MAX_SAMPLES = 100
#: The forecast may reach this share of the limit.
MAX_FORECAST_SHARE = 0.95
#: The expected peak of an unknown command, as a share of the limit.
DEFAULT_PEAK_SHARE = 1 / 8
#: Executables whose memory depends on the script that they run.
_INTERPRETER = re.compile(
    r"(python|pypy|perl|ruby|node|deno|bun|php|lua|julia|Rscript|java|sh|bash|dash|zsh|ksh)[\d.]*"
)
#: Later commands may overtake the first one for this time.
MAX_OVERTAKEN_S = 1800.0


class Profile(Struct, frozen=True):
    """Measured peak memory of commands of one name, in bytes."""

    name: str
    samples: int = 0
    mean: float = 0.0
    variance: float = 0.0
    largest: int = 0


def add_sample(profile: Profile, peak: int) -> Profile:
    """The profile after one more run: a plain mean and variance first, an exponentially weighted one later."""
    samples = min(profile.samples + 1, MAX_SAMPLES)
    weight = 1 / samples
    difference = peak - profile.mean
    return Profile(
        profile.name,
        samples,
        profile.mean + weight * difference,
        (1 - weight) * (profile.variance + weight * difference * difference),
        max(profile.largest, peak),
    )


def profile_name(label: str | None, argv: Sequence[str]) -> str:
    """The name of a command's profile: its label without parameters, or its executable.

    An interpreter runs anything, so the name of its script belongs to it.
    """
    labelled = (label or "").partition("/")[0]
    return labelled or " ".join(_executable(list(argv)))[:MAX_NAME]


def _executable(argv: list[str]) -> list[str]:
    name = argv[0].rpartition("/")[2] or argv[0]
    if name == "env":
        rest = [word for word in argv[1:] if not word.startswith("-") and "=" not in word]
        return _executable(argv[argv.index(rest[0]) :]) if rest else [name]
    if _INTERPRETER.fullmatch(name) is None:
        return [name]
    words = iter(argv[1:])
    for word in words:
        if word in ("-m", "-jar"):
            return [name, word, *list(words)[:1]]
        if word in ("-c", "-e"):
            return [name, word, *next(words, "").split()[:1]]
        if word in ("-W", "-X"):
            next(words, None)
        elif not word.startswith("-"):
            return [name, word.rpartition("/")[2] or word]
    return [name]


class ExpectedMemory(Struct, frozen=True):
    """The expected peak memory of a command, in bytes, and its *source*. Only *known* ones run side by side."""

    name: str
    mean: float
    deviation: float
    known: bool
    source: str


def expected_memory(profile: Profile, *, cap: int | None, declared: Mapping[str, int], limit: int) -> ExpectedMemory:
    """The peak memory that a person declared, that was measured, or that the cap allows.

    Names in *declared* match whole, or by ``*``; the first match counts.
    """
    name = profile.name
    size = next((size for pattern, size in declared.items() if fnmatchcase(name, pattern)), None)
    if size is not None:
        return ExpectedMemory(name, size, 0.0, known=True, source="its memory profile")
    if profile.samples >= MIN_SAMPLES:
        mean = profile.mean if cap is None else min(profile.mean, cap)
        deviation = sqrt(profile.variance) if cap is None else min(sqrt(profile.variance), cap - mean)
        return ExpectedMemory(name, mean, deviation, known=True, source=f"{profile.samples} runs")
    if cap is not None:
        return ExpectedMemory(name, cap, 0.0, known=True, source="its cap")
    if profile.samples:
        return ExpectedMemory(name, profile.largest, 0.0, known=False, source=f"{profile.samples} runs")
    return ExpectedMemory(name, limit * DEFAULT_PEAK_SHARE, 0.0, known=False, source="a guess")


class RunningCommand(Struct, frozen=True):
    """A running command: its memory now, in bytes, and its expected peak."""

    resident: int
    expected: ExpectedMemory


class MemoryRoom(Struct, frozen=True):
    """The memory for commands on a host, in bytes; *now* is less while other processes use more than their share."""

    limit: int
    now: int


def room(limit: int, total: int, used: int, *, own: int, promised: int = 0) -> MemoryRoom:
    """The memory for commands. Other processes reduce it if they do not fit beside the limit.

    *own* is the memory of this worker's commands within *used*; *promised* is the expected growth of those of others.
    """
    others = max(0, used - own)
    return MemoryRoom(limit, max(0, min(limit, total - others) - promised))


def host_limit_text(host: str, limits: Mapping[str, str]) -> str:
    """The configured limit of a host; names match whole, or by ``*``, and the first match counts."""
    return next((limit for pattern, limit in limits.items() if fnmatchcase(host, pattern)), f"{HOST_SHARE:.0%}")


def forecast(running: Sequence[RunningCommand], newcomer: ExpectedMemory | None = None) -> float:
    """The memory of all commands at their peaks, in bytes: the sum of means plus one standard deviation of the sum."""
    peaks = [command.expected for command in running] + ([] if newcomer is None else [newcomer])
    means = sum(max(command.resident, command.expected.mean) for command in running)
    deviation = sqrt(sum(peak.deviation**2 for peak in peaks))
    return means + (0.0 if newcomer is None else newcomer.mean) + deviation


class Refusal(StrEnum):
    """Why a command is not admitted."""

    MEMORY = "memory"
    UNKNOWN = "unknown"
    NEVER = "never"


def refusal(newcomer: ExpectedMemory, running: Sequence[RunningCommand], room: MemoryRoom) -> Refusal | None:
    """Why a command is not admitted beside the running ones; None if it is admitted.

    On a host that is busy otherwise, a command must fit the memory that is left, not only the limit.
    """
    if forecast([], newcomer) > MAX_FORECAST_SHARE * room.limit:
        return Refusal.NEVER
    if not newcomer.known and any(command.expected.name == newcomer.name for command in running):
        return Refusal.UNKNOWN
    if forecast(running, newcomer) > MAX_FORECAST_SHARE * room.now:
        return Refusal.MEMORY
    return None


class Candidate(Struct, frozen=True):
    """A ready command."""

    job_id: JobId
    expected: ExpectedMemory


class AdmissionChoice(Struct, frozen=True):
    """The command to start, if any, and why those before it are refused."""

    chosen: Candidate | None
    refused: dict[JobId, Refusal]


def choose(
    line: Sequence[Candidate], running: Sequence[RunningCommand], room: MemoryRoom, *, waited: Mapping[JobId, float]
) -> AdmissionChoice:
    """The first command that fits. One that has *waited* too long, in seconds, is no longer overtaken.

    A command that can never fit does not block the others.
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
    """The refusal as a sentence for people, with its numbers."""
    demand = f"it is expected to use {format_size(newcomer.mean + newcomer.deviation)} ({newcomer.source})"
    match reason:
        case Refusal.NEVER:
            most = format_size(MAX_FORECAST_SHARE * room.limit)
            return f"{demand}, and commands may use at most {most} here: it can never start"
        case Refusal.UNKNOWN:
            return (
                f"fewer than {MIN_SAMPLES} runs of {newcomer.name!r} were measured: they run one at a time until then"
            )
        case Refusal.MEMORY:
            taken = f"{len(running)} commands are forecast to use {format_size(forecast(running))}"
            return f"{demand}; {taken} of {format_size(MAX_FORECAST_SHARE * room.now)}"
