"""The pages for people who come from another tool: our side runs, the other tool's code is marked."""

from __future__ import annotations

import re

import pytest

from tests.docs.test_snippets import ROOT
from tests.docs.test_transcripts import blocks, same, shell, steps

PAGES = sorted((ROOT / "docs" / "coming-from").glob("*.md"))
#: The languages of blocks that the tests run or use.
RUN = {"python", "toml", "console"}

pytestmark = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)


def matches(lines, patterns):
    """Whether output is as the page says. A last line ``…`` stands for any number of lines."""
    if patterns[-1:] == ["…"]:
        patterns = patterns[:-1]
        lines = lines[: len(patterns)]
    return len(lines) == len(patterns) and all(map(same, lines, patterns))


def test_our_side_runs(page, tmp_path):
    """The files and lines of a page, in an empty folder, do what the page says."""
    for name, code in zip(re.findall(r"save this as `(\S+)`", page.read_text()), blocks(page, "python"), strict=True):
        (tmp_path / name).write_text(code)
    (tmp_path / "holdfast.toml").write_text("".join(blocks(page, "toml")))
    transcript = list(steps(page))
    assert transcript
    try:
        for command, expected in transcript:
            done = shell(tmp_path, command)
            assert done.returncode == 0, (command, done.stderr)
            assert matches(done.stdout.splitlines(), expected), (command, done.stdout)
    finally:
        shell(tmp_path, "holdfast down --all --now")


def test_code_of_the_other_tool_is_marked(page):
    """It names the tool in its first line; so a block that is neither marked nor run is found."""
    text = page.read_text()
    tool = text.splitlines()[0].removeprefix("# Coming from ")
    all_blocks = re.findall(r"^```(\w+)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    foreign = [code for language, code in all_blocks if language not in RUN]
    assert foreign
    assert all(code.startswith(f"# {tool}") for code in foreign)


@pytest.mark.parametrize("heading", ["The same work in both", "Word by word", "What differs", "What is not there"])
def test_every_page_has_the_same_parts(page, heading):
    """A reader of one page knows where to look in the others; no page is silent about what is missing."""
    assert f"\n## {heading}\n" in page.read_text()
