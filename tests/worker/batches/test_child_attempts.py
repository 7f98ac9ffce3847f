"""Units in child processes, and commands that units run."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import psutil
import pytest

import holdfast
from holdfast.domain.batches.batch import BatchState
from holdfast.store.jobs.leases import DEFAULT_LEASE
from holdfast.worker.active_runs import Run
from holdfast.worker.batches import driver
from holdfast.worker.executors.children import SupervisorClient
from tests.support.processes import PATIENCE, connect, gone, wait_until
from tests.support.program import programs
from tests.support.programs import child_units


@pytest.fixture
def app(real_database, monkeypatch):
    monkeypatch.setenv("HOLDFAST_URL", real_database.url)
    child_units.app.use(real_database.url)
    yield child_units.app
    child_units.app.close()


@pytest.fixture
def start(app, tmp_path):
    """Start the process in its own group, like a shell."""
    with programs("-m", "tests.support.programs.child_units", start_new_session=True) as start:
        yield lambda function, *words: start(function, tmp_path / "unit", *words)


def run(app, function, keys, **options):
    result = app.run(function, keys, output="none", **options)
    units = app.store.batches.units(result.batch.id)
    return result, {unit.key: unit for unit in units}


def test_units_run_in_children(app, tmp_path):
    """Each thread of the run keeps one child."""
    result, units = run(app, child_units.child.bind(path=str(tmp_path / "unit")), range(6), jobs=2)
    assert result.exit_code == 0
    pids = {unit.data for unit in units.values()}
    assert len(pids) <= 2
    assert str(os.getpid()) not in pids


def test_coroutines_run_in_children(app):
    """U3."""
    result, units = run(app, child_units.awaited, [1, 2])
    assert (result.exit_code, [unit.data for unit in units.values()]) == (0, ["2", "3"])


def test_children_learn_that_the_lease_of_their_run_was_renewed(app, tmp_path, monkeypatch):
    """K71: otherwise their supervisor would end them when the first lease is over."""
    renewals = []
    monkeypatch.setattr(driver, "HEARTBEAT_INTERVAL_S", 0.01)
    monkeypatch.setattr(Run, "renewed", lambda _, sent_at: renewals.append(sent_at))
    result, _ = run(app, child_units.child.bind(path=str(tmp_path / "unit"), nap=0.1), [1])
    assert result.exit_code == 0
    assert renewals


def test_units_with_a_transaction_of_their_own_in_children(app, real_database):
    """K75: errors after the block become warnings, and a child that is killed after it has done its unit, once."""
    with connect(real_database.url, autocommit=True) as connection:
        connection.execute("DROP TABLE IF EXISTS effect")
        connection.execute("CREATE TABLE effect (key INTEGER)")
    told = []
    child_units.transacted.on_unit(lambda unit: told.append((unit.key, unit.status)))
    result, units = run(app, child_units.transacted, range(4))
    assert (result.exit_code, result.summary.succeeded, result.summary.warned) == (0, 4, 1)
    assert units["1"].warning.startswith("after its transaction: ValueError: too late")
    assert {key for key, status in told if status == "done"} >= {0, 1, 3}
    with connect(real_database.url, autocommit=True) as connection:
        effects = sorted(key for (key,) in connection.execute("SELECT key FROM effect").fetchall())
        connection.execute("DROP TABLE effect")
    assert effects == [0, 1, 2, 3]


def test_a_run_leaves_no_process_behind(app, tmp_path):
    def is_ours(process):
        try:
            return any("holdfast." in word for word in process.cmdline())
        except psutil.Error:
            return False  # it has just exited

    def ours():
        return {process.pid for process in psutil.Process().children(recursive=True) if is_ours(process)}

    before = ours()
    result, _ = run(app, child_units.child.bind(path=str(tmp_path / "unit")), range(2), jobs=2)
    assert result.exit_code == 0
    wait_until(lambda: ours() <= before)
    assert ours() <= before


def test_a_child_that_times_out_is_stopped_and_then_killed(app):
    result, units = run(app, child_units.slow, ["fine", "obeys", "hangs", "dies"], jobs=4)
    errors = {key: (str(unit.state), (unit.error or "").partition("\n")[0]) for key, unit in units.items()}
    assert errors == {
        '"fine"': ("done", ""),
        '"obeys"': ("failed", "it took longer than its timeout of 2 s"),
        '"hangs"': ("failed", "it took longer than its timeout of 2 s, and was killed"),
        '"dies"': ("failed", "the child process was killed by signal 9"),
    }
    assert (result.exit_code, units['"dies"'].crashes) == (6, 1)


def test_a_unit_whose_child_died_is_verified_before_it_runs_again(app, tmp_path):
    """Within the run and in the next one: the child may have died after the effect."""
    bound = child_units.verified.bind(path=str(tmp_path / "effect"))
    _, units = run(app, bound, [1, 2])
    _, again = run(app, bound, [1, 2])
    effects = [(tmp_path / f"effect-{key}").read_text() for key in (1, 2)]
    assert effects == ["made\n", "made\n"], "B14 is broken: a unit ran again without its verifier"
    assert (units["2"].label, str(again["1"].state)) == ("verified", "failed")


def test_a_child_has_a_memory_cap(app):
    _, units = run(app, child_units.large, [500])
    assert "more than 200 MiB" in units["500"].error


def test_outcomes_come_back_from_a_child(app):
    """Skips, labels, data, and long results that are handed over."""
    result, units = run(app, child_units.outcomes, ["skip", "label", "hand", "plain"])
    states = {key: str(unit.state) for key, unit in units.items()}
    assert states == {'"skip"': "skipped", '"label"': "done", '"hand"': "running", '"plain"': "done"}
    assert (units['"plain"'].data, result.summary.labels) == ('"plain"', {"duplicate": 1})
    (handed,) = app.inbox("outcomes").take()
    assert len(handed.value["text"]) == 300_000


def test_fatal_in_a_child_stops_the_run(app):
    result, _ = run(app, child_units.fatal, range(10))
    assert (result.exit_code, str(result.summary.aborted_by)) == (8, "fatal")


def test_children_run_units_of_shards(app, tmp_path):
    with app.worker(slots=2, poll=0.1):
        result = app.run(child_units.child.bind(path=str(tmp_path / "unit")), range(4), where="workers", output="none")
    assert (result.exit_code, result.batch.state) == (0, BatchState.DONE)


def test_a_child_that_is_killed_before_it_is_ready_does_not_end_the_run(app, tmp_path, monkeypatch):
    """The kernel may kill it for want of memory; the run raised an error, and lost what was in flight."""
    killed, real = [], SupervisorClient.start

    def start(self, *, until):
        child, connection = real(self, until=until)
        if len(killed) < 2:
            killed.append(child)
            self.kill(child)
        return child, connection

    monkeypatch.setattr(SupervisorClient, "start", start)
    result, units = run(app, child_units.child.bind(path=str(tmp_path / "unit")), range(2))
    assert (result.exit_code, len(killed), [unit.attempts for unit in units.values()]) == (0, 2, [1, 1])


def test_a_child_ends_with_the_lease_of_its_shard(app, tmp_path):
    """K71, I16: the function has a lease of 4 s. The supervisor of a stopped worker knew only the default of 60 s."""
    app.submit(child_units.leased.bind(path=str(tmp_path / "unit")), [1], shards=1)
    with programs("-m", "holdfast") as start:
        worker = start("worker", "--app", "tests.support.programs.child_units:app", "--slots", 1)
        begun = tmp_path / "unit-1-begun"
        wait_until(lambda: begun.exists() and begun.read_text())
        worker.send_signal(signal.SIGSTOP)
        half = DEFAULT_LEASE.total_seconds() / 2
        try:
            wait_until(
                lambda: gone(int(begun.read_text())), seconds=half, failure="I16 is broken: it outlives its lease"
            )
        finally:
            worker.kill()


@pytest.mark.parametrize("function", ["child", "program"])
def test_ctrl_c_reaches_neither_children_nor_commands(start, tmp_path, function):
    """Ctrl-C goes to the whole process group: units in flight still finish, and the run exits with 7."""
    process = start(function, "--count", 4, "--nap", 1.5)
    wait_until(lambda: all((tmp_path / f"unit-{key}-begun").exists() for key in (0, 1)))
    os.killpg(process.pid, signal.SIGINT)
    assert process.wait(PATIENCE) == 7
    assert all((tmp_path / f"unit-{key}-ended").exists() for key in (0, 1))
    assert not (tmp_path / "unit-3-begun").exists()


@pytest.mark.parametrize("function", ["child", "program"])
@pytest.mark.parametrize("how", ["twice", "kill"])
def test_nothing_outlives_the_run(start, tmp_path, function, how):
    """Neither a second Ctrl-C nor kill -9 leaves a child or a command behind."""
    process = start(function, "--count", 2, "--nap", 60)
    begun = [tmp_path / f"unit-{key}-begun" for key in (0, 1)]
    wait_until(lambda: all(path.exists() and path.read_text() for path in begun))
    pids = [int(path.read_text()) for path in begun]
    if how == "kill":
        process.kill()
    else:
        os.killpg(process.pid, signal.SIGINT)
        wait_until(lambda: "stopping" in process.stderr.readline())
        os.killpg(process.pid, signal.SIGINT)
    assert process.wait(PATIENCE) == (-9 if how == "kill" else 130)
    wait_until(lambda: not any(psutil.pid_exists(pid) for pid in pids))


def test_a_command_that_fails_fails_its_unit(app):
    """The error has its exit code or signal and its last output; a command that cannot start fails too."""
    codes = {
        "1": ["sh", "-c", "echo to no avail >&2; exit 3"],
        "2": ["sh", "-c", "kill -9 $$"],
        "3": ["/no/such/program"],
        "4": ["true"],
    }
    holder = holdfast.Holdfast(app.url)

    @holder.unit(max_failures=0)
    def work(key: str, unit: holdfast.Unit) -> str:
        return unit.command(codes[key]).output

    _, units = run(holder, work, list(codes))
    errors = {key: (unit.error or "").partition("\n")[0] for key, unit in units.items()}
    assert errors['"1"'].endswith("sh ended with exit code 3: to no avail")
    assert errors['"2"'].endswith("sh ended with SIGKILL: no output")
    assert "No such file" in errors['"3"']
    assert str(units['"4"'].state) == "done"
    holder.close()


def test_a_command_ends_when_its_unit_times_out(app, tmp_path):
    """It gets a signal first, then it is killed with all its children."""
    path = tmp_path / "pid"
    holder = holdfast.Holdfast(app.url)

    @holder.unit(timeout=2)
    def work(key: int, unit: holdfast.Unit) -> None:
        unit.command(["sh", "-c", f"trap '' TERM; sleep 60 & echo $! > {path}; wait; sleep 60"])

    _, units = run(holder, work, [1])
    assert units["1"].error.startswith("TimeoutError: it took longer than its timeout of 2 s")
    pid = int(Path(path).read_text())
    wait_until(lambda: not psutil.pid_exists(pid))
    holder.close()


def test_processes_killed_with_a_command_are_reaped(app):
    """Including those that left its session, and their children: the supervisor reaps them before it waits."""
    holder = holdfast.Holdfast(app.url)
    nested = "sleep 300; true"

    @holder.unit(timeout=0.5)
    def work(key: int, unit: holdfast.Unit) -> None:
        unit.command(
            ["sh", "-c", f"trap '' TERM; for n in $(seq 20); do setsid sh -c '{nested}' & done; wait; sleep 60"]
        )

    run(holder, work, [1, 2])
    own = psutil.Process().children()
    supervisors = [each for each in own if "holdfast.worker.commands.supervisor" in " ".join(each.cmdline())]
    wait_until(lambda: not any(each.children() for each in supervisors))
    assert supervisors
    holder.close()


def test_a_command_is_a_list_of_words(app):
    holder = holdfast.Holdfast(app.url)

    @holder.unit()
    def work(key: int, unit: holdfast.Unit) -> None:
        unit.command("echo hello")

    _, units = run(holder, work, [1])
    assert "a command is a list of words" in units["1"].error
    holder.close()
