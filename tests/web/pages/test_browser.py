"""The pages in a real browser: by mouse, by keyboard alone, in dark mode, on a narrow screen."""

from __future__ import annotations

import os
import re
from datetime import timedelta
from pathlib import Path

import pytest

from holdfast.domain.batches.batch import BatchState
from holdfast.domain.jobs.job import State
from holdfast.domain.jobs.selector import Selector
from holdfast.testing import drain
from tests.support.stage import CHROMIUM, Stage
from tests.support.workers import working
from tests.web.pages.test_routes import HOSTILE

playwright = pytest.importorskip("playwright.sync_api")
expect = playwright.expect

pytestmark = [
    # On a developer's machine it may be missing; in CI `make services` has installed it.
    pytest.mark.skipif(CHROMIUM is None and "CI" not in os.environ, reason="Chromium is not installed (make services)"),
]

#: Milliseconds; long enough for a slow machine.
PATIENCE = 120_000
CONTRAST = {"resultTypes": ["violations"], "runOnly": {"type": "rule", "values": ["color-contrast"]}}
#: The pictures of the guide.
PICTURED = ("overview", "jobs", "job", "log", "batch", "schedule", "errors", "queues", "dependencies")
PICTURES = Path(__file__).parents[3] / "docs" / "guides" / "pictures"


@pytest.fixture(scope="module")
def stage(tmp_path_factory):
    with Stage(tmp_path_factory.mktemp("stage"), HOSTILE).served() as stage:
        yield stage


@pytest.fixture(scope="module")
def browser():
    expect.set_options(timeout=PATIENCE)
    with playwright.sync_playwright() as running:
        opened = running.chromium.launch(
            executable_path=CHROMIUM,
            args=["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"],
            timeout=PATIENCE,
        )
        yield opened
        opened.close()


class Visitor:
    """A person with a browser window. Errors of the browser are collected."""

    def __init__(self, stage: Stage, browser, **options) -> None:
        self.stage = stage
        self.context = browser.new_context(viewport={"width": 1200, "height": 760}, **options)
        self.context.set_default_timeout(PATIENCE)
        self.context.add_cookies(stage.cookies)
        self.page = self.context.new_page()
        self.complaints: list[str] = []
        self.page.on("pageerror", lambda error: self.complaints.append(f"error: {error}"))
        self.page.on("console", self._record)
        self.page.on("dialog", lambda dialog: (self.complaints.append(f"dialog: {dialog.message}"), dialog.dismiss()))

    def _record(self, message) -> None:
        if message.type == "error" and "Failed to load resource" not in message.text:
            self.complaints.append(f"{message.type}: {message.text}")

    def go(self, path: str) -> None:
        self.page.goto(self.stage.url + path, wait_until="load")

    def sees(self, heading: str) -> None:
        """The page has this heading, and its script runs."""
        expect(self.page.get_by_role("heading", name=heading, exact=True)).to_be_visible()
        expect(self.page.locator("#live")).to_be_visible()

    def notices(self, text: str) -> None:
        """The page shows this notice, and its script runs."""
        expect(self.page.get_by_text(text)).to_be_visible()
        expect(self.page.locator("#live")).to_be_visible()

    def press(self, *keys: str) -> None:
        for key in keys:
            self.page.keyboard.press(key)

    def focused(self) -> str:
        """The text of the focused element."""
        return self.page.evaluate("(document.activeElement?.textContent || document.activeElement?.name || '').trim()")

    def walk_to(self, text: str, key: str = "Tab") -> None:
        """Press a key until an element with this text has the focus."""
        for _ in range(60):
            self.press(key)
            if self.focused() == text:
                return
        pytest.fail(f"{text!r} cannot be reached by {key}")


@pytest.fixture
def visitor(stage, browser):
    visitor = Visitor(stage, browser)
    yield visitor
    visitor.context.close()
    assert visitor.complaints == []


