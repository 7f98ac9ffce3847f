"""examples/url_import under bash: what people's lists hold, a consumer beside the run, either side killed."""

from __future__ import annotations

import json
import urllib.request

import pytest

from tests.support.processes import PATIENCE, wait_until
from tests.support.program import ROOT, bundled_server, clean_environment, finished, programs

HERE = f"{ROOT}/examples/url_import"
KINDS = ("article", "copy", "slow", "broken", "consent")
COUNT = 4


@pytest.fixture
def site():
    with bundled_server(f"{HERE}/server.py") as address:
        yield address


@pytest.fixture
def folder(tmp_path, site):
    lines = [f"{site}/{kind}/{n}" for kind in KINDS for n in range(COUNT)]
    (tmp_path / "list.txt").write_text("\n".join([*lines, f"{site}/article/0  # again", "no address", ""]))
    return tmp_path


@pytest.fixture
def start(folder):
    with programs(cwd=folder, env=clean_environment(folder, PYTHONPATH=HERE)) as start:
        yield start


@pytest.fixture
def call(start):
    return lambda *words: finished(start(*words))


@pytest.fixture
def importer(call):
    return lambda *words: call(f"{HERE}/importer.py", *words)


@pytest.fixture
def batch(call):
    """A command on the first batch: its document."""
    return lambda action, *words: json.loads(call("-m", "holdfast", "batch", action, "1", *words, "-o", "json")[1])


def test_the_input_is_told_line_by_line(importer, site):
    code, out = importer("check", "list.txt")
    assert (code, out.splitlines()[0]) == (0, f"{len(KINDS) * COUNT} valid, 1 invalid, 1 duplicate")
    assert f"line {len(KINDS) * COUNT + 2}: no address: not an http address" in out
    assert f"line {len(KINDS) * COUNT + 1}: {site}/article/0: duplicate line" in out


def test_every_page_is_saved_once(importer, batch, site):
    """Exit 6 while pages are broken; mended, only those are fetched; done when all is accepted."""
    code, out = importer("fetch", "list.txt", "--jobs", "4", "-o", "json")
    summary = json.loads(out)["data"]["summary"]
    labels = {"saved": 2 * COUNT, "duplicate": COUNT, "consent": COUNT}
    assert (code, summary["failed"], summary["warned"], summary["labels"]) == (6, COUNT, COUNT, labels)
    assert importer("save")[1] == f"{2 * COUNT} pages are saved\n"
    urllib.request.urlopen(f"{site}/mend").read()
    code, out = importer("fetch", "list.txt", "-o", "json")
    assert (code, json.loads(out)["data"]["summary"]["in_inbox"]) == (0, COUNT)
    assert batch("show")["data"]["state"] == "running"
    assert importer("save")[1] == f"{COUNT} pages are saved\n"
    assert batch("show")["data"]["state"] == "done"
    assert len(importer("show")[1].splitlines()) == 3 * COUNT


def test_on_workers_with_a_consumer_beside(importer, start, batch, site):
    """The run and its consumer at the same time, one worker killed in the middle: nothing is lost."""
    urllib.request.urlopen(f"{site}/mend").read()
    worker = ["-m", "holdfast", "worker", "--app", "importer:app"]
    victim = start(*worker)
    fetching = start(f"{HERE}/importer.py", "fetch", "list.txt", "--where", "workers", "--shards", "2")
    saving = start(f"{HERE}/importer.py", "save", "--wait", "5s")
    wait_until(lambda: batch("show").get("data") and batch("show")["data"]["summary"]["succeeded"] > 2)
    other = start(*worker)
    victim.terminate()
    assert victim.wait(PATIENCE) == 0
    assert fetching.wait(PATIENCE) == 0
    assert saving.wait(PATIENCE) == 0
    assert batch("show")["data"]["state"] == "done"
    assert len(importer("show")[1].splitlines()) == 3 * COUNT
    other.terminate()


def test_pause_cancel_and_retry(importer, start, batch, site):
    """From another terminal, while it runs."""
    fetching = start(f"{HERE}/importer.py", "fetch", "list.txt", "--rate", "5", "-o", "json")
    wait_until(lambda: (batch("show").get("data") or {}).get("holders"))
    assert batch("pause")["data"]["requested"]
    out, _ = fetching.communicate(timeout=PATIENCE)
    assert (fetching.returncode, json.loads(out)["error"]["code"]) == (11, "E_PAUSED")
    assert importer("fetch", "list.txt")[0] == 11
    assert batch("resume")["data"]["changed"]
    assert importer("fetch", "list.txt")[0] == 6
    assert batch("retry-failed")["data"]["units"] == COUNT
    urllib.request.urlopen(f"{site}/mend").read()
    assert importer("fetch", "list.txt")[0] == 0
    assert batch("cancel", "--yes")["data"]["units"] == 3 * COUNT
    shown = batch("show")["data"]
    assert (shown["state"], shown["summary"]["cancelled"], shown["summary"]["pending"]) == ("cancelled", 3 * COUNT, 0)
    assert importer("save", "--wait", "0")[1] == "0 pages are saved\n"
