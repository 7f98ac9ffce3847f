"""The documentation site: complete, and free of the network when it is built and when it is read."""

from __future__ import annotations

import fcntl
import os
import re
import runpy
import subprocess
import sys

import pytest

import holdfast
from tests.docs.test_snippets import ROOT
from tests.support.processes import PATIENCE
from tests.support.stage import CHROMIUM

CONF = runpy.run_path(str(ROOT / "docs" / "conf.py"))
SOURCES = {
    *(ROOT / "docs").rglob("*.md"),
    *(ROOT / "docs").rglob("*.rst"),
    *(ROOT / "examples").glob("*/README.md"),
    *(ROOT / "deploy").glob("README.md"),
    *(ROOT / name for name in ("ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md")),
}
#: Builds the site in a process that may not use the network.
BUILD = """
import sys
from sphinx.cmd.build import main

def refuse(event, arguments):
    if event in ("socket.connect", "socket.getaddrinfo", "urllib.Request"):
        raise PermissionError(f"{event} {arguments}")

sys.addaudithook(refuse)
sys.exit(main(sys.argv[1:]))
"""


def test_the_navigation_names_every_page():
    """A new page needs a line in docs/tutorials.md, how-to.md, explanation.md, project.md or reference/index.md."""
    reached = {(ROOT / CONF["root_doc"]).with_suffix(".md")}
    for section in CONF["SECTIONS"]:
        page = ROOT / f"{section}.md"
        below = {(page.parent / name).resolve() for name in CONF["pages_below"](page.read_text())}
        reached |= {path for path in SOURCES if path.with_suffix("") in below}
    assert {str(path.relative_to(ROOT)) for path in SOURCES - reached} == set()
    assert {ROOT / f"{section}.md" for section in CONF["SECTIONS"]} <= reached


def test_a_link_to_a_folder_leads_to_its_readme():
    resolve = CONF["resolve_folders"]
    assert resolve("see [adr](adr)", ROOT / "docs") == "see [adr](adr/README.md)"
    assert resolve("see [schemas](reference/schemas).", ROOT / "docs") == "see schemas."
    assert resolve("see [this](index.md) and [that](https://example.com)", ROOT / "docs") == (
        "see [this](index.md) and [that](https://example.com)"
    )


def test_the_reference_names_every_public_name():
    page = (ROOT / "docs" / "reference" / "python.rst").read_text()
    documented = re.findall(r"^\.\. auto(?:class|exception):: (\w+)$", page, re.MULTILINE)
    assert sorted(documented) == sorted(holdfast.__all__)


@pytest.fixture(scope="module")
def site(tmp_path_factory, worker_id):
    """The site, built without the network and once for all test processes. A warning of the generator is an error."""
    folder = tmp_path_factory.getbasetemp()
    folder = folder if worker_id == "master" else folder.parent
    with (folder / "site.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "site" / "index.html").exists():
            options = ["-q", "-W", "--keep-going", "-c", "docs", "-d", folder / "site-cache"]
            line = [sys.executable, "-c", BUILD, *options, ".", folder / "site"]
            done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, timeout=10 * PATIENCE, check=False)
            assert done.returncode == 0, done.stderr
    return folder / "site"


@pytest.mark.slow
def test_every_page_is_built(site):
    for source in SOURCES:
        assert (site / source.relative_to(ROOT)).with_suffix(".html").exists(), source
    assert "docs/index.html" in (site / "index.html").read_text()


@pytest.mark.slow
def test_pages_load_nothing_from_the_network(site):
    """Scripts, styles, fonts, pictures and frames are files of the site."""
    remote = re.compile(
        r"""<(?:script|img|iframe|source)\b[^>]*\bsrc=["']?(?:https?:)?//|<link\b[^>]*\bhref=["']?(?:https?:)?//"""
    )
    for page in site.rglob("*.html"):
        assert not remote.search(page.read_text()), page
    for style in site.rglob("*.css"):
        assert not re.search(r"""(?:url\(|@import)\s*["']?(?:https?:)?//""", style.read_text()), style


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None and "CI" not in os.environ, reason="Chromium is not installed (make services)")
def test_a_reader_searches_and_switches_to_dark(site):
    """From the file system: no server, no request leaves it, and the browser reports no error."""
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as running:
        browser = running.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(color_scheme="dark")
        page.set_default_timeout(1000 * PATIENCE)
        requests: list[str] = []
        errors: list[str] = []
        page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("request", lambda request: requests.append(request.url))
        page.goto((site / "index.html").as_uri())
        page.wait_for_url("**/docs/index.html")
        assert page.locator("html").get_attribute("data-theme") == "dark"
        page.keyboard.press("Control+k")
        page.keyboard.type("visibility timeout")
        page.keyboard.press("Enter")
        page.locator("#search-results a", has_text="Celery").first.wait_for()
        browser.close()
    assert errors == []
    assert [url for url in requests if not url.startswith(("file:", "data:"))] == []