def screens(stage: Stage) -> dict[str, str]:
    jobs, batches = stage.scene.jobs, stage.scene.batches
    return {
        "overview": "/",
        "jobs": "/jobs",
        "job": f"/jobs/{jobs['report']}",
        "failed": f"/jobs/{jobs['charge']}",
        "log": f"/jobs/{jobs['build']}/log",
        "batches": "/batches",
        "batch": f"/batches/{batches['partial']}",
        "schedules": "/schedules",
        "schedule": "/schedule?name=nightly",
        "queues": "/queues",
        "workers": "/workers",
        "errors": "/errors",
        "dependencies": f"/dependencies?job={jobs['parse']}",
        "acts": "/audit-log",
        "doctor": "/doctor",
    }


# -- appearance: before any change ----------------------------------------------------------


def test_accessible_in_light_and_dark(stage, visitor):
    """axe reports nothing serious on any screen. HOLDFAST_PICTURES=1 takes the pictures of the guide."""
    from axe_playwright_python.sync_playwright import Axe

    axe, tags = Axe(), ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]
    for name, path in screens(stage).items():
        visitor.go(path)
        for scheme in ("light", "dark"):
            visitor.page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
            if scheme == "light":
                result = axe.run(visitor.page, options={"resultTypes": ["violations"], "runOnly": tags}).response
            else:  # axe is loaded already, and only the colours differ
                result = visitor.page.evaluate("rules => axe.run(document, rules)", CONTRAST)
            serious = [each for each in result["violations"] if each["impact"] in ("serious", "critical")]
            assert not serious, (name, scheme, serious)
            if "HOLDFAST_PICTURES" in os.environ and (name in PICTURED if scheme == "light" else name == "overview"):
                PICTURES.mkdir(exist_ok=True)
                shown = name if scheme == "light" else f"{name}-{scheme}"
                visitor.page.screenshot(path=PICTURES / f"{shown}.png")


def test_narrow(stage, browser):
    """No screen scrolls sideways on a phone."""
    visitor = Visitor(stage, browser)
    visitor.page.set_viewport_size({"width": 360, "height": 740})
    for prefix in ("", "/hostile"):
        for name, path in screens(stage).items():
            visitor.go(prefix + path)
            wide = visitor.page.evaluate("document.documentElement.scrollWidth")
            assert wide <= 360, (prefix, name, wide)
    visitor.context.close()


def test_hostile_texts_do_nothing(stage, visitor):
    """Hostile texts run nothing and violate no content policy; also below a path."""
    for path in screens(stage).values():
        visitor.go("/hostile" + path)
        assert visitor.page.locator("main").count() == 1
    visitor.page.get_by_role("link", name="Jobs").click()
    expect(visitor.page.get_by_role("heading", name="Jobs")).to_be_visible()
    assert "/hostile/jobs" in visitor.page.url


# -- by mouse ------------------------------------------------------------------------------------------


def test_first_view(visitor):
    """The overview names the problems and links to them."""
    visitor.go("/")
    expect(visitor.page.get_by_role("heading", name="Needs attention")).to_be_visible()
    expect(visitor.page.locator(".plot canvas")).to_be_visible()
    visitor.page.get_by_role("link", name=re.compile("jobs? (is|are) dead")).click()
    expect(visitor.page.get_by_role("heading", name="Errors")).to_be_visible()


def test_find_a_failed_job_and_read_its_log(visitor):
    """From the list to the failed job and its log."""
    page = visitor.page
    visitor.go("/")
    page.get_by_role("link", name="Jobs", exact=True).click()
    page.get_by_role("navigation", name="States").get_by_role("link", name="dead").click()
    page.get_by_role("link", name="build", exact=True).click()
    expect(page.locator("#why")).to_contain_text("exit 2")
    page.get_by_role("link", name="Log", exact=True).click()
    expect(page.locator(".log")).to_contain_text("undefined symbol")
    expect(page.locator(".log .f1")).to_have_text("error")
    page.get_by_label("Find in this log").fill("symbol")
    page.get_by_role("button", name="Find").click()
    expect(page.locator(".log mark")).to_have_text("symbol")


