"""The eight invariants of commands that share hosts and disks; each violation has a fix.

The checks read the words, variables and caps of commands: most mistakes show there.
"""

from __future__ import annotations

import os
import re
import shlex
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import PurePosixPath

from msgspec import Struct

from holdfast.domain.commands.command import HOST_SHARE, SHELLS, Command, host_capacity
from holdfast.domain.health_check import HealthCheck, ok, warn

#: Common names of options whose value is an output path.
_OUTPUT_OPTIONS = re.compile(r"--?(o|((out|output|log|lock|checkpoint)-?(file|dir|path)?)|tmp|temp|tmp-?dir|temp-?dir)")
_OVERWRITES = (">", ">|", "&>", ">&")
_REDIRECTS = (*_OVERWRITES, ">>", "&>>")
_SEPARATORS = (";", "&&", "||", "|", "&", "(", ")")
#: Common names of variables whose value is an output path.
_OUTPUT_VARIABLES = re.compile(r"(\w+_)?(TMP_?DIR|TMP|TEMP|((OUT|OUTPUT|LOG|LOCK|CHECKPOINT)_?(FILE|DIR|PATH)))")
#: Subcommands of holdfast that take job ids.
_BY_NUMBER = ("wait", "log", "show", "kill", "cancel", "restart", "retry", "why")
#: The number of examples in a message.
MAX_EXAMPLES = 3


class LiveCommand(Struct, frozen=True, kw_only=True):
    """A command that is running or ready to run."""

    id: int
    command: Command
    label: str = ""
    key: str | None = None
    queue: str = "default"
    running: bool = False


class HostSize(Struct, frozen=True, kw_only=True):
    """The size of a host; *swap_counts*: caps include swap. *at_once* is the number of slots; None: no worker."""

    memory: int
    cores: int
    swap: int = 0
    swap_counts: bool = True
    at_once: int | None = None


def examine(live: Sequence[LiveCommand], host: HostSize, configs: Sequence[str]) -> Iterator[HealthCheck]:
    """Check all eight, in order."""
    yield from shared_paths(live)
    yield from checked_first(live)
    yield from tolerant_deletes(live)
    yield from atomic_writes(live)
    yield from one_config(configs)
    yield from used_host(live, host)
    yield from capped(live, host)
    yield from watched_by_name(live)


def shared_paths(live: Sequence[LiveCommand]) -> Iterator[HealthCheck]:
    """1: paths, temporary directories and locks carry all parameters."""
    writers: dict[str, list[LiveCommand]] = defaultdict(list)
    for each in live:
        for path in written(each.command):
            writers[path].append(each)
    shared = {path: jobs for path, jobs in writers.items() if len({one.command.argv for one in jobs}) > 1}
    text = "live programs with different parameters write to the same place: "
    fix = (
        "Put every parameter into the name: {symbol}-{year}.csv, or sweep --workdir; files.path_for does it in Python."
    )
    yield _result("1 shared paths", [f"{path} (jobs {_ids(jobs)})" for path, jobs in shared.items()], text, fix)


def checked_first(live: Sequence[LiveCommand]) -> Iterator[HealthCheck]:
    """2: no command is queued twice, and none deletes a path of another."""
    same: dict[object, list[LiveCommand]] = defaultdict(list)
    for each in live:
        if each.key is None and each.command.about is None:
            same[(each.command.argv, each.command.cwd, tuple(sorted(each.command.env.items())))].append(each)
    twice = [f"{shlex.join(jobs[0].command.argv)[:60]} (jobs {_ids(jobs)})" for jobs in same.values() if len(jobs) > 1]
    text = "the same program is queued more than once: "
    yield _result("2 check first", twice, text, "Give it a --key: a live one is found then.")
    users: dict[str, set[int]] = defaultdict(set)
    for each in live:
        for path in {each.command.cwd, *written(each.command), *_paths(each.command)}:
            for used in (path, *map(str, PurePosixPath(path).parents)):  # who deletes a folder deletes what is in it
                users[used].add(each.id)
    others = [
        f"job {each.id} deletes {path}" for each in live for path in deleted(each.command) if users[path] - {each.id}
    ]
    if others:
        text = "a live program deletes what another live one names: "
        yield _result("2 check first", others, text, "Delete it --after the others have ended, or give each its own.")


