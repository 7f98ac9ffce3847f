"""The documentation site: Markdown pages of this repository, built by Sphinx. See ``make docs-site`` and ADR 0019.

The source of the site is the whole repository, so that links between pages work here as they do in an editor.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "src"))

from holdfast import __version__  # noqa: E402

project = "Holdfast"
release = __version__
root_doc = "docs/index"
#: Pages of the site. Links to other files become downloads.
include_patterns = ["docs/**", "examples/*/README.md", "deploy/README.md"]
include_patterns += ["ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md"]
exclude_patterns = [".*", "build", "dist", "src", "tests", "bench", "requirements"]
#: Pages whose list items are the navigation below them.
SECTIONS = (
    root_doc,
    "docs/tutorials",
    "docs/how-to",
    "docs/explanation",
    "docs/adr/README",
    "docs/reference/index",
    "docs/guides/coming-from",
    "docs/project",
)

extensions = ["myst_parser", "sphinx.ext.autodoc"]
myst_heading_anchors = 4
autodoc_default_options = {"members": True, "member-order": "bysource"}
autodoc_typehints = "signature"
add_module_names = False
python_use_unqualified_type_names = True
maximum_signature_line_length = 100

html_theme = "pydata_sphinx_theme"
html_title = f"Holdfast {release}"
html_copy_source = False
html_show_sourcelink = False
html_show_sphinx = False
#: Browsers refuse the requests that summaries need when the site is opened as files.
html_show_search_summary = False
html_context = {"default_mode": "auto"}
html_theme_options: dict[str, Any] = {
    "header_links_before_dropdown": 6,
    "navbar_end": ["theme-switcher"],
    "show_prev_next": False,
    "show_toc_level": 2,
    "footer_start": [],
    "footer_end": [],
}

#: A list item that begins with a link to a page.
ITEM = re.compile(r"^- \[([^\]]+)\]\(([^)#]+)\.(?:md|rst)\)", re.MULTILINE)
#: A link to a place in this repository.
LINK = re.compile(r"\[([^\]]+)\]\((?!\w+:)([^)#\s]+)\)")


def pages_below(text: str) -> dict[str, str]:
    """The pages that the list items of a section lead to, in their order, with the words of the links."""
    return {page: words for words, page in ITEM.findall(text)}


def resolve_folders(text: str, folder: Path) -> str:
    """Let a link to a folder lead to its README; without one, only its words remain."""

    def resolve(match: re.Match[str]) -> str:
        words, target = match.groups()
        if not (folder / target).is_dir():
            return match[0]
        return f"[{words}]({target}/README.md)" if (folder / target / "README.md").exists() else words

    return LINK.sub(resolve, text)


def read_page(app: Any, name: str, source: list[str]) -> None:
    """Prepare the text of a page for Sphinx."""
    del app
    source[0] = resolve_folders(source[0], (ROOT / name).parent)
    if name in SECTIONS:
        entries = "\n".join(f"{words} <{page}>" for page, words in pages_below(source[0]).items())
        source[0] += f"\n```{{toctree}}\n:hidden:\n\n{entries}\n```\n"


def read_docstring(*arguments: Any) -> None:
    """Turn the section ``Raises:`` of a docstring, its last one, into fields that Sphinx knows."""
    lines: list[str] = arguments[-1]
    if "Raises:" in lines:
        start = lines.index("Raises:")
        lines[start:] = [re.sub(r"^    (\w+): ", r":raises \1: ", line) for line in lines[start + 1 :]]


def write_entrance(app: Any, error: Exception | None) -> None:
    """Lead readers of the folder of the site to its first page."""
    if error is None:
        page = '<!doctype html><meta charset="utf-8"><meta http-equiv="refresh" content="0; url=docs/index.html">\n'
        (Path(app.outdir) / "index.html").write_text(page)


def setup(app: Any) -> None:
    app.connect("source-read", read_page)
    app.connect("autodoc-process-docstring", read_docstring)
    app.connect("build-finished", write_entrance)