def test_retry_a_cluster(stage, visitor):
    """Dead jobs with similar errors are retried together, after a confirmation with their count."""
    page = visitor.page
    visitor.go("/errors")
    page.get_by_role("row", name=re.compile("has no address")).get_by_role("button", name="Retry…").click()
    expect(page.get_by_role("heading", name="Retry 5 dead jobs?")).to_be_visible()
    page.get_by_role("button", name="Retry 5 dead jobs").click()
    expect(page.get_by_text("5 jobs retried: ")).to_be_visible()
    assert stage.app.store.views.count(Selector(kinds=("invoice",), states=(State.READY,))).count == 5


def test_pause_and_resume_a_batch(stage, visitor):
    """A running batch is paused and resumed from its page, which updates by itself."""
    page, steps = visitor.page, stage.steps
    with working(stage.app, slots=2, queues=("crawl",)):
        batch = stage.app.submit(stage.crawl.bind(), range(300), shards=1)
        visitor.go(f"/batches/{batch.id}")
        assert stage.blocked.wait(120)  # a unit runs until the next step
        expect(page.locator("#title")).to_contain_text("running")
        page.get_by_role("button", name="Pause").click()
        expect(page.locator("#title")).to_contain_text("pausing")
        steps.release(150)
        expect(page.locator("#title")).to_contain_text("paused")
        page.get_by_role("button", name="Resume").click()
        expect(page.get_by_text(f"Batch {batch.id} resumed.")).to_be_visible()
        steps.release(600)
        expect(page.locator("#title")).to_contain_text("done")
    assert stage.app.store.batches.get(batch.id).state is BatchState.DONE


@pytest.mark.parametrize(
    ("options", "offset", "zone", "named"),
    [
        ({"timezone_id": "America/Caracas"}, -240, "GMT-4", "America/Caracas"),
        ({"timezone_id": "America/Caracas", "java_script_enabled": False}, 0, "UTC", "UTC"),
    ],
)
def test_times_are_those_of_the_browser(stage, browser, options, offset, zone, named):
    """With their zone, in texts and titles; a backfill takes them, too. Without a script they are UTC."""
    changed_at = stage.app.store.schedules.get("nightly").changed_at + timedelta(minutes=offset)
    visitor = Visitor(stage, browser, **options)
    visitor.go("/schedule?name=nightly")
    expect(visitor.page.locator("footer time")).to_contain_text(zone)
    title = visitor.page.locator("#about time").last.get_attribute("title")
    assert re.match(rf"{changed_at:%Y-%m-%d %H:%M:%S}\S* {re.escape(zone)}", title)
    expect(visitor.page.locator("#backfill label").first).to_contain_text(f"From, in {named}")
    visitor.context.close()


def test_change_a_limit(stage, visitor):
    """A limit is changed in the table."""
    page = visitor.page
    visitor.go("/queues")
    page.get_by_label("Limit of imports over all hosts").fill("3")
    page.get_by_role("button", name="Set the limits of imports").click()
    expect(page.get_by_text("Queue imports changed.")).to_be_visible()
    assert stage.app.store.queues.get("imports").limit == 3


def test_trigger_a_schedule(stage, visitor):
    """A schedule is triggered, and its job is in its history."""
    page = visitor.page
    visitor.go("/schedules")
    page.get_by_role("link", name="nightly").click()
    expect(page.get_by_role("heading", name="nightly")).to_be_visible()
    expect(page.locator("#history tbody tr")).not_to_have_count(0)
    before = page.locator("#history tbody tr").count()
    page.get_by_role("button", name="Trigger now").click()
    expect(page.get_by_text("Schedule nightly triggered. Jobs: ")).to_be_visible()
    expect(page.locator("#history tbody tr")).to_have_count(before + 1)


# -- live ----------------------------------------------------------------------------------------------


def test_live(stage, visitor):
    """A page updates by itself, except while a row is selected."""
    page = visitor.page
    visitor.go("/jobs?filter=label%3Dlive-*")
    expect(page.get_by_text("No job matches.")).to_be_visible()
    stage.scene.handlers["slow"].options(label="live-1", queue="imports").enqueue()
    visitor.go("/jobs?filter=label%3Dlive-*")
    expect(page.locator("#live")).to_have_text("live")
    stage.scene.handlers["slow"].options(label="live-2", queue="imports").enqueue()
    expect(page.get_by_role("link", name="live-2")).to_be_visible()

    page.get_by_role("checkbox", name=re.compile("Select job")).first.check()
    stage.scene.handlers["slow"].options(label="live-3", queue="imports").enqueue()
    expect(page.locator("#live")).to_have_text("held while you read")
    assert page.get_by_role("link", name="live-3").count() == 0
    page.get_by_role("checkbox", name=re.compile("Select job")).first.uncheck()
    page.evaluate("document.activeElement.blur()")
    expect(page.get_by_role("link", name="live-3")).to_be_visible()


