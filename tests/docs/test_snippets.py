"""Every Python block of the README, of the first page and of the guides runs."""

from __future__ import annotations

import re
import sys
import types
from pathlib import Path

import pytest

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
