"""One table of requests, enqueued through every door: Python, HTTP, the command line and SQL answer alike (2.5, 2.36)."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from enum import Enum
from typing import Any, Literal

import msgspec
import psycopg
import pytest

import holdfast
from holdfast.admin.actions.actions import Actions
from holdfast.cli.main import main
from holdfast.domain.access.audit import Via
from holdfast.domain.batches.unit_function import PublishedUnit
from holdfast.domain.jobs.kind_options import KindOptions, PublishedKind, dump_options
from holdfast.domain.jobs.new_job import EnqueueOutcome
from holdfast.domain.jobs.verdict import Done, Failed
from holdfast.errors import HoldfastError
from holdfast.web.api.jobs import EnqueueBody
from tests.support.backends import available, open_database
from tests.support.jobs import take_one

POSTGRES = [name for name in available() if name != "sqlite"]
CREATED, EXISTING, REPLACED, RERUN = EnqueueOutcome
PYTHON, HTTP, CLI, SQL = "python", "http", "cli", "sql"
#: The doors that take JSON: the others cannot write every value of it.
JSON_DOORS = frozenset({HTTP, SQL})
#: The doors that read the published schema, and not the annotations of the handler.
BY_SCHEMA = frozenset({HTTP, CLI, SQL})
ALL = frozenset({PYTHON, HTTP, CLI, SQL})
INVALID, PAYLOAD, TEXT = "E_INVALID", "E_INVALID_PAYLOAD", "E_INVALID_TEXT"
MISSING, DUPLICATE = "E_DEPENDENCY_NOT_FOUND", "E_DUPLICATE_JOB"


class Size(Enum):
    S = "small"
    L = "large"


@dataclass
class Point:
    x: int
    y: float = 0.0
    inner: Point | None = None


def typed(payload: Any) -> dict[str, Any]:
    """A request of the kind that has parameters of many types."""
    return {"kind": "typed", "payload": payload}


def mail(**options: Any) -> dict[str, Any]:
    return {"kind": "mail", "payload": {"to": 1}, **options}


#: Each request, what it leads to, and the doors that can express it.
TABLE: tuple[tuple[Any, str, frozenset[str]], ...] = (
    # Payloads: names, required ones, types.
    ({"kind": "mail", "payload": {"to": 7}}, CREATED, ALL),
    ({"kind": "none", "payload": {}}, CREATED, ALL),
    ({"kind": "none"}, CREATED, ALL),
    ({"kind": "none", "payload": {"to": 1}}, PAYLOAD, ALL),
    ({"kind": "mail", "payload": {}}, PAYLOAD, ALL),
    ({"kind": "mail", "payload": {"bogus": "x"}}, PAYLOAD, ALL),
    ({"kind": "mail", "payload": {"to": 1, "bogus": "x"}}, PAYLOAD, ALL),
    ({"kind": "mail", "payload": {"to": "1"}}, PAYLOAD, ALL),
    ({"kind": "mail", "payload": {"to": None}}, PAYLOAD, ALL),
    ({"kind": "mail", "payload": {"to": True}}, PAYLOAD, ALL),
    ({"kind": "mail", "payload": {"to": 1.5}}, PAYLOAD, ALL),
    ({"kind": "mail", "payload": {"to": 2**70}}, CREATED, ALL),
    ({"kind": "mail", "payload": {"to": -(2**63)}}, CREATED, ALL),
    ('{"kind": "mail", "payload": {"to": 1.0}}', PAYLOAD, BY_SCHEMA),
    ('{"kind": "mail", "payload": {"to": 1e2}}', PAYLOAD, BY_SCHEMA),
    (typed({"f": 1, "any": 1e300}), CREATED, ALL),
    (typed({"f": 1.5, "any": [None, {"a": [1, "2", {}]}, "  a  b ", 'say "hi"  \\']}), CREATED, ALL),
    (typed({"f": "1"}), PAYLOAD, ALL),
    (typed({"f": 1, "maybe": None}), CREATED, ALL),
    (typed({"f": 1, "maybe": 3}), CREATED, ALL),
    (typed({"f": 1, "maybe": "3"}), PAYLOAD, ALL),
    (typed({"f": 1, "either": "a"}), CREATED, ALL),
    (typed({"f": 1, "either": [1]}), PAYLOAD, ALL),
    (typed({"f": 1, "size": "small"}), CREATED, ALL),
    (typed({"f": 1, "size": "middle"}), PAYLOAD, ALL),
    (typed({"f": 1, "chosen": 2}), CREATED, ALL),
    (typed({"f": 1, "chosen": 3}), PAYLOAD, ALL),
    (typed({"f": 1, "numbers": [1, 2, 3]}), CREATED, ALL),
    (typed({"f": 1, "numbers": []}), CREATED, ALL),
    (typed({"f": 1, "numbers": [1, 2, "3"]}), PAYLOAD, ALL),
    (typed({"f": 1, "numbers": {"0": 1}}), PAYLOAD, ALL),
    (typed({"f": 1, "pair": [1, "a"]}), CREATED, ALL),
    (typed({"f": 1, "pair": ["a", 1]}), PAYLOAD, ALL),
    (typed({"f": 1, "pair": [1, "a", 2]}), PAYLOAD, ALL),
    (typed({"f": 1, "counts": {"a": 1}}), CREATED, ALL),
    (typed({"f": 1, "counts": {"a": "1"}}), PAYLOAD, ALL),
    (typed({"f": 1, "point": {"x": 1, "inner": {"x": 2, "y": 0.5, "inner": None}}}), CREATED, ALL),
    (typed({"f": 1, "point": {"x": 1, "inner": {"x": "2"}}}), PAYLOAD, ALL),
    (typed({"f": 1, "point": {"y": 1}}), PAYLOAD, ALL),
    (typed({"f": 1, "point": 5}), PAYLOAD, ALL),
    (typed({"f": 1, "points": [{"x": 1}, {"x": None}]}), PAYLOAD, ALL),
    (typed({"f": 1, "amount": "1.50"}), CREATED, ALL),
    (typed({"f": 1, "amount": 1.5}), CREATED, ALL),
    (typed({"f": 1, "amount": True}), PAYLOAD, ALL),
    (typed({"f": 1, "at": "2030-01-01T00:00:00Z"}), CREATED, ALL),
    (typed({"f": 1, "at": 5}), PAYLOAD, ALL),
    # The schema says that it is a text; the worker reads what it means.
    (typed({"f": 1, "at": "yesterday"}), CREATED, BY_SCHEMA),
    # What JSON cannot keep, and how much of it.
    ('{"kind": "mail", "payload": {"to": 1, "to": 2}}', CREATED, JSON_DOORS | {CLI}),
    ('{"kind": "typed", "payload": {"f": 1, "any": 1e999}}', PAYLOAD, {CLI, SQL}),
    ('{"kind": "typed", "payload": {"f": 1, "any": "1e999"}}', CREATED, ALL),
    ('{"kind": "typed", "payload": {"f": 1, "any": "\\u0000"}}', TEXT, ALL),
    ('{"kind": "typed", "payload": {"f": 1, "any": "\\\\u0000"}}', CREATED, ALL),
    ('{"kind": "typed", "payload": {"f": 1, "any": "é \\u00e9 \\ud83d\\ude00"}}', CREATED, BY_SCHEMA),
    (typed({"f": 1, "any": "x" * (256 * 1024 - 16)}), CREATED, JSON_DOORS | {PYTHON}),
    (typed({"f": 1, "any": "x" * (256 * 1024 - 15)}), "E_PAYLOAD_TOO_LARGE", JSON_DOORS | {PYTHON}),
    ('{"kind": "typed", "payload": {"f": 1, "any": ' + "[" * 99 + "]" * 99 + "}}", CREATED, ALL),
    ('{"kind": "typed", "payload": {"f": 1, "any": ' + "[" * 100 + "]" * 100 + "}}", PAYLOAD, ALL),
    ('{"kind": "mail", "payload": [1]}', PAYLOAD, {CLI, SQL}),
    ('{"kind": "mail", "payload": null}', PAYLOAD, {CLI, SQL}),
    # The kind.
    ({"kind": "nobody", "payload": {}}, "E_UNKNOWN_KIND", ALL),
    ({"kind": "holdfast.ping", "payload": {}}, INVALID, BY_SCHEMA),
    ({"kind": "pages", "payload": {}}, INVALID, BY_SCHEMA),
    ({"payload": {}}, INVALID, JSON_DOORS),
    ({"kind": None}, INVALID, JSON_DOORS),
    ({"kind": "older", "payload": {"n": 1}}, CREATED, BY_SCHEMA),
    # Options, one by one.
    (mail(bogus=1), INVALID, JSON_DOORS),
    (mail(queue="images", priority=-5, label="a b", tags=["x", "y,z"]), CREATED, ALL),
    (mail(queue=None, priority=None, label=None, key=None, after=None, timeout=None), CREATED, JSON_DOORS | {PYTHON}),
    (mail(queue=""), INVALID, ALL),
    (mail(queue=" q"), INVALID, ALL),
    (mail(label="l\u00a0"), INVALID, ALL),
    (mail(label="l\u2003"), INVALID, ALL),
    (mail(label="x" * 200), CREATED, ALL),
    (mail(label="x" * 201), INVALID, ALL),
    (mail(label=5), INVALID, JSON_DOORS),
    (mail(tags=[""]), INVALID, ALL),
    (mail(tags=["x"] * 100), CREATED, ALL),
    (mail(tags=["x"] * 101), INVALID, JSON_DOORS),
    (mail(tags=[1]), INVALID, JSON_DOORS),
    (mail(tags=None), INVALID, JSON_DOORS),
    (mail(tags=[]), CREATED, ALL),
    (mail(priority=2**31 - 1), CREATED, ALL),
    (mail(priority=2**31), INVALID, JSON_DOORS | {PYTHON}),
    (mail(priority=1.5), INVALID, JSON_DOORS),
    (mail(priority="1"), INVALID, JSON_DOORS),
    (mail(delay="1h30m"), CREATED, ALL),
    (mail(delay="1.5h"), CREATED, ALL),
    (mail(delay=" 500MS "), CREATED, ALL),
    (mail(delay="90"), CREATED, ALL),
    (mail(delay=0.25), CREATED, JSON_DOORS | {PYTHON}),
    (mail(delay="36525d"), CREATED, ALL),
    (mail(delay="36526d"), INVALID, ALL),
    (mail(delay="soon"), INVALID, ALL),
    (mail(delay=""), INVALID, ALL),
    (mail(delay=-1), INVALID, JSON_DOORS | {PYTHON}),
    (mail(delay=True), INVALID, JSON_DOORS),
    (mail(run_at="2030-06-01T00:00:00+02:00"), CREATED, ALL),
    (mail(run_at="2029-06-01T00:00:00.123456Z"), CREATED, ALL),
    (mail(run_at="9001-01-01T00:00:00Z"), INVALID, ALL),
    (mail(run_at="1800-01-01T00:00:00Z"), INVALID, ALL),
    (mail(run_at="2030-06-01T00:00:00"), INVALID, JSON_DOORS | {PYTHON}),
    (mail(run_at="2030-02-30T00:00:00Z"), INVALID, JSON_DOORS),
    (mail(run_at="tomorrow"), INVALID, JSON_DOORS),
    (mail(run_at=1893456000), INVALID, JSON_DOORS),
    (mail(run_at="2030-06-01T00:00:00Z", delay="1s"), INVALID, ALL),
    (mail(hold=True), CREATED, ALL),
    (mail(hold="yes"), INVALID, JSON_DOORS),
    (mail(hold=None), INVALID, JSON_DOORS),
    (mail(max_attempts=9, timeout="2h", retry=["10s", "1m30s"]), CREATED, ALL),
    (mail(max_attempts=0, timeout=0, retry=["0"]), CREATED, JSON_DOORS | {PYTHON}),
    (mail(max_attempts=-1), INVALID, ALL),
    (mail(max_attempts=2**31), INVALID, JSON_DOORS),
    (mail(timeout=-1), INVALID, JSON_DOORS | {PYTHON}),
    (mail(retry=[]), INVALID, JSON_DOORS | {PYTHON}),
    (mail(retry=["soon"]), INVALID, ALL),
    (mail(retry=[None]), INVALID, JSON_DOORS),
    ({"kind": "patient", "payload": {}}, CREATED, ALL),
    ({"kind": "patient", "payload": {}, "retry": None, "max_attempts": None}, CREATED, JSON_DOORS | {PYTHON}),
    # Keys: new, existing, replaced and rerun are told apart.
    (mail(key="k1"), CREATED, ALL),
    (mail(key="k1"), EXISTING, ALL),
    (mail(key="k1", on_conflict="skip", label="no"), EXISTING, ALL),
    (mail(key="k1", on_conflict="replace", priority=3, label="yes", tags=["t"], delay="1m"), REPLACED, ALL),
    (mail(key="k1", on_conflict="rerun"), REPLACED, ALL),
    (mail(key="k1", on_conflict="raise"), DUPLICATE, ALL),
    (mail(key="k2", on_conflict="replace"), CREATED, ALL),
    (mail(key="running", on_conflict="replace"), EXISTING, ALL),
    (mail(key="running"), EXISTING, ALL),
    (mail(key="running", on_conflict="rerun", payload={"to": 2}), RERUN, ALL),
    (mail(key="running", on_conflict="rerun", payload={"to": 3}), REPLACED, ALL),
    (mail(key="done"), CREATED, ALL),
    (mail(key="ever"), EXISTING, ALL),
    (mail(key="ever", on_conflict="replace"), EXISTING, ALL),
    (mail(key="k3", key_for="1h"), CREATED, ALL),
    (mail(key="k4", key_for="ever"), CREATED, ALL),
    (mail(key_for="1h"), INVALID, ALL),
    (mail(key="k5", key_for="1h", on_conflict="rerun"), INVALID, ALL),
    (mail(key="k5", on_conflict="rerun", after=[1]), INVALID, ALL),
    (mail(key="k5", on_conflict="shrug"), INVALID, JSON_DOORS | {PYTHON}),
    (mail(key="k5", on_conflict=None), INVALID, JSON_DOORS),
    (mail(key=""), INVALID, ALL),
    (mail(key=" k with spaces "), CREATED, ALL),
    (mail(key="x" * 512), CREATED, ALL),
    (mail(key="x" * 513), INVALID, ALL),
    ({"kind": "once", "payload": {"n": 1, "what": "a"}}, CREATED, ALL),
    ({"kind": "once", "payload": {"what": "a", "n": 1}}, EXISTING, ALL),
    ({"kind": "once", "payload": {"n": 1, "what": "a"}, "key_for": "2h", "on_conflict": "replace"}, REPLACED, ALL),
    ({"kind": "once", "payload": {"n": 1, "what": "a"}, "key": "own"}, CREATED, ALL),
    ({"kind": "hourly", "payload": {"n": 1}}, CREATED, ALL),
    ({"kind": "hourly", "payload": {"n": 1}}, EXISTING, ALL),
    # Dependencies.
    (mail(after=[1]), CREATED, ALL),
    (mail(after=[1, 1, 2]), CREATED, ALL),
    (mail(after=[1], hold=True), CREATED, ALL),
    (mail(after={"labels": ["set"]}), CREATED, ALL),
    (mail(after={"labels": ["s*t"], "when": "finished"}), CREATED, ALL),
    (mail(after={"labels": ["dead"]}), CREATED, ALL),
    (mail(after={"labels": ["dead"], "if_not": "hold"}), CREATED, JSON_DOORS | {PYTHON}),
    (mail(after={"labels": ["dead"], "when": "failed"}), CREATED, ALL),
    (mail(after={"keys": [["mail", "k1"]], "ids": [1]}), CREATED, JSON_DOORS | {PYTHON}),
    (mail(label="self", after={"labels": ["self"]}), CREATED, ALL),
    (mail(after={"labels": ["nothing"]}), MISSING, ALL),
    (mail(after={"labels": ["no_hing"]}), MISSING, ALL),
    (mail(after={"keys": [["mail", "nothing"]]}), MISSING, ALL),
    (mail(after=[10**6]), MISSING, ALL),
    (mail(after=[]), INVALID, JSON_DOORS | {PYTHON}),
    (mail(after={}), INVALID, JSON_DOORS),
    (mail(after=[-1]), INVALID, JSON_DOORS),
    (mail(after=[2**63]), INVALID, JSON_DOORS),
    (mail(after=["1"]), INVALID, JSON_DOORS),
    (mail(after={"ids": [1], "bogus": 1}), INVALID, JSON_DOORS),
    (mail(after={"ids": [1], "when": "soon"}), INVALID, JSON_DOORS | {PYTHON}),
    (mail(after={"keys": ["mail", "k1"]}), INVALID, JSON_DOORS),
    (mail(after=5), INVALID, JSON_DOORS),
)


@contextmanager
def scene(backend: str, tmp_path: Any) -> Iterator[tuple[Any, holdfast.Holdfast]]:
    """A database in which jobs of every state wait, on a clock that stands still."""
    with open_database(backend, tmp_path) as database, holdfast.Holdfast(database.url) as app:
        _register(app)
        store = app.store
        done = app.enqueue("mail", {"to": 0}, key="done")
        store.leases.settle(take_one(store), Done())
        ever = app.enqueue("mail", {"to": 0}, key="ever", key_for="ever", label="set")
        store.leases.settle(take_one(store), Done())
        app.enqueue("mail", {"to": 0}, label="dead", max_attempts=1)
        store.leases.settle(take_one(store, started=True), Failed(error="boom"))
        app.enqueue("mail", {"to": 0}, key="running", label="set")
        take_one(store, started=True)
        assert (done.id, ever.id) == (1, 2)
        yield database, app


def _register(app: holdfast.Holdfast) -> None:
    @app.job()
    def mail(to: int) -> None: ...

    @app.job()
    def none() -> None: ...

    @app.job(retry=["5s"], max_attempts=None, on_lost="hold", queue="slow", priority=4)
    def patient() -> None: ...

    @app.job(unique=["n", "what"])
    def once(n: int, what: str) -> None: ...

    @app.job(unique=["n"], unique_for="1h")
    def hourly(n: int) -> None: ...

    @app.job(version=3, aliases=["older"])
    def newer(n: int) -> None: ...

    @app.job()
    def typed(
        f: float,
        any: Any = None,  # noqa: A002
        maybe: int | None = None,
        either: int | str = 0,
        size: Size = Size.S,
        chosen: Literal[1, 2] = 1,
        numbers: list[int] = [],  # noqa: B006
        pair: tuple[int, str] = (1, ""),
        counts: dict[str, int] = {},  # noqa: B006
        point: Point | None = None,
        points: list[Point] = [],  # noqa: B006
        amount: Decimal = Decimal(0),
        at: datetime | None = None,
    ) -> None: ...

    unit = dump_options(KindOptions(), unit=PublishedUnit(key="key"))
    app.store.kinds.publish([PublishedKind("pages", unit, "{}")])


def _by_python(database: Any, app: holdfast.Holdfast, request: dict[str, Any]) -> tuple[str, int]:
    """``app.enqueue``, with the types of Python."""
    options = {name: value for name, value in request.items() if name not in ("kind", "payload")}
    if isinstance(options.get("run_at"), str):
        options["run_at"] = datetime.fromisoformat(options["run_at"])
    if isinstance(options.get("after"), dict):
        options["after"] = holdfast.After(**{name: _tuples(value) for name, value in options["after"].items()})
    ref = app.enqueue(request["kind"], request.get("payload", {}), **options)
    return ref.outcome, ref.id


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def _by_http(database: Any, app: holdfast.Holdfast, request: Any) -> tuple[str, int]:
    """What ``POST /jobs`` does with its body."""
    text = request if isinstance(request, str) else json.dumps(request)
    body = msgspec.json.decode(text, type=EnqueueBody)
    options = {
        name: getattr(body, name) for name in body.__struct_fields__ if name not in ("kind", "payload", "dry_run")
    }
    answer = Actions(app.store, actor="ada", via=Via.API).jobs.enqueue(body.kind, body.payload, **options)
    return answer.outcome, answer.id or 0


def _by_sql(database: Any, app: holdfast.Holdfast, request: Any) -> tuple[str, int]:
    text = request if isinstance(request, str) else json.dumps(request)
    ((job_id, outcome),) = database.execute("SELECT * FROM holdfast.enqueue(%s)", (text,))
    app.store.leases.complete_effects()
    return outcome, job_id


def _by_command_line(run: Callable[..., Any], request: Any) -> tuple[str, int]:
    """``holdfast enqueue``."""
    payload = "{}"
    if isinstance(request, str):
        # The text of the payload as it is, not as Python would write it.
        payload = request.partition('"payload": ')[2][:-1]
        request = {"kind": json.loads(request)["kind"]}
    elif "payload" in request:
        payload = json.dumps(request["payload"])
    words = ["enqueue", request["kind"], "-p", payload]
    for name, value in request.items():
        if name not in ("kind", "payload"):
            words += _flags(name, value)
    return run(words)


def _flags(name: str, value: Any) -> list[str]:
    flag = f"--{name.replace('_', '-')}"
    match name:
        case "hold":
            return ["--hold"]
        case "tags":
            return [word for tag in value for word in ("--tag", tag)]
        case "retry":
            return [flag, ",".join(value)]
        case "after" if isinstance(value, dict):
            prefix = {"finished": "finished:", "failed": "failed:"}.get(value.get("when", ""), "")
            named = [f"label={label}" for label in value.get("labels", ())]
            named += [f"key={key}" for _, key in value.get("keys", ())]
            return ["--after", prefix + ",".join(named)]
        case "after":
            return ["--after", ",".join(map(str, value))]
        case _:
            return [f"{flag}={value}"]


#: What a request has made: the row of its job, its key and its dependencies. Refused requests leave gaps in the ids, so other
#: jobs are named by the number of jobs up to them.
ROW = """
SELECT job.kind, job.kind_version, job.payload::jsonb, job.label, job.tags::jsonb, job.key, job.max_attempts,
    job.max_crashes, job.on_lost, job.retry::jsonb, job.timeout, job.after_when, job.after_failed, job.created_at,
    live.state, live.queue, live.priority, live.due_at, live.no_prefetch, live.has_dependents, live.note,
    (SELECT array_agg((scope, expires_at, job_id = job.id, (SELECT count(*) FROM holdfast.job AS earlier
        WHERE earlier.id <= previous_id))::text) FROM holdfast.key WHERE key.job_id = job.id),
    ARRAY(SELECT (SELECT count(*) FROM holdfast.job AS earlier WHERE earlier.id <= dependency_id) FROM holdfast.dependency WHERE job_id = job.id ORDER BY 1),
    ARRAY(SELECT tag FROM holdfast.job_tag WHERE job_id = job.id ORDER BY 1),
    (SELECT (finished.state, finished.queue, finished.error)::text FROM holdfast.finished WHERE finished.id = job.id),
    ARRAY(SELECT name FROM holdfast.event WHERE job_id = job.id ORDER BY id)