def tolerant_deletes(live: Sequence[LiveCommand]) -> Iterator[HealthCheck]:
    """3: a delete tolerates absence: a second attempt repeats it."""
    strict = [
        f"{' '.join(words)[:60]} (job {each.id})"
        for each in live
        for words in steps(each.command)
        if _executable(words) in ("rm", "rmdir", "unlink") and not _forced(words)
    ]
    fix = "Use rm -f; in Python files.delete."
    yield _result("3 deletes", strict, "a delete fails when there is nothing to delete: ", fix)


def atomic_writes(live: Sequence[LiveCommand]) -> Iterator[HealthCheck]:
    """4: a file is written under a temporary name, then renamed."""
    torn = []
    for each in live:
        words = [word for step in steps(each.command) for word in step]
        moved = {step[-2] for step in steps(each.command) if _executable(step) == "mv" and len(step) > 2}
        for operator, target in pairwise(words):
            if operator in _OVERWRITES and _is_file(target) and target not in moved:
                torn.append(f"{target} (job {each.id})")
    fix = "Write to a name ending in .part and mv it into place; in Python files.write."
    yield _result("4 atomic writes", torn, "a program that is killed leaves half a file: ", fix)


def one_config(configs: Sequence[str]) -> Iterator[HealthCheck]:
    """5: one configuration file."""
    if len(configs) > 1:
        fix = "Keep one of them: values that are set twice are changed once."
        yield warn("5 one config", f"settings come from more than one file: {', '.join(configs)}", fix)
    else:
        yield ok("5 one config", configs[0] if configs else "no file: all defaults")


def used_host(live: Sequence[LiveCommand], host: HostSize) -> Iterator[HealthCheck]:
    """6: commands may use 80 % of the host, and should while others wait."""
    caps = sum(each.command.memory or 0 for each in live if each.running)
    if caps > host.memory * HOST_SHARE:
        limit = f"80 % of {host.memory / 2**30:,.1f} GB"
        text = f"the caps of what runs add up to {caps / 2**30:,.1f} GB, more than {limit}"
        yield warn("6 use of the host", text, "Limit the queue: holdfast queue set NAME --limit N; see holdfast size.")
        return
    waits = [each for each in live if not each.running and each.command.memory is not None]
    if waits and host.at_once is not None:
        largest = max(each.command.memory or 0 for each in waits)
        cores = max(each.command.cpus or 1.0 for each in waits)
        could, by = host_capacity(host.memory, host.cores, largest, cores)
        if could > 2 * max(1, host.at_once):
            text = f"{len(waits):,} programs wait and {host.at_once} run here, though {could} would fit by {by}"
            yield warn("6 use of the host", text, f"holdfast up --slots {could}, or raise the limit of the queue.")
            return
    yield ok("6 use of the host", f"{caps / 2**30:,.1f} GB of {host.memory * HOST_SHARE / 2**30:,.1f} GB are promised")


def capped(live: Sequence[LiveCommand], host: HostSize) -> Iterator[HealthCheck]:
    """7: every command has a memory cap, and swap does not bypass it."""
    free = [str(each.id) for each in live if each.command.memory is None and each.command.about is None]
    if free:
        text = f"{len(free):,} live programs have no memory cap (jobs {_some(free)})"
        yield warn("7 memory caps", text, 'Add --memory, or memory = "2G" below [command] or [profiles."label*"].')
    elif host.swap and not host.swap_counts and live:
        text = f"this host has {host.swap / 2**30:,.1f} GB of swap, which caps do not count here"
        yield warn("7 memory caps", text, "swapoff -a, or boot with swapaccount=1.")
    else:
        yield ok("7 memory caps", "every live program has one")


