"""Commands: executables as jobs, their edits, the parameter grids of sweeps."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from itertools import product
from typing import Any

import msgspec
from msgspec import UNSET, Struct, UnsetType, structs

from holdfast.domain.access.masking import MASK
from holdfast.domain.jobs.job import COMMAND as COMMAND  # noqa: PLC0414 - importers of the rules take it from here
from holdfast.domain.jobs.job import Job
from holdfast.domain.names import checked_text, checked_variable
from holdfast.domain.quantities import as_duration
from holdfast.errors import InvalidInput, InvalidText

#: Variables stored from the environment in which the command was added.
CAPTURED_VARIABLES = ("PATH", "LANG", "LC_ALL", "TZ", "VIRTUAL_ENV", "CONDA_PREFIX")
#: Variables taken from the environment of the worker that runs it.
WORKER_VARIABLES = ("HOME", "USER", "LOGNAME", "SHELL", "TMPDIR", "XDG_RUNTIME_DIR", "XDG_DATA_HOME")
#: Variables whose values are shown; all others are masked.
VISIBLE_VARIABLES = frozenset(
    {
        *(*CAPTURED_VARIABLES, *WORKER_VARIABLES, "LC_CTYPE", "PWD", "TERM"),
        *("PYTHONPATH", "PYTHONUNBUFFERED", "PYTHONHASHSEED", "NODE_ENV"),
        *("CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"),
    }
)
#: A shorter value may be a common word, so that logs and errors show it, unless its name looks like a secret.
MIN_VARIABLE_CHARS = 6
_SECRET_NAME = re.compile(r"(?i)(secret|token|passw|credential|api_?key|private|_key$|^key$)")
#: Time between SIGTERM and SIGKILL for every stop of a command: kill, timeout, pause and the end of its worker.
DEFAULT_STOP_DELAY = timedelta(seconds=10)
#: Linux limits one argument to 32 pages, including its final NUL.
MAX_ARGUMENT_BYTES = 32 * 4096 - 1
SHELLS = ("sh", "bash", "dash", "zsh", "ksh", "fish")
#: A parameter in a word: {name}; {{ and }} are literal braces.
_PLACEHOLDER = re.compile(r"\{\{|\}\}|\{([A-Za-z_]\w*)\}")


class Command(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A command to run: its words, its directory, its environment.

    *memory* is in bytes. *stop_delay* is the time between SIGTERM and SIGKILL; None: the default. With *require_cap* it
    does not run on hosts that cannot enforce its caps. With *pause_queue* its queue is paused when it is dead. The
    placeholders of a callback *about* another job are replaced at its start. *origins* names the source of each value:
    an option, a place in a file, a person.
    """

    argv: tuple[str, ...]
    cwd: str
    env: dict[str, str] = {}
    parameters: dict[str, str] = {}
    timeout: timedelta | None = None
    stop_delay: timedelta | None = None
    memory: int | None = None
    cpus: float | None = None
    require_cap: bool = False
    log_cap: int | None = None
    pause_queue: bool = False
    about: int | None = None
    origins: dict[str, str] = {}

    def __post_init__(self) -> None:
        if not self.argv or not self.argv[0]:
            raise InvalidInput("a command has at least one word", hint="Write it after --: holdfast add -- make all.")
        for word in (*self.argv, self.cwd):
            checked_word(word, label="a word of a command")
        for name, value in self.env.items():
            checked_variable(name)
            checked_word(value, label=f"the variable {name}", room=MAX_ARGUMENT_BYTES - len(name) - 1)
        if self.timeout is not None and self.timeout <= timedelta(0):
            raise InvalidInput("a timeout must be greater than zero")
        if self.stop_delay is not None and self.stop_delay < timedelta(0):
            raise InvalidInput("a stop delay must not be negative")
        if self.cpus is not None and not 0.01 <= self.cpus <= 4096:
            raise InvalidInput(f"a share of the processors lies between 0.01 and 4096, not {self.cpus}")

    def dumps(self) -> str:
        return msgspec.json.encode(self).decode()

    @property
    def stop_delay_s(self) -> float:
        """Seconds between SIGTERM and SIGKILL."""
        return (DEFAULT_STOP_DELAY if self.stop_delay is None else self.stop_delay).total_seconds()

    @property
    def capped(self) -> bool:
        return self.memory is not None or self.cpus is not None


def load_command(text: str) -> Command:
    """The inverse of :meth:`Command.dumps`."""
    return _decoder.decode(text)


_decoder = msgspec.json.Decoder(Command)


def command_payload(payload: Mapping[str, Any]) -> dict[str, Any]:
    """The payload of a command that a person wrote, with its times as jobs keep them: ``10m`` becomes ``PT600S``."""
    times = {name: payload[name] for name in ("timeout", "stop_delay") if payload.get(name) is not None}
    written = {name: time for name, time in times.items() if not (isinstance(time, str) and time.startswith("P"))}
    return {**payload, **{name: msgspec.to_builtins(as_duration(time)) for name, time in written.items()}}