FROM holdfast.job LEFT JOIN holdfast.live ON live.id = job.id WHERE job.id = %s
"""


def _attempt(door: Callable[[], tuple[str, int]], database: Any) -> tuple[str, Any]:
    """The outcome of a request and the rows that it made, or the code of its refusal."""
    try:
        outcome, job_id = door()
    except HoldfastError as error:
        return error.code, None
    except msgspec.ValidationError:
        return INVALID, None
    except (UnicodeEncodeError, ValueError):
        return TEXT, None
    except psycopg.errors.RaiseException as error:
        return str(error).partition(":")[0], None
    (row,) = database.execute(ROW, (job_id,))
    return str(outcome), row


@pytest.fixture
def command_line(capsys, monkeypatch):
    """Calls the command line in this process, and raises nothing: a refusal is its code."""

    def open_for(database: Any) -> Callable[[list[str]], tuple[str, int]]:
        monkeypatch.setenv("HOLDFAST_URL", database.url)

        def run(words: list[str]) -> tuple[str, int]:
            capsys.readouterr()
            with pytest.raises(SystemExit):
                main([*words, "-o", "json"])
            captured = capsys.readouterr()
            code = re.search(r'"code": ?"(E_\w+)"', captured.out + captured.err)
            if code is not None:
                error = HoldfastError("refused")
                error.code = INVALID if code[1] == "E_USAGE" else code[1]  # type: ignore[misc]
                raise error
            data = json.loads(captured.out)["data"]
            return data["outcome"], data["id"]

        return run

    return open_for


def _decoded(request: Any) -> Any:
    return json.loads(request) if isinstance(request, str) else request


@pytest.mark.parametrize("backend", POSTGRES)
def test_every_door_answers_alike(backend, tmp_path, command_line):
    """K19: the same requests lead to the same rows, the same outcomes and the same refusals."""
    seen: dict[str, list[tuple[str, Any]]] = {}
    doors: Mapping[str, Callable[..., Any]] = {
        PYTHON: lambda database, app, run, request: _by_python(database, app, _decoded(request)),
        HTTP: lambda database, app, run, request: _by_http(database, app, request),
        CLI: lambda database, app, run, request: _by_command_line(run, request),
        SQL: lambda database, app, run, request: _by_sql(database, app, request),
    }
    for name, door in doors.items():
        with scene(backend, tmp_path) as (database, app):
            run, seen[name] = command_line(database), []
            for request, expected, able in TABLE:
                # What a door cannot say is said in SQL, so that later requests meet the same jobs.
                if name not in able and expected.startswith("E_"):
                    seen[name].append((expected, None))
                    continue
                chosen = door if name in able else doors[SQL]
                answer = _attempt(lambda: chosen(database, app, run, request), database)  # noqa: B023
                assert answer[0] == expected, f"K19 is broken: {name} answers {answer} to {_short(request)}"
                seen[name].append(answer)
    for name in (HTTP, CLI, SQL):
        for (request, _, _), ours, theirs in zip(TABLE, seen[PYTHON], seen[name], strict=True):
            assert ours == theirs, f"K19 is broken: {name} and Python differ in {_short(request)}"


def _short(request: Any) -> str:
    text = repr(request)
    return text if len(text) < 300 else f"{text[:150]} … {text[-100:]}"
