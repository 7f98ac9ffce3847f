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

from holdfast.domain.access.masking import CUT, mask_value
from holdfast.domain.commands.command import HOST_SHARE, SHELLS, Command, host_capacity
from holdfast.domain.health_check import HealthCheck, ok, warn
from holdfast.domain.quantities import count_of

#: Common names of options whose value is an output path.
_OUTPUT_OPTIONS = re.compile(r"--?(o|((out|output|log|lock|checkpoint)-?(file|dir|path)?)|tmp|temp|tmp-?dir|temp-?dir)")
_OVERWRITES = (">", ">|", "&>", ">&")
_REDIRECTS = (*_OVERWRITES, ">>", "&>>")
_SEPARATORS = (";", "&&", "||", "|", "&", "(", ")")
#: Common names of variables whose value is an output path.
_OUTPUT_VARIABLES = re.compile(r"(\w+_)?(TMP_?DIR|TMP|TEMP|((OUT|OUTPUT|LOG|LOCK|CHECKPOINT)_?(FILE|DIR|PATH)))")
#: Subcommands of holdfast that take job ids.
_BY_NUMBER = ("wait", "log", "show", "kill", "cancel", "restart", "retry", "why")
#: The number of examples in a message, and the length of a command line in it.
MAX_EXAMPLES, MAX_LINE_CHARS = 3, 60


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
    text = "live commands with different parameters write to the same place: "
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
    lines = ((shlex.join(mask_value(list(jobs[0].command.argv))), jobs) for jobs in same.values() if len(jobs) > 1)
    twice = [f"{_cut(line)} (jobs {_ids(jobs)})" for line, jobs in lines]
    text = "the same command is queued more than once: "
    checked = _result("2 check first", twice, text, "Add a --key: a second live one is not added then.")
    users: dict[str, set[int]] = defaultdict(set)
    for each in live:
        for path in {each.command.cwd, *written(each.command), *_paths(each.command)}:
            for used in (path, *map(str, PurePosixPath(path).parents)):  # deleting a folder deletes its content
                users[used].add(each.id)
    others = [
        f"job {each.id} deletes {path}" for each in live for path in deleted(each.command) if users[path] - {each.id}
    ]
    if twice or not others:
        yield checked
    if others:
        text = "a live command deletes a path that another live one uses: "
        yield _result("2 check first", others, text, "Delete it --after the others have finished.")


