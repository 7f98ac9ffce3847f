"""A batch belongs to the function that runs it, not to its name alone."""

from __future__ import annotations

import json

import pytest

import holdfast
from holdfast.admin.actions.actions import Actions
from holdfast.admin.actions.batch_start import BatchRequest, start_batch
from holdfast.domain.access.audit import Via
from holdfast.errors import BatchHeld, Drift


@pytest.fixture
def unit(real_database):
    """Makes the unit function ``sync`` of a module, in an application of its own; its runs are listed in *ran*."""

    def make(module, *, fails=(), qualname="sync", **options):
        app = holdfast.Holdfast(real_database.url)

        def sync(key: int) -> None:
            ran.append((module, key))
            if key in fails:
                raise ValueError(key)

        sync.__module__, sync.__qualname__ = module, qualname
        work = app.unit(**options)(sync)
        return lambda keys, **options: app.run(work, keys, **{"output": "none", **options})

    ran = make.ran = []
    return make


def test_two_modules_do_not_share_a_ledger(unit, capsys):
    """D1: units that one module's function did never count as done for that of another module."""
    mails, invoices = unit("mails", fails=range(6, 11)), unit("invoices")
    assert mails(range(1, 11)).exit_code == 8
    unit.ran.clear()
    for options in ({}, {"once": True}, {"fresh": True}, {"dry_run": True}):
        refused = invoices(range(1, 11), **options)
        assert (refused.exit_code, type(refused.error)) == (14, Drift), f"I23 is broken: {options}"
    assert refused.error.message == "batch 1 was run by mails:sync, and this is invoices:sync"
    assert "--accept-drift" in refused.error.hint
    assert "name=" in refused.error.hint
    assert invoices(range(1, 11), output="json").exit_code == 14
    answer = json.loads(capsys.readouterr().out)
    assert (answer["error"]["code"], answer["error"]["context"]["before"]) == ("E_DRIFT", "mails:sync")
    assert unit.ran == [], "no unit ran under a foreign ledger"


def test_a_module_that_has_moved_continues_with_consent(unit, capsys):
    before, after = unit("mails", fails=[3]), unit("shop.mails")
    assert before(range(1, 4)).exit_code == 6
    unit.ran.clear()
    assert after(range(1, 4), accept_drift=True, output="json").exit_code == 0
    assert unit.ran == [("shop.mails", 3)]
    assert json.loads(capsys.readouterr().out)["data"]["origin"] == "shop.mails:sync"
    assert before(range(1, 4)).batch.generation == 2, "the batch is done: whoever comes next begins a generation"


def test_once_is_about_the_own_runs(unit):
    """D1: that another module's function did all units says nothing about this one."""
    mails, invoices = unit("mails"), unit("invoices")
    assert mails(range(1, 5)).exit_code == 0
    assert invoices(range(1, 5), once=True).exit_code == 0, "I23 is broken"
    assert [(each.exit_code) for each in (mails(range(1, 5), once=True), invoices(range(1, 5), once=True))] == [13, 13]
    assert unit.ran == [(module, key) for module in ("mails", "invoices") for key in range(1, 5)]
    assert unit("moved")(range(1, 5), once=True, accept_drift=True).exit_code == 13, "it has moved"


def test_a_name_keeps_the_ledger_when_the_function_is_renamed(unit):
    assert unit("mails", fails=[2], name="sync")(range(3)).exit_code == 6
    assert unit("invoices", name="sync")(range(3)).exit_code == 14, "another module is drift nevertheless"
    assert unit("mails", qualname="resync", name="sync")(range(3)).exit_code == 0
    assert unit.ran[3:] == [("mails", 2)]


def test_a_function_without_a_name_that_is_renamed_is_another_batch(unit):
    assert unit("mails", fails=[2])(range(3)).exit_code == 6
    assert unit("mails", qualname="Jobs.sync")(range(3)).exit_code == 14, "the place within the module counts"


def test_a_batch_on_the_workers_is_drift_before_it_is_held(unit, real_database):
    """The owner of the name is told apart, even while workers run the batch."""
    app = holdfast.Holdfast(real_database.url)

    def sync(key: int) -> None: ...

    sync.__module__, sync.__qualname__ = "mails", "sync"
    work = app.unit()(sync)
    app.submit(work, range(3))
    with pytest.raises(BatchHeld):
        app.submit(work, range(3))
    assert unit("invoices")(range(3)).exit_code == 14


def test_workers_continue_a_batch_while_its_module_moves(real_database):
    """A rolling move of a module is a deploy: newer workers run the units that older code has submitted."""
    ran = []

    def app_of(module):
        def sync(key: int) -> None:
            ran.append((module, key))

        sync.__module__, sync.__qualname__ = module, "sync"
        app = holdfast.Holdfast(real_database.url)
        return app, app.unit()(sync)

    before, work = app_of("mails")
    after, _ = app_of("shop.mails")
    batch = before.submit(work, range(3))
    after.worker(drain=True).run()
    assert before.store.batches.get(batch.id).state == "done"
    assert sorted(ran) == [("shop.mails", key) for key in range(3)]


def test_a_batch_that_starts_by_name_has_the_origin_of_the_published_function(unit, real_database):
    """HTTP: the workers' function is known by what they published."""
    app = holdfast.Holdfast(real_database.url)

    def sync(key: int) -> None: ...

    sync.__module__, sync.__qualname__ = "mails", "sync"
    app.unit()(sync)
    app.worker()
    assert unit("invoices", fails=[2])(range(3)).exit_code == 6
    actions = Actions(app.store, actor="ada", via=Via.API)
    request = {"function": "sync", "range": "0-2"}
    with pytest.raises(Drift, match="invoices:sync"):
        start_batch(actions, BatchRequest(**request))
    started = start_batch(actions, BatchRequest(**request, accept_drift=True))
    assert app.store.batches.get(started.batch).origin == "mails:sync"


def test_once_runs_when_the_list_has_new_keys(unit, tmp_path):
    """D3: a list that is written anew every night is not done because that of the first night was."""
    run = unit("mails")
    assert run([1, 2], once=True).exit_code == 0
    assert run([1, 2], once=True).exit_code == 13
    assert run([2], once=True).exit_code == 13
    assert run([2, 3], once=True).exit_code == 0
    assert run(iter([4]), once=True).exit_code == 13, "an iterator is not read to find out"


def test_an_edit_is_a_warning_also_in_json(real_database, capsys, tmp_path):
    answers = []
    for number, body in enumerate(("raise ValueError", "return")):
        file = tmp_path / f"{number}.py"
        file.write_text(f"def sync(key: int) -> None:\n    {body}\n")
        scope = {"__name__": "mails"}
        exec(compile(file.read_text(), str(file), "exec"), scope)
        app = holdfast.Holdfast(real_database.url)
        app.run(app.unit()(scope["sync"]), [1], output="json")
        answers.append(json.loads(capsys.readouterr().out)["data"])
    assert [(each["edited"], each["origin"]) for each in answers] == [(False, "mails:sync"), (True, "mails:sync")]