def test_a_form_that_came_with_an_update_works(stage, visitor):
    """E6.8: viewers share updates, which hold no form token: the page fills in its own."""
    page = visitor.page
    visitor.go("/queues")
    expect(page.locator("#live")).to_have_text("live")
    stage.app.store.queues.pause("reports", note="for the test")
    expect(page.get_by_text("for the test")).to_be_visible()
    page.get_by_label("Limit of reports over all hosts").fill("5")
    page.get_by_role("button", name="Set the limits of reports").click()
    expect(page.get_by_text("Queue reports changed.")).to_be_visible()
    stage.app.store.queues.set_limits("reports", limit=4)
    stage.app.store.queues.resume("reports")


# -- by keyboard alone -----------------------------------------------------------------------------------


def test_keyboard(stage, visitor):
    """Keys alone: filter and retry jobs, set a limit, show the help, switch the theme."""
    page = visitor.page
    for number in range(2):
        stage.scene.handlers["charge"].options(label=f"keys-{number}").enqueue(card="1", token="2")
    drain(stage.app)
    visitor.go("/")
    visitor.press("g", "j")
    visitor.sees("Jobs")
    visitor.press("/")
    page.keyboard.type("label=keys-*")
    visitor.press("Enter")
    expect(page.locator("tr[data-row]")).to_have_count(2)
    visitor.sees("Jobs")
    visitor.press("j", "x", "j", "x")
    expect(page.locator("[data-chosen]")).to_have_text("2 selected")
    visitor.walk_to("Apply to selected", "Shift+Tab")
    visitor.press("Enter")
    expect(page.get_by_role("heading", name="Retry 2 jobs?")).to_be_visible()
    page.get_by_role("button", name="Retry 2 jobs").press("Enter")
    visitor.notices("2 jobs retried: ")

    visitor.press("?")
    expect(page.get_by_role("dialog")).to_be_visible()
    visitor.press("Escape")
    expect(page.get_by_role("dialog")).to_be_hidden()
    visitor.press("t")
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    page.reload()
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    visitor.sees("Jobs")

    visitor.press("g", "q")
    visitor.sees("Queues")
    visitor.press("Tab")
    assert visitor.focused() == "Skip to the content"
    visitor.press("Enter")
    visitor.walk_to("limit")
    page.keyboard.type("9")
    visitor.press("Enter")
    visitor.notices("changed.")

    visitor.press("g", "s")
    visitor.sees("Schedules")
    visitor.press("j", "Enter")
    visitor.sees("hourly")
    visitor.walk_to("Trigger now")
    visitor.press("Enter")
    visitor.notices("triggered. Jobs: ")


# -- without JavaScript ------------------------------------------------------------------------------------


def test_without_javascript(stage, browser):
    """Everything works without JavaScript, and nothing that needs it is shown."""
    visitor = Visitor(stage, browser, java_script_enabled=False)
    page = visitor.page
    stage.scene.handlers["slow"].options(label="plain", queue="imports").enqueue()
    visitor.go("/jobs?filter=label%3Dplain")
    expect(page.locator("#live")).to_be_hidden()
    page.get_by_role("checkbox", name=re.compile("Select job")).check()
    page.get_by_label("Action").select_option("cancel")
    page.get_by_role("button", name="Apply to selected").click()
    expect(page.get_by_role("heading", name="Cancel 1 job?")).to_be_visible()
    page.get_by_role("button", name="Cancel 1 job").click()
    expect(page.get_by_text("1 job cancelled: ")).to_be_visible()
    visitor.go("/")
    page.get_by_text("As a table").click()
    expect(page.get_by_role("columnheader", name="Minute", exact=True)).to_be_visible()
    visitor.context.close()