def checked_word(word: str, *, label: str, room: int = MAX_ARGUMENT_BYTES) -> str:
    """Return *word* if it can be stored and the kernel accepts it as an argument; *room* is in bytes."""
    try:
        checked_text(word, label=label)
    except InvalidText as error:
        message = error.message if "\0" in word else f"{label} is not UTF-8"
        hint = "Put such bytes into a file, and pass its name to the command."
        raise InvalidInput(f"{message}: {word!r:.80}", hint=hint) from None
    if len(word) * 4 > room and len(word.encode()) > room:
        hint = "Put it into a file, and pass its name to the command."
        message = f"{label} is longer than {room:,} bytes, the limit of the system: {word!r:.40}…"
        raise InvalidInput(message, hint=hint)
    return word


def environment(command: Command, worker_env: Mapping[str, str], **job_values: object) -> dict[str, str]:
    """The environment of a command: some of its worker's variables, the stored ones, and values of its job."""
    inherited = {name: worker_env[name] for name in WORKER_VARIABLES if name in worker_env}
    parameters = {f"HOLDFAST_PARAM_{name}": value for name, value in command.parameters.items()}
    job = {f"HOLDFAST_{name.upper()}": str(value) for name, value in job_values.items() if value is not None}
    return {**inherited, **command.env, **parameters, **job}


def mask_variables(env: Mapping[str, str]) -> dict[str, str]:
    """The variables, with all values masked but those of :data:`VISIBLE_VARIABLES`."""
    return {name: value if name in VISIBLE_VARIABLES else MASK for name, value in env.items()}


def secret_variables(payload: str) -> list[str]:
    """The values of a command's variables that its log, its errors and all else mask."""
    try:
        env = load_command(payload).env
    except (msgspec.DecodeError, InvalidInput):
        return []
    hidden = {name: value for name, value in env.items() if name not in VISIBLE_VARIABLES}
    return [value for name, value in hidden.items() if len(value) >= MIN_VARIABLE_CHARS or _SECRET_NAME.search(name)]


def masked_payload(kind: str, payload: str) -> str:
    """A payload with the variables of a command masked."""
    if kind != COMMAND:
        return payload
    try:
        command = load_command(payload)
    except (msgspec.DecodeError, InvalidInput):
        return payload
    return msgspec.structs.replace(command, env=mask_variables(command.env)).dumps()


#: Placeholders of a callback for values of the job that it follows.
CALLBACK_FIELDS = ("id", "label", "queue", "result", "exit_code", "start", "end", "output")


def callback_values(job: Job, exit_code: int | None, output: str) -> dict[str, str]:
    """The values of a finished job for the placeholders of a callback."""
    values = {
        "id": job.id,
        "label": job.label,
        "queue": job.queue,
        "result": job.state,
        "exit_code": exit_code,
        "start": None if job.started_at is None else job.started_at.isoformat(),
        "end": None if job.finished_at is None else job.finished_at.isoformat(),
        "output": output,
    }
    return {name: "" if value is None else str(value) for name, value in values.items()}


#: The default share of a host that commands may use.
HOST_SHARE = 0.8


def host_capacity(memory: int, cores: float, job_memory: int, job_cores: float, *, used: int = 0) -> tuple[int, str]:
    """The number of commands of one size that fit a host beside its *used* memory, and the scarcer resource."""
    if job_memory <= 0 or job_cores <= 0:
        raise InvalidInput("the memory and the processors of a command must be greater than zero")
    by_memory = int(max(0, min(memory * HOST_SHARE, memory - used)) / job_memory)
    by_cores = int(cores * HOST_SHARE / job_cores)
    return (by_memory, "memory") if by_memory <= by_cores else (by_cores, "cores")


def grid(parameters: Mapping[str, Sequence[str]]) -> Iterator[dict[str, str]]:
    """Every combination of the values; the last parameter varies fastest."""
    names = list(parameters)
    for values in product(*parameters.values()):
        yield dict(zip(names, values, strict=True))


#: Most values of one parameter of a sweep that a range stands for.
MAX_RANGE_VALUES = 100_000
_RANGE = re.compile(r"(-?\d{1,18})\.\.(-?\d{1,18})")
#: Two dots between two texts, outside a path: a range of something that is not a whole number.
_OTHER_RANGE = re.compile(r"[^/.]([^/]*[^/.])?\.\.[^/.]([^/]*[^/.])?")


def parameter_values(name: str, text: str) -> list[str]:
    """The values of ``A,B,…``, each once. ``2019..2022`` stands for the whole numbers from 2019 to 2022, both included.

    Zeros before the first number keep its width: ``01..12``.
    """
    values = dict[str, None]()
    for item in text.split(","):
        if (match := _RANGE.fullmatch(item)) is None:
            if _OTHER_RANGE.fullmatch(item):
                hint = f"Name the values: --param {name}=A,B,C; values with two dots come from --csv."
                raise InvalidInput(f"{name}={item!r} is not a range of whole numbers", hint=hint)
            values[item] = None
            continue
        first, last = int(match[1]), int(match[2])
        if not 0 <= last - first < MAX_RANGE_VALUES:
            why = "ends before it begins" if last < first else f"has more than {MAX_RANGE_VALUES:,} values"
            raise InvalidInput(f"the range {name}={item} {why}", hint=f"Write --param {name}=1..5.")
        width = len(match[1])
        values |= dict.fromkeys(
            f"{number:0{width}d}" if first >= 0 else str(number) for number in range(first, last + 1)
        )
    return list(values)


