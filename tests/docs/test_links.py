"""Links between the pages lead somewhere: to a file, a folder or a heading."""

from __future__ import annotations

import re
from functools import cache

import pytest

from tests.docs.test_snippets import ROOT

PAGES = [
    *sorted(ROOT.glob("*.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "examples").rglob("*.md")),
    *sorted((ROOT / "deploy").rglob("*.md")),
]


def prose(text):
    """The text of a page without its code."""
    return re.sub(r"`[^`\n]*`", "", without_blocks(text))


def without_blocks(text):
    return re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)


@cache
def anchors(page):
    """The anchors of a page's headings, as GitHub and the site make them."""
    names = []
    for heading in re.findall(r"^#+ (.+)$", without_blocks(page.read_text()), re.MULTILINE):
        name = re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")
        names.append(f"{name}-{names.count(name)}" if name in names else name)
    return names


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    for link in re.findall(r"\]\(([^)\s]+)\)", prose(page.read_text())):
        if re.match(r"\w+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        if anchor:
            assert anchor in anchors(target), link