def watched_by_name(live: Sequence[LiveCommand]) -> Iterator[HealthCheck]:
    """8: commands refer to jobs by queue and label: ids change with every run."""
    numbered = [
        f"{' '.join(words[:4])} (job {each.id})"
        for each in live
        for words in steps(each.command)
        if _executable(words) == "holdfast" and len(words) > 2 and words[1] in _BY_NUMBER
        if any(word.isdecimal() for word in words[2:])
    ]
    fix = "Use --label, --queue or --key: holdfast wait --label nightly."
    yield _result("8 watch by name", numbered, "a live program names jobs by their numbers: ", fix)


def steps(command: Command) -> list[list[str]]:
    """The executables that a command runs, by its words: itself, or those in its shell code."""
    words = list(command.argv)
    if len(words) < 3 or _executable(words) not in SHELLS or not re.fullmatch(r"-[a-z]*c", words[1]):
        return [words]
    try:
        reader = shlex.shlex(words[2], posix=True, punctuation_chars=True)
        reader.whitespace_split = True
        tokens = list(reader)
    except ValueError:
        return []
    lines: list[list[str]] = [[]]
    for token in tokens:
        if token in _SEPARATORS:
            lines.append([])
        else:
            lines[-1].append(token)
    return [line for line in lines if line]


def written(command: Command) -> set[str]:
    """The paths that a command writes to, by its words and variables."""
    paths = [value for name, value in command.env.items() if _OUTPUT_VARIABLES.fullmatch(name)]
    for words in steps(command):
        for word, after in zip(words, [*words[1:], ""], strict=True):
            name, equals, value = word.partition("=")
            if equals and (_OUTPUT_OPTIONS.fullmatch(name) or _OUTPUT_VARIABLES.fullmatch(name) or name == "of"):
                paths.append(value)
            elif (word in _REDIRECTS or _OUTPUT_OPTIONS.fullmatch(word)) and not after.startswith("-"):
                paths.append(after)
            elif word.endswith((".lock", ".pid")):
                paths.append(word)
        if _executable(words) == "tee":
            paths += [word for word in words[1:] if not word.startswith("-")]
    return {_absolute(command, path) for path in paths if _is_file(path)}


def _is_file(path: str) -> bool:
    """Whether a word after a redirection names a file, not a device or a descriptor."""
    return bool(path) and path != "-" and not path.isdecimal() and not path.startswith(("/dev/", "&"))


def deleted(command: Command) -> set[str]:
    """The paths that a command deletes."""
    return {
        _absolute(command, word)
        for words in steps(command)
        if _executable(words) in ("rm", "rmdir", "unlink")
        for word in words[1:]
        if not word.startswith("-")
    }


def _paths(command: Command) -> Iterable[str]:
    deletes = deleted(command)
    for words in steps(command):
        for word in words[1:]:
            if "/" in word and (path := _absolute(command, word.partition("=")[2] or word)) not in deletes:
                yield path
    yield from (_absolute(command, value) for value in command.env.values() if value.startswith("/"))


def _absolute(command: Command, path: str) -> str:
    return os.path.normpath(os.path.join(command.cwd, path))  # noqa: PTH118 - it may be on another host


def _executable(words: Sequence[str]) -> str:
    return words[0].rpartition("/")[2] if words else ""


def _forced(words: Sequence[str]) -> bool:
    return any(re.fullmatch(r"-[a-zA-Z]*f[a-zA-Z]*|--force|--ignore-fail-on-non-empty", word) for word in words)


def _result(name: str, violations: Sequence[str], text: str, fix: str) -> HealthCheck:
    return (
        warn(name, text + _some(violations), fix)
        if violations
        else ok(name, "nothing in the examined commands is against it")
    )


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - MAX_EXAMPLES:,} more" if len(names) > MAX_EXAMPLES else ""
    return ", ".join(names[:MAX_EXAMPLES]) + more


def _ids(jobs: Iterable[LiveCommand]) -> str:
    return _some([str(each.id) for each in jobs])