def substitute(words: Sequence[str], parameters: Mapping[str, str]) -> tuple[str, ...]:
    """Replace placeholders. A value stays within one word, even with spaces."""

    def value(match: re.Match[str]) -> str:
        return match[0][0] if match[1] is None else parameters[match[1]]

    return tuple(_PLACEHOLDER.sub(value, word) for word in words)


def placeholders(words: Iterable[str]) -> list[str]:
    """The parameters in the words, each once."""
    names = (match[1] for word in words for match in _PLACEHOLDER.finditer(word))
    return list(dict.fromkeys(name for name in names if name is not None))


def check_placeholders(words: Sequence[str], names: Iterable[str], *, all_used: bool = True) -> None:
    """Refuse an unknown placeholder, one inside shell code, and a parameter without a placeholder."""
    known, used = list(names), placeholders(words)
    check_shell(words)
    for name in used:
        if name not in known:
            raise InvalidInput(f"no parameter for {{{name}}}", hint=f"Add --param {name}=…, or write {{{{{name}}}}}.")
    for name in known if all_used else ():
        if name not in used:
            raise InvalidInput(f"the parameter {name!r} is not used", hint=f"Put {{{name}}} into the command.")


def check_shell(words: Sequence[str]) -> None:
    """Refuse a placeholder inside shell code: the shell would execute its value."""
    for shell, option, text in zip(words, words[1:], words[2:], strict=False):
        if shell.rpartition("/")[2] in SHELLS and re.fullmatch(r"-[a-z]*c", option) and placeholders([text]):
            name = placeholders([text])[0]
            hint = f"Write sh -c 'echo \"$1\"' - {{{name}}}: the value is a word of its own then."
            raise InvalidInput(f"the shell would interpret the value of {{{name}}}", hint=hint)


def sweep_label(label: str, parameters: Mapping[str, str]) -> str:
    """A label that carries every parameter: ``sweep/symbol=A/year=2020``."""
    return "/".join([label, *(f"{name}={value}" for name, value in parameters.items())])


def sweep_key(label: str, words: Sequence[str], parameters: Mapping[str, str]) -> str:
    """The unique key of one command of a sweep."""
    text = msgspec.json.encode([label, words, list(parameters.items())])
    import hashlib  # it loads OpenSSL

    return f"sweep {hashlib.sha256(text).hexdigest()}"


def encode_outcome(values: Mapping[str, Any]) -> str:
    """The result of a successful run as JSON."""
    return msgspec.json.encode({name: value for name, value in values.items() if value is not None}).decode()


#: Fields of a command that an edit may set, besides variables.
EDITABLE_FIELDS = ("cwd", "timeout", "stop_delay", "memory", "cpus", "log_cap")


class Edit(Struct, frozen=True, kw_only=True):
    """New values; UNSET keeps the old one. *env* adds or changes variables, *without* deletes them."""

    env: dict[str, str] = {}
    without: tuple[str, ...] = ()
    cwd: str | UnsetType = UNSET
    timeout: timedelta | UnsetType | None = UNSET
    stop_delay: timedelta | UnsetType | None = UNSET
    memory: int | UnsetType | None = UNSET
    cpus: float | UnsetType | None = UNSET
    log_cap: int | UnsetType | None = UNSET

    @property
    def fields(self) -> dict[str, Any]:
        return {name: value for name in EDITABLE_FIELDS if (value := getattr(self, name)) is not UNSET}

    def __bool__(self) -> bool:
        return bool(self.env or self.without or self.fields)

    def __str__(self) -> str:
        return " ".join(f"{name}={value}" for name, value in self.describe().items())

    def applied(self, payload: str, actor: str) -> str:
        """The new payload of the command; the same string if nothing changes."""
        command = load_command(payload)
        env = {name: value for name, value in {**command.env, **self.env}.items() if name not in self.without}
        changes: dict[str, Any] = {**self.fields, "env": env}
        changed = [name for name in self.fields if getattr(command, name) != changes[name]]
        changed += [f"env.{name}" for name in sorted({*command.env, *env}) if command.env.get(name) != env.get(name)]
        if not changed:
            return payload
        known = {f"env.{name}" for name in env}
        kept = {key: origin for key, origin in command.origins.items() if not key.startswith("env.") or key in known}
        return structs.replace(command, **changes, origins=kept | dict.fromkeys(changed, f"set by {actor}")).dumps()

    def describe(self) -> dict[str, object]:
        """The changes for the history, with secrets masked."""
        fields = {
            name: value.total_seconds() if isinstance(value, timedelta) else value
            for name, value in self.fields.items()
        }
        named = {**mask_variables(self.env), **dict.fromkeys(self.without)}
        return {**fields, **({"env": named} if named else {})}