def tolerant_deletes(live: Sequence[LiveCommand]) -> Iterator[HealthCheck]:
    """3: a delete tolerates absence: a second attempt repeats it."""
    strict = [
        f"{_cut(' '.join(words))} (job {each.id})"
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
    yield _result("4 atomic writes", torn, "a killed command leaves an incomplete file: ", fix)


def one_config(configs: Sequence[str]) -> Iterator[HealthCheck]:
    """5: one configuration file."""
    if len(configs) > 1:
        fix = "Keep one of them: with two, a change in one may have no effect."
        yield warn("5 one config", f"settings come from more than one file: {', '.join(configs)}", fix)
    else:
        yield ok("5 one config", configs[0] if configs else "no file: all defaults")


def used_host(live: Sequence[LiveCommand], host: HostSize) -> Iterator[HealthCheck]:
    """6: commands may use 80 % of the host, and should while others wait."""
    caps = sum(each.command.memory or 0 for each in live if each.running)
    if caps > host.memory * HOST_SHARE:
        limit = f"80 % of {host.memory / 2**30:,.1f} GB"
        text = f"the memory limits of running commands add up to {caps / 2**30:,.1f} GB, more than {limit}"
        yield warn("6 use of the host", text, "Limit the queue: holdfast queue set NAME --limit N; see holdfast size.")
        return
    waits = [each for each in live if not each.running and each.command.memory is not None]
    if waits and host.at_once is not None:
        largest = max(each.command.memory or 0 for each in waits)
        cores = max(each.command.cpus or 1.0 for each in waits)
        could, by = host_capacity(host.memory, host.cores, largest, cores)
        if could > 2 * max(1, host.at_once):
            many = count_of(len(waits), "command waits", "commands wait")
            text = f"{many} and {host.at_once} run here, although {could} would fit by {by}"
            yield warn("6 use of the host", text, f"holdfast up --slots {could}, or raise the limit of the queue.")
            return
    yield ok("6 use of the host", f"limits: {caps / 2**30:,.1f} GB of {host.memory * HOST_SHARE / 2**30:,.1f} GB")


def capped(live: Sequence[LiveCommand], host: HostSize) -> Iterator[HealthCheck]:
    """7: every command has a memory cap, and swap does not bypass it."""
    free = [str(each.id) for each in live if each.command.memory is None and each.command.about is None]
    if free:
        many = count_of(len(free), "live command has", "live commands have")
        text = f"{many} no memory limit (jobs {_some(free)})"
        yield warn("7 memory caps", text, 'Add --memory, or memory = "2G" below [command] or [profiles."label*"].')
    elif host.swap and not host.swap_counts and live:
        text = f"this host has {host.swap / 2**30:,.1f} GB of swap, which memory limits do not count here"
        yield warn("7 memory caps", text, "swapoff -a, or boot with swapaccount=1.")
    else:
        yield ok("7 memory caps", "every live command has one")


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
    yield _result("8 watch by name", numbered, "a live command names jobs by their ids: ", fix)


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


def _located_steps(command: Command) -> Iterator[tuple[str, list[str]]]:
    """The steps with their directories: "" after a ``cd`` that cannot be followed, such as to a variable."""
    directory = command.cwd
    for words in steps(command):
        yield directory, words
        if words[0] in ("cd", "pushd", "popd"):
            plain = len(words) == 2 and re.fullmatch(r"[\w./+@][\w./+@-]*", words[1]) and "(" not in command.argv[2]
            directory = _absolute(directory, words[1]) if plain and words[0] == "cd" else ""


def written(command: Command) -> set[str]:
    """The paths that a command writes to, by its words and variables."""
    variables = [value for name, value in command.env.items() if _OUTPUT_VARIABLES.fullmatch(name)]
    places = {_absolute(command.cwd, value) for value in variables if _is_file(value)}
    for directory, words in _located_steps(command):
        paths = []
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
        places |= {_absolute(directory, path) for path in paths if _is_file(path)}
    return places - {""}


def _is_file(path: str) -> bool:
    """Whether a word after a redirection names a file, not a device or a descriptor."""
    return bool(path) and path != "-" and not path.isdecimal() and not path.startswith(("/dev/", "&"))


def deleted(command: Command) -> set[str]:
    """The paths that a command deletes."""
    return {
        path
        for directory, words in _located_steps(command)
        if _executable(words) in ("rm", "rmdir", "unlink")
        for word in words[1:]
        if not word.startswith("-") and (path := _absolute(directory, word))
    }


def _paths(command: Command) -> Iterable[str]:
    deletes = deleted(command)
    for directory, words in _located_steps(command):
        for word in words[1:]:
            if "/" in word and (path := _absolute(directory, word.partition("=")[2] or word)) not in {"", *deletes}:
                yield path
    yield from (_absolute(command.cwd, value) for value in command.env.values() if value.startswith("/"))


def _absolute(directory: str, path: str) -> str:
    """A path in a directory; "" if the directory is not known and the path does not name its own."""
    known = directory or path.startswith("/")
    return os.path.normpath(os.path.join(directory, path)) if known else ""  # noqa: PTH118 - it may be on another host


def _executable(words: Sequence[str]) -> str:
    return words[0].rpartition("/")[2] if words else ""


def _forced(words: Sequence[str]) -> bool:
    return any(re.fullmatch(r"-[a-zA-Z]*f[a-zA-Z]*|--force|--ignore-fail-on-non-empty", word) for word in words)


def _result(name: str, violations: Sequence[str], text: str, fix: str) -> HealthCheck:
    return warn(name, text + _some(violations), fix) if violations else ok(name, "no examined command is against it")


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - MAX_EXAMPLES:,} more" if len(names) > MAX_EXAMPLES else ""
    return ", ".join(names[:MAX_EXAMPLES]) + more


def _cut(line: str) -> str:
    return line if len(line) <= MAX_LINE_CHARS else line[:MAX_LINE_CHARS] + CUT


def _ids(jobs: Iterable[LiveCommand]) -> str:
    return _some([str(each.id) for each in jobs])
