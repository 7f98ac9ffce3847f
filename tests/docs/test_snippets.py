"""Every Python block of the README, of the first page and of the guides runs; and each call that a page shows."""

from __future__ import annotations

import html
import re
import sys
import types
from pathlib import Path

import pytest

import holdfast

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "docs" / "index.md", *sorted((ROOT / "docs" / "guides").glob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_blocks_of_a_page_run(page, tmp_path, monkeypatch):
    """In their order, in one namespace, in an empty directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.delenv("HOLDFAST_URL", raising=False)
    blocks = re.findall(r"^```python\n(.*?)^```$", page.read_text(), re.DOTALL | re.MULTILINE)
    assert blocks, "a page without an example teaches little"
    code = "\n".join(blocks)
    module = types.ModuleType("snippet")
    monkeypatch.setitem(sys.modules, "snippet", module)
    exec(compile(code, str(page), "exec", dont_inherit=True), vars(module))
    module.app.close()


TEMPLATES = ROOT / "src" / "holdfast" / "web" / "templates"
#: The calls in the texts of pages: code with an argument list, which is no command and has no placeholder.
CALLS = sorted(
    {
        html.unescape(code)
        for template in TEMPLATES.rglob("*.html")
        for code in re.findall(r"<code>([^<{]*\([^<{]*)</code>", template.read_text())
    }
)


@pytest.mark.parametrize("call", CALLS)
def test_a_call_that_a_page_shows_runs(call, tmp_path):
    """D14: a reader of the dashboard copies it into the unit function."""
    with holdfast.Holdfast(f"sqlite:///{tmp_path}/t.db") as app:

        @app.unit()
        def work(key: int, unit: holdfast.Unit) -> None:
            exec(call, {"unit": unit, "app": app, "value": key})

        result = app.run(work, [1], output="none")
        errors = [unit.error for unit in app.store.batches.units(result.batch.id)]
        assert (result.exit_code, errors) == (0, [None])


def test_pages_show_calls():
    assert any("hand_over" in call for call in CALLS)
