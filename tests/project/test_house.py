"""The rules of the house: where code lives, what it is called, how long a function may be.

Every rule reads the sources as text or as a syntax tree, so that a new file is covered from its first commit.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from functools import cache
from itertools import combinations
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "holdfast"
TESTS = ROOT / "tests"
MODULES = sorted(SOURCE.rglob("*.py"))
SQL_FILES = sorted(SOURCE.rglob("*.sql"))

MAX_FUNCTION_LINES = 40

#: Modules that users import by name, and the layers below them that are one file.
ENTRANCE_HALL = {"__init__", "__main__", "app", "files", "options", "settings", "testing"}

#: No participles, gerunds or metaphors: a file is a noun that a stranger would search for.
REFUSED_MODULE_NAMES = re.compile(
    r"(asked|described|planned|standing|shared|marked|raised|published|held|told|found|given"
    r"|served|supervised|abandoned|.*ing"
    r"|bell|ear|crew|mover|desk|house|visit|board|story|pulse|surroundings|words|facts|verbs)"
)
#: Real nouns that end in -ing.
NOUNS_IN_ING = {"masking", "testing", "tracing", "settings", "ping", "sharding"}

#: Words that the glossary replaced. None of them may be a part of an identifier, a statement or a JSON field.
RETIRED = {
    *("ended", "lapsed", "lapses", "term", "marked", "careful", "wanted", "wish", "orders", "needs"),
    *("bell", "ring", "rung", "ear", "mover", "crew", "maker", "making", "pace"),
    *("verb", "verbs", "act", "acts", "desk", "fact", "facts", "board", "story"),
    *("look", "looks", "looking", "flow", "ask", "asks", "asked", "fill", "rehearsal", "rehearsed"),
    *("program", "programs", "autoscale", "scaling", "forget", "forsake", "house", "visit", "doorkeeper"),
    *("moment", "moments", "told", "tell", "tells", "found", "what", "given", "said", "say", "heard", "hear", "news"),
}
#: Names that another library, or a command that users type, dictates.
DICTATED = {
    *("FileNotFoundError", "ModuleNotFoundError", "ProcessLookupError", "ProgramLimitExceeded", "ask"),
}

#: Pairs of structs that share 70 % of their fields, by the reason why both exist. A new pair needs a reason, too.
ALIKE: dict[str, tuple[str, ...]] = {
    "a view shows a part of a row": (
        *(
            "BatchView Batch",
            "Caller Credential",
            "Queue _PlaceRow",
            "Queue QueueView",
            "Usage _PlaceRow",
            "Usage QueueView",
        ),
        "QueueRow QueueView",
        *(
            "Attention Trouble",
            "WorkerView WorkerRow",
            "WorkerRow _ServingWorkerRow",
            "Job FailedJob",
            "Job RunningJob",
            "Attempt _HistoryRow",
        ),
        *("PlanView Skipped", "PlanView SkippedPlans", "ScheduleView Preview"),
    ),
    "one has the words that people write, the other the values that they mean": (
        *("EnqueueOptions NewJob", "EnqueueArguments NewJob", "EnqueueArguments EnqueueOptions"),
        *(
            "UnitOptions UnitArguments",
            "WorkerArguments WorkerOptions",
            "JobArguments KindOptions",
            "ScheduleOptions Timing",
            "Command Edit",
        ),
        "Edit PresetValues",
        "BatchConditions BatchFilter",
    ),
    "one is an action that a person is about to do, the other its row in the audit log": ("AuditEntry AuditedAction",),
    "a hot statement reads only the columns that it needs": (
        *("Job Lease", "Job JobNumbers", "Job RevivableJob", "Schedule DueSchedule"),
        *(
            "FiredPlan _OpenPlan",
            "InboxItem _Result",
            "Job ReadyCommand",
            "NewJob ReadyCommand",
            "Job LaneHead",
            "Lease LaneHead",
        ),
        "LaneHead LanePosition",
    ),
    "one is a request or a result, the other the row that keeps it": (
        *("Job Verdict", "UnitRow UnitOutcome", "AutoscalerDecision RecordedDecision", "HostLoad AutoscalerStatus"),
        *("Skipped SkippedPlans", "Summary Counters", "ErrorExplanation HoldfastError"),
    ),
    "the public form leaves out what is private": ("TokenView Credential", "UnitLine UnitRow", "UnitLine UnitOutcome"),
    "actions and counters are named after the nouns of the store": (
        *("Store ChangeCounters", "Actions Store", "Actions ChangeCounters"),
    ),
}

#: Modules of the edges that use nouns of the store, and why. All others read admin.views and change by admin.actions.
USERS_OF_NOUNS = {
    "cli/session.py": "opens the store, and refuses one that was moved",
    "cli/ops/db.py": "the commands of the database itself",
    "cli/ops/tokens.py": "a sign-in link is a new secret: it is shown once, as it was drawn",
    "cli/jobs/new_job_notes.py": "the client of new jobs: it compares the names of queues, without the views that start slower",
    "cli/commands/run.py": "the client of its own job: it does not start while the store is stopped",
    "cli/commands/sweep.py": "the client of its own jobs: it compares their keys with those in the store",
    "web/server.py": "refuses to listen where nobody could sign in",
    "web/api/router.py": "keeps the answers of requests with an idempotency key",
    "web/security/authentication.py": "finds out who asks, before any view",
    "web/security/csrf.py": "signs forms with the secret of the servers",
    "web/security/sessions.py": "opens and closes sessions",
}

#: Tests of a whole floor or room, named after what they show.
TESTS_OF_A_FLOOR = {
    "cli/test_contract.py": "what every command promises",
    "store/test_model.py": "random operations against a model, over all nouns",
    "store/test_query_plans.py": "plans of every statement on a million rows",
    "store/batches/test_query_plans.py": "plans of the statements of batches",
    "store/schedules/test_query_plans.py": "plans of the statements of schedules",
    "store/engine/test_schema.py": "the schemas of both backends against each other",
    "store/engine/test_errors.py": "errors of both backends",
    "store/engine/test_notifier.py": "notifiers of both backends",
    "store/postgres/test_enqueue.py": "the SQL function holdfast.enqueue",
    "store/postgres/test_enqueue_parity.py": "holdfast.enqueue against Python, HTTP and the command line",
    "store/jobs/test_execution_view.py": "the view of executions on both stores",
    "store/postgres/test_demand.py": "the SQL function holdfast.demand",
    "web/pages/test_browser.py": "the pages in a real browser",
}


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def name_of(path: Path) -> str:
    return str(path.relative_to(SOURCE))


def words_of(identifier: str) -> set[str]:
    """The lower-case words of a snake_case or CamelCase name."""
    return {word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", identifier)}


def identifiers_of(path: Path) -> set[tuple[str, int]]:
    """Every name that a module defines or uses: variables, parameters, fields (as JSON too), functions, classes."""
    names: set[tuple[str, int]] = set()
    for node in ast.walk(tree_of(path)):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                names.add((node.name, node.lineno))
            case ast.Name(id=name) | ast.Attribute(attr=name):
                names.add((name, node.lineno))
            case ast.arg(arg=name):
                names.add((name, node.lineno))
            case ast.keyword(arg="rename", value=ast.Dict(values=values)):
                names |= {(str(ast.literal_eval(value)), node.lineno) for value in values}
            case ast.keyword(arg=str() as name):
                names.add((name, node.lineno))
            case ast.alias(name=name, asname=asname):
                names.add((asname or name.rpartition(".")[2], node.lineno))
    return names


def statements_of(path: Path) -> list[tuple[str, str]]:
    """The named statements of a file, each with its whole text."""
    parts = re.split(r"^-- name: (\w+)$", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return list(zip(parts[1::2], parts[2::2], strict=True))


# -- layout ---------------------------------------------------------------------------------


def test_the_entrance_hall_is_small():
    """Only public modules and one-file layers stand at the top; all else lives in a room."""
    assert {path.stem for path in SOURCE.glob("*.py")} <= ENTRANCE_HALL


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_a_module_is_a_noun(path):
    """No participle, gerund or metaphor names a file."""
    assert path.stem in NOUNS_IN_ING or not REFUSED_MODULE_NAMES.fullmatch(path.stem)


def test_every_package_says_what_it_is():
    """A folder has a docstring that tells a stranger what lives there."""
    packages = [path for path in MODULES if path.name == "__init__.py"]
    assert [name_of(path) for path in packages if not ast.get_docstring(tree_of(path))] == []


def test_a_test_lives_where_its_code_lives():
    """tests/<floor>/<room>/test_<module>.py, or test_<module>_<aspect>.py."""
    floors = {path.name for path in SOURCE.iterdir() if path.is_dir()}
    strays = []
    for path in sorted(TESTS.rglob("test_*.py")):
        place = path.relative_to(TESTS)
        if place.parts[0] not in floors or str(place) in TESTS_OF_A_FLOOR:
            continue
        modules = {module.stem for module in (SOURCE / place.parent).glob("*.py")}
        subject = path.stem.removeprefix("test_")
        if not any(subject == module or subject.startswith(f"{module}_") for module in modules):
            strays.append(str(place))
    assert strays == []


def test_edges_read_no_noun_of_the_store():
    """Issue 21: command line, pages and API show what admin.views builds, where secrets are masked."""
    nouns = {
        target.id
        for node in tree_of(SOURCE / "store/__init__.py").body
        if isinstance(node, ast.ClassDef) and node.name == "Store"
        for each in node.body
        if isinstance(each, ast.AnnAssign) and isinstance(target := each.target, ast.Name)
    }
    users = set()
    for path in (path for edge in ("cli", "web") for path in (SOURCE / edge).rglob("*.py")):
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.Attribute) and node.attr in nouns | {"backend"}:
                owner = node.value
                name = owner.attr if isinstance(owner, ast.Attribute) else getattr(owner, "id", "")
                if name.strip("_").endswith("store"):
                    users.add(name_of(path))
    assert users == set(USERS_OF_NOUNS)


# -- size -----------------------------------------------------------------------------------


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_functions_are_short(path):
    """A function is one step. Docstrings do not count."""
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = node.end_lineno - node.lineno + 1 - len((ast.get_docstring(node, clean=False) or "").splitlines())
            assert lines <= MAX_FUNCTION_LINES, f"{node.name} has {lines} lines"


# -- names ----------------------------------------------------------------------------------


def test_a_class_name_stands_for_one_thing():
    """No public class name in two modules."""
    homes = defaultdict(list)
    for path in MODULES:
        for node in tree_of(path).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes[node.name].append(name_of(path))
    assert {name: places for name, places in homes.items() if len(places) > 1} == {}


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_retired_words_are_gone_from_identifiers(path):
    """The glossary has one word per concept; struct fields are JSON fields, so that these are covered too."""
    stale = sorted(
        f"{name_of(path)}:{line}: {name}"
        for name, line in identifiers_of(path)
        if words_of(name) & RETIRED and name not in DICTATED and not name.endswith("NotFound")
    )
    assert stale == []


@pytest.mark.parametrize("path", SQL_FILES, ids=name_of)
def test_retired_words_are_gone_from_sql(path):
    """Statement names, common table expressions, aliases, tables, columns and parameters."""
    code = re.sub(r"--(?! name:).*", "", path.read_text())
    code = re.sub(r"'[^']*'", "''", code)
    stale = sorted({name for name in re.findall(r"[a-z_]+", code) if words_of(name) & RETIRED})
    assert stale == []


def test_structs_are_not_copies_of_each_other():
    """A struct that repeats 70 % of another's fields is that struct, or a part of it."""
    structs: dict[str, set[str]] = {}
    for path in MODULES:
        for node in tree_of(path).body:
            if isinstance(node, ast.ClassDef):
                fields = {
                    each.target.id
                    for each in node.body
                    if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)
                }
                if len(fields) >= 5:
                    structs[node.name] = fields
    alike = {
        tuple(sorted((one, other)))
        for one, other in combinations(structs, 2)
        if len(structs[one] & structs[other]) >= 0.7 * min(len(structs[one]), len(structs[other]))
    }
    explained = {tuple(sorted(pair.split())) for pairs in ALIKE.values() for pair in pairs}
    assert alike == explained


# -- statements -----------------------------------------------------------------------------


@pytest.mark.parametrize("path", [path for path in SQL_FILES if path.parent.name != "migrations"], ids=name_of)
def test_every_statement_says_what_it_is_for(path):
    """A comment stands directly below the name."""
    silent = [name for name, text in statements_of(path) if not re.match(r"\n-- \w", text)]
    assert silent == []


# -- processes ------------------------------------------------------------------------------


def calls_in(path: Path) -> set[str]:
    """The dotted names that a module calls, such as ``os.fork``."""
    return {
        f"{call.func.value.id}.{call.func.attr}"
        for call in ast.walk(tree_of(path))
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and isinstance(call.func.value, ast.Name)
    }


#: The one module that may make each of these calls, and why.
PLACES = {
    "socket.socket": "store/engine/sockets.py",  # without the default time limit of the program
    "socket.socketpair": "store/engine/sockets.py",
    "socket.fromfd": "store/engine/sockets.py",
    "os._exit": "worker/exit.py",  # after a line that says why
}


@pytest.mark.parametrize("call", PLACES)
def test_a_call_with_a_trap_has_one_place(call):
    """Issue 36, D2: sockets with an inherited time limit ended workers, and nothing said so."""
    assert {name_of(path) for path in MODULES if call in calls_in(path)} <= {PLACES[call]}


def test_no_hint_installs_a_package_of_somebody_else():
    """O13: until the first release, the name on the package index belongs to another project."""
    for file in (ROOT / "src").rglob("*.py"):
        assert not re.search(r"pip install\s+'?holdfast", file.read_text()), file
