"""Every screen without JavaScript: content, actions and cost."""

from __future__ import annotations

import hashlib
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from msgspec import structs

import holdfast
from holdfast.admin.views.batches import BatchReader
from holdfast.admin.views.fleet import queue_views
from holdfast.domain.access.roles import Role
from holdfast.domain.jobs.job import State, WorkerId
from holdfast.domain.jobs.new_job import NewJob
from holdfast.domain.jobs.selector import Selector
from holdfast.domain.jobs.verdict import Failed, Released
from holdfast.domain.schedules.definition import Definition
from holdfast.web.pages.batches import resume_command
from holdfast.web.pages.routes import ACTIONS, PAGES
from holdfast.web.request import WEB_FOLDER
from tests.store.batches.test_batches import leave
from tests.store.batches.test_inbox import BOX, hand_over
from tests.support.jobs import claim_jobs
from tests.support.open_site import OpenSite, client_of, counting
from tests.support.scene import Scene

#: Texts that break pages which trust them: markup, attributes, scripts, directions, controls, colours.
HOSTILE = (
    "\"'><script>alert(1)</script><img src=x onerror=alert(2)>{{7*7}}\u202e\u2066\u200b\x1b[31m\x07javascript:alert(3)"
)
SECRETS = ("s3cr3t-value-here", "4111-1111")


class Scenery:
    """A complete store, and a client for its pages."""

    def __init__(self, url: str, text: str = "") -> None:
        self.app = holdfast.Holdfast(url)
        assert self.app.store
        self.scene = Scene(self.app, text).build()
        self.site = OpenSite(self.app)
        self.client = client_of(self.site)

    def paths(self) -> dict[str, str]:
        """One address per screen, by its route."""
        jobs, batches = self.scene.jobs, self.scene.batches
        return {
            "/": "/",
            "/find": "/find?q=invoice",
            "/jobs": "/jobs?filter=state%3Ddead",
            "/jobs/{id:int}": f"/jobs/{jobs['charge']}",
            "/jobs/{id:int}/log": f"/jobs/{jobs['build']}/log",
            "/batches": "/batches",
            "/batches/{id:int}": f"/batches/{batches['partial']}",
            "/inboxes": "/inboxes?inbox=results",
            "/queues": "/queues",
            "/workers": "/workers",
            "/schedules": "/schedules",
            "/schedule": "/schedule?name=nightly",
            "/errors": "/errors",
            "/dependencies": f"/dependencies?job={jobs['parse']}",
            "/audit-log": "/audit-log",
            "/doctor": "/doctor",
        }

    def more(self) -> list[str]:
        """Further addresses: other jobs, filters and searches."""
        jobs = self.scene.jobs
        return [
            "/jobs",
            "/jobs?state=running",
            "/queues?name=builds",
            "/dependencies",
            *(f"/jobs/{jobs[name]}" for name in ("mail ada", "build", "fetch", "parse", "publish", "held", "report")),
            f"/jobs/{jobs['build']}/log?find=error",
            f"/batches/{self.scene.batches['paused']}",
            f"/batches/{self.scene.batches['partial']}?state=failed&text=message",
        ]

    def close(self) -> None:
        self.client.close()
        self.app.close()

    def get(self, path: str) -> str:
        answer = self.client.get(path)
        assert answer.status_code == 200, (path, answer.status_code, answer.text[:2000])
        return answer.text

    def post(self, path: str, **form: object) -> str:
        """Send a form and return the page that follows."""
        answer = self.client.post(path, data=form)
        assert answer.status_code == 303, (answer.status_code, answer.text[:3000])
        return self.get(answer.headers["location"])


@pytest.fixture
def place(real_database, tmp_path, monkeypatch):
    """A complete store, on each backend."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    scenery = Scenery(real_database.url)
    yield scenery
    scenery.close()


class Checker(HTMLParser):
    """Collects forbidden markup of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.bad: list[str] = []
        self.open: list[str] = []
        self.ids: list[str] = []

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        if tag == "script" and (not attributes.get("src", "").startswith("/static/")):
            self.bad.append(f"a script of its own: {attrs}")
        if tag in ("style", "iframe", "object", "embed", "base", "img"):
            self.bad.append(f"a {tag}: {attrs}")
        for name, value in attrs:
            if name.startswith("on") or name == "style":
                self.bad.append(f"{tag} {name}={value}")
            if name in ("href", "src", "action", "formaction") and not re.match(r"^(/(?!/)|#)", value or ""):
                self.bad.append(f"{tag} {name}={value}")
        if "id" in attributes:
            self.ids.append(attributes["id"])
        if tag == "form" and attributes.get("method") == "post":
            self.open.append("post")

    def handle_endtag(self, tag):
        if tag == "form" and self.open:
            self.bad.append("a form without its token")
            self.open.clear()

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)


class TokenChecker(Checker):
    """Checks in addition that every form with an action has its token."""

    def handle_starttag(self, tag, attrs):
        super().handle_starttag(tag, attrs)
        if tag == "input" and dict(attrs).get("name") == "form_token":
            self.open.clear()


def faults(page: str) -> list[str]:
    checker = TokenChecker()
    checker.feed(page)
    twice = {name for name in checker.ids if checker.ids.count(name) > 1}
    return checker.bad + [f"twice: {name}" for name in twice]


# -- every screen ----------------------------------------------------------------------------------


def test_every_screen_shows_that_the_store_is_stopped(place):
    """K9: the banner names who and why; it resumes the store. An emergency stop asks for confirmation."""
    page = place.post("/stop-switch/action", action="drain", note="disk <full>")
    assert "disk &lt;full&gt;" in page
    for path in place.paths().values():
        answer = place.client.get(path)
        assert answer.status_code == 303 or "disk &lt;full&gt;" in answer.text, path
    assert place.app.store.stop_switch.get().mode == "drain"
    asked = place.client.post("/stop-switch/action", data={"action": "emergency-stop", "note": "fire"})
    assert (asked.status_code, place.app.store.stop_switch.get().mode) == (200, "drain")
    place.post("/stop-switch/action", action="emergency-stop", note="fire", sure="1")
    assert place.app.store.stop_switch.get().mode == "stop"
    assert "disk" not in place.post("/stop-switch/action", action="resume")
    assert place.app.store.stop_switch.get() is None
    assert place.client.post("/stop-switch/action", data={"action": "explode"}).status_code == 400


def test_every_screen(place):
    """Each screen has its command line, no inline code or style, and needs at most five statements and the banner's."""
    assert set(place.paths()) == set(PAGES)
    assert place.app.store.views.declared_secrets()  # cached for some seconds, as are the next two
    place.app.store.workers.recent_names()
    place.app.store.dashboard.recent_scheduled_lanes()
    for route, path in place.paths().items():
        with counting(place.app.store) as statements:
            answer = place.client.get(path)
        if route == "/find":
            assert answer.status_code == 303
            continue
        assert answer.status_code == 200, (path, answer.text[-2000:])
        assert not faults(answer.text), path
        if route != "/doctor":  # its findings are cached
            assert len(statements) <= 6, (path, statements)
            assert "read_stop_switch" in statements, (path, statements)
        assert "<code>holdfast " in answer.text, path
        assert answer.text.count('aria-current="page"') >= 1, path


def test_secrets_are_masked(place):
    """No page shows a field named token, a declared secret, or an error with one."""
    for path in [*place.paths().values(), *place.more()]:
        page = place.client.get(path).text
        for secret in SECRETS:
            assert secret not in page, path


@pytest.mark.one_backend
def test_progress_is_shown_without_secrets(place):
    """On the page of the job, and in lists."""
    card, store = "4222-2222", place.app.store
    job = place.app.enqueue("charge", {"card": card, "token": "t"}, queue="tills")
    (lease,) = claim_jobs(store, WorkerId("till"), queues=["tills"], kinds=["charge"], started=True)
    store.leases.report(lease, done=1, total=2, message=f"charging {card}")
    for path in (f"/jobs/{job.id}", "/jobs?filter=queue%3Dtills"):
        page = place.get(path)
        assert "charging ***" in page
        assert card not in page
    store.leases.settle(lease, Released())


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    """A store in which every text is hostile."""
    folder = tmp_path_factory.mktemp("hostile")
    scenery = Scenery(f"sqlite:///{folder / 'jobs.db'}", HOSTILE)
    yield scenery
    scenery.close()


def test_hostile_texts(hostile):
    """A hostile text is text on the page: no tag, attribute, direction mark or control."""
    shown = ""
    for path in [*hostile.paths().values(), *hostile.more()]:
        page = hostile.client.get(path).text
        assert not faults(page), path
        assert "<script>alert" not in page, path
        assert "<img src=x" not in page, path
        for character in "\u202e\u2066\u200b\x1b\x07":
            assert character not in re.sub(r'value="[^"]*"', "", page), (path, character)
        shown += page
    assert shown.count("&lt;script&gt;alert(1)&lt;/script&gt;") > 20
    assert "⟨U+202E⟩" in shown
    assert "{{7*7}}" in shown


@pytest.mark.parametrize(
    "path",
    [
        "/jobs?filter=%22%3E%3Cscript%3E",
        "/jobs?filter=nope",
        "/jobs?state=%3Cscript%3E",
        "/schedule?name=%3Cscript%3E",
        "/jobs/999999",
        "/batches/999999",
        "/find?q=%3Cscript%3E",
        "/jobs?before=%3Cx",
        "/dependencies?job=%3Cscript%3E",
        "/audit-log?actor=%3Cscript%3E&before=x",
        "/jobs/1/log?token=x&find=%3Cscript%3E",
        "/batches?before=99999999999999999999",
    ],
)
def test_hostile_addresses(hostile, path):
    """Every address has a page as answer, never a failure, and hostile parameters are text."""
    answer = hostile.client.get(path, follow_redirects=True)
    assert answer.status_code in (200, 400, 404), answer.text[-2000:]
    assert not faults(answer.text)
    assert "<script>" not in answer.text


def test_a_forged_notice_is_only_text(hostile):
    """The cookie with the notice may contain hostile text."""
    answer = hostile.client.get("/", headers={"cookie": "holdfast_said=%3Cscript%3Ealert(1)%3C/script%3E"})
    assert "&lt;script&gt;alert(1)" in answer.text
    assert not faults(answer.text)


# -- actions ----------------------------------------------------------------------------------


def state_of(place, name) -> State:
    return place.app.store.views.state(place.scene.jobs[name])


def test_retry_one(place):
    """A dead job is retried from its page. The next page shows that once, and the audit log has an entry."""
    job = place.scene.jobs["charge"]
    page = place.post(f"/jobs/{job}/action", action="retry")
    assert f"1 job retried: {job}." in page
    assert state_of(place, "charge") is State.READY
    assert "1 job retried" not in place.get(f"/jobs/{job}")
    record = place.app.store.audit_log.page(limit=1)[0]
    assert (record.action, record.actor, record.via) == ("retry", "ada", "web")
    place.client.post(f"/jobs/{job}/action", data={"action": "hold"})
    assert "1 job held" not in place.client.get("/", headers={"x-holdfast-live": "1"}).text
    assert f"1 job held: {job}." in place.get(f"/jobs/{job}")


def test_change_one(place):
    """Priority, queue and time are changed from the page of a job; an invalid number is refused."""
    job = place.scene.jobs["ready 0"]
    place.post(f"/jobs/{job}/action", action="set", priority="7", to_queue="other", run_at="")
    changed = place.app.store.views.get(job)
    assert (changed.priority, changed.queue) == (7, "other")
    answer = place.client.post(f"/jobs/{job}/action", data={"action": "set", "priority": "seven"})
    assert answer.status_code == 400
    assert "priority is a whole number" in answer.text


@pytest.mark.one_backend
def test_chosen_jobs(place):
    """Many jobs, and destructive actions, ask first: with the answer of a dry run, and the command."""
    ids = [place.scene.jobs[f"ready {number}"] for number in range(3)]
    form = {"action": "hold", "which": "chosen", "id": ids[:2]}
    assert "2 jobs would be held" in place.client.post("/jobs/action", data=form).text
    assert place.client.post("/jobs/action", data={**form, "sure": "1"}).status_code == 303
    assert [state_of(place, f"ready {number}") for number in range(3)] == [State.HELD, State.HELD, State.READY]

    answer = place.client.post("/jobs/action", data={"action": "cancel", "which": "chosen", "id": ids})
    assert answer.status_code == 200
    assert "Cancel 3 jobs?" in answer.text
    assert f"holdfast cancel {ids[0]} {ids[1]} {ids[2]} --yes" in answer.text
    assert state_of(place, "ready 2") is State.READY
    place.post("/jobs/action", action="cancel", which="chosen", id=ids, sure="1")
    assert state_of(place, "ready 2") is State.CANCELLED


@pytest.mark.one_backend
def test_all_that_match(place):
    """An action on all that match asks first, with the count; without a filter it is refused."""
    form = {"action": "retry", "which": "all", "filter": "state=dead kind=invoice"}
    answer = place.client.post("/jobs/action", data=form)
    assert "Retry 5 jobs?" in answer.text
    assert "--filter" in answer.text
    assert "5 jobs retried: " in place.post("/jobs/action", **form, sure="1", back="state=dead")
    assert place.app.store.views.count(Selector(states=(State.DEAD,), kinds=("invoice",))).count == 0
    refused = place.client.post("/jobs/action", data={"action": "cancel", "which": "all", "filter": "", "sure": "1"})
    assert refused.status_code == 400
    nothing = place.client.post("/jobs/action", data={"action": "cancel", "which": "chosen"})
    assert "no job is selected" in nothing.text


@pytest.mark.one_backend
def test_clusters(place):
    """A cluster is retried or deleted after a confirmation with its count."""
    page = place.get("/errors")
    key = re.search(r'name="cluster" value="([0-9a-f]+)"', page)[1]
    assert "Retry 5 dead jobs?" in place.client.post("/errors/action", data={"action": "retry", "cluster": key}).text
    assert "5 jobs retried: " in place.post("/errors/action", action="retry", cluster=key, sure="1")
    gone = place.client.post("/errors/action", data={"action": "retry", "cluster": key, "sure": "1"})
    assert gone.status_code == 404


@pytest.mark.one_backend
def test_retrying_jobs_are_among_the_errors_without_buttons(place):
    """They are retried anyway. A cluster with dead jobs has buttons for these."""
    store = place.app.store
    store.control.delete(Selector(states=(State.DEAD,)))
    store.jobs.enqueue(NewJob(kind="flaky"))
    (lease,) = claim_jobs(store, "w", queues=["default"], kinds=["flaky"])
    store.leases.settle(lease, Failed(error="no network"))
    page = place.get("/errors")
    assert "no network" in page
    assert "1 retrying" in page
    assert 'name="cluster"' not in page


@pytest.mark.one_backend
def test_saved_filters(place):
    """A filter is saved under a name and deleted again."""
    page = place.post("/filters", name="the dead", filter="state=dead")
    assert "the dead" in page
    assert "is deleted" in place.post("/filters/drop?name=the%20dead")
    assert "the dead</a>" not in place.get("/jobs")
    assert place.client.post("/filters", data={"name": "x", "filter": "nope"}).status_code == 400


def test_batches(place):
    """A batch is resumed and paused, and its failed units are retried or skipped. Cancelling asks first."""
    paused, partial = place.scene.batches["paused"], place.scene.batches["partial"]
    assert f"Batch {paused} resumed." in place.post(f"/batches/{paused}/action", action="resume")
    assert place.app.store.batches.get(paused).state == "running"
    place.post(f"/batches/{paused}/action", action="pause")
    assert "Cancel batch" in place.client.post(f"/batches/{paused}/action", data={"action": "cancel"}).text
    assert "cancelled" in place.post(f"/batches/{paused}/action", action="cancel", sure="1")

    key = re.search(r'name="cluster" value="([0-9a-f]+)"', place.get(f"/batches/{partial}"))[1]
    form = {"action": "skip", "cluster": key}
    assert "Skip 4 units?" in place.client.post(f"/batches/{partial}/units", data=form).text
    assert "4 units skipped: " in place.post(f"/batches/{partial}/units", **form, sure="1")
    assert place.app.store.batches.get(partial).state == "done"


@pytest.mark.one_backend
def test_a_batch_whose_input_was_not_read_to_its_end(place):
    """Its pages show no share and no number of pending units, because nobody knows them."""

    @place.app.unit()
    def work(key: int) -> None:
        pass

    result = place.app.run(work, iter(range(100)), limit=30, output="none")
    page = place.get(f"/batches/{result.batch.id}")
    assert "30 finished; the input was not read to its end" in page
    assert re.search(r"<b>\?</b><span>pending</span>", page)
    assert "30 finished, number of units unknown" in place.get("/batches")


@pytest.mark.one_backend
def test_how_to_resume(place):
    """A batch of workers resumes by its id; a local one by its own command, if that is known."""
    store, scene = place.app.store, place.scene
    assert f"holdfast batch resume {scene.batches['paused']}" in place.get(f"/batches/{scene.batches['paused']}")
    here = BatchReader(store, scene.batches["partial"]).view
    assert resume_command(here, is_sharded=False) == ""
    arguments = {"replace": True, "token": "***"}
    known = structs.replace(here, kind="mail.jobs:resync", source="range 1-40", arguments=arguments)
    command = "holdfast batch run mail.jobs:resync --range 1-40 --set replace=true --set 'token=***'"
    assert resume_command(known, is_sharded=False) == command


def test_queues(place):
    """Limits are set and removed; a queue is paused with a note and resumed."""
    limits = {"limit": "2", "worker_limit": "1"}
    assert "Queue imports changed." in place.post("/queues/action?name=imports", action="set", **limits)
    assert "Nothing was changed; unchanged: queue imports, paused: it has these limits already." in place.post(
        "/queues/action?name=imports", action="set", **limits
    )
    assert place.app.store.queues.get("imports").limit == 2
    place.post("/queues/action?name=imports", action="set", limit="", worker_limit="")
    assert place.app.store.queues.get("imports").limit is None
    place.post("/queues/action?name=imports", action="resume")
    assert "why not" in place.post("/queues/action?name=imports", action="pause", note="why not")
    decided = place.get("/queues?name=builds")
    assert "step up" in decided
    assert "the host has room" in decided


def test_the_settings_of_a_queue_without_jobs_are_deleted(place):
    """E1.5: after a confirmation; a queue with jobs has no button for it."""
    queues = place.app.store.queues
    queues.set_limits("idle", limit=2)
    button = 'name="action" value="rm"'
    assert place.get("/queues").count(button) == sum(
        not _has_jobs(queue) and _has_settings(queue) for queue in queue_views(place.app.store)
    )
    asked = place.client.post("/queues/action?name=idle", data={"action": "rm"})
    assert (asked.status_code, "Queue idle would be deleted." in asked.text) == (200, True)
    assert queues.get("idle").limit == 2
    assert "Queue idle deleted." in place.post("/queues/action?name=idle", action="rm", sure="1")
    assert queues.get("idle").limit is None


def _has_jobs(queue):
    return any((queue.ready, queue.running, queue.scheduled, queue.waiting, queue.held))


def _has_settings(queue):
    return any((queue.paused, queue.limit, queue.worker_limit, queue.autoscaler))


def test_results_are_accepted_and_refused(place):
    """E4: each free result, after a confirmation. One that a consumer has is left to it."""
    store = place.app.store
    leave(store, hand_over(store, 1, 2, 3))
    store.inbox.take(BOX)
    path = f"/inboxes/action?inbox={BOX}"
    one, two = re.findall(r'name="receipt" value="([0-9.]+)"', place.get(f"/inboxes?inbox={BOX}"))
    asked = place.client.post(path, data={"action": "accept", "receipt": one})
    assert (asked.status_code, f"1 result would be accepted: {one}." in asked.text) == (200, True)
    assert f"1 result accepted: {one}." in place.post(path, action="accept", receipt=one, sure="1")
    place.post(path, action="refuse", receipt=two, note="too dark", sure="1")
    units = store.batches.units(place.app.store.batches.page(limit=1).batches[0].id)
    assert [(unit.state, unit.error) for unit in units] == [("running", None), ("done", None), ("failed", "too dark")]
    gone = place.client.post(path, data={"action": "accept", "receipt": one, "sure": "1"})
    assert (gone.status_code, "E_RESULT_LOST" in gone.text) == (409, True)
    assert place.get(f"/inboxes?inbox={BOX}").count('name="receipt"') == 0


@pytest.mark.one_backend
def test_workers(place):
    """A worker is requested to be quiet and to go on; a stop asks first."""
    place.post("/workers/action?id=worker-1", action="quiet")
    assert 'value="go-on"' in place.get("/workers")
    place.post("/workers/action?id=worker-1", action="go-on")
    assert "Stop worker worker-1?" in place.client.post("/workers/action?id=worker-1", data={"action": "stop"}).text
    place.post("/workers/action?id=worker-1", action="stop", sure="1")
    assert "stopping" in place.get("/workers")


def test_schedules(place):
    """A schedule is resumed, paused with a note and triggered; a backfill shows its plans first."""
    assert "Schedule nightly resumed." in place.post("/schedule/action?name=nightly", action="resume")
    assert "for the weekend" in place.post("/schedule/action?name=nightly", action="pause", note="for the weekend")
    assert "Schedule nightly triggered. Jobs: " in place.post("/schedule/action?name=nightly", action="trigger")
    form = {"action": "backfill", "first": "2020-01-01T00:00", "last": "2020-01-03T00:00"}
    dry = place.client.post("/schedule/action?name=nightly", data={**form, "sure": "0"})
    assert dry.status_code == 200
    assert re.search(r"2 plans would be fired: <time [^>]*>2020-01-01 01:30:00 UTC</time>, <time", dry.text)
    # The script of the page adds the zone of the browser: it is 02:00 in UTC, after the first of these plans.
    there = {**form, "first": "2019-12-31T21:00", "zone": "America/New_York", "sure": "0"}
    dry = place.client.post("/schedule/action?name=nightly", data=there)
    assert re.search(r"2 plans would be fired: <time [^>]*>2020-01-02 01:30:00 UTC</time>, <time", dry.text)
    unknown = place.client.post("/schedule/action?name=nightly", data={**there, "zone": "Mars/North"})
    assert unknown.status_code == 400
    assert "2 plans" in place.post("/schedule/action?name=nightly", **form, sure="1")
    assert "Delete schedule nightly?" in place.client.post("/schedule/action?name=nightly", data={"action": "rm"}).text
    assert "Schedule nightly deleted." in place.post("/schedule/action?name=nightly", action="rm", sure="1")


@pytest.mark.one_backend
def test_schedules_are_listed_by_state_kind_and_name(place):
    """V3: the page of a list keeps its filters."""
    assert "nightly" in place.get("/schedules?state=paused&kind=mail&name=night")
    for query in ("state=failing", "kind=none", "name=nobody"):
        assert "No schedule matches." in place.get(f"/schedules?{query}")
    assert place.client.get("/schedules?state=odd").status_code == 400


@pytest.mark.one_backend
def test_the_line_to_copy_of_a_strange_name(place):
    """A name that begins with a dash is not an option, and one with spaces is one argument."""
    definition = Definition(kind="mail", cron="@hourly")
    for name in ("-x y", "-z"):
        place.scene.app.store.schedules.create(name, definition, actor="ada")
    assert "holdfast schedule show -- &#39;-x y&#39;<" in place.client.get("/schedule", params={"name": "-x y"}).text
    shown = place.client.get("/schedule", params={"name": "-z"}).text
    assert "holdfast schedule backfill --from 6h --dry-run -- -z<" in shown
    assert "holdfast schedule trigger -- -z<" in shown


@pytest.mark.one_backend
def test_roles(place):
    """A viewer sees no buttons and is refused; an operator deletes nothing."""
    place.site.role = Role.VIEWER
    for path in place.paths().values():
        assert 'method="post"' not in place.client.get(path, follow_redirects=True).text, path
    for route in ACTIONS:
        path = route.replace("{id:int}", "1")
        assert place.client.post(path, data={"action": "retry", "request": "quiet"}).status_code == 403, path
    place.site.role = Role.OPERATOR
    job = place.scene.jobs["charge"]
    assert place.client.post(f"/jobs/{job}/action", data={"action": "rm"}).status_code == 403
    assert place.client.post("/schedule/action?name=nightly", data={"action": "rm", "sure": "1"}).status_code == 403
    assert (
        place.client.post(f"/batches/{place.scene.batches['partial']}/action", data={"action": "rm"}).status_code == 403
    )


@pytest.mark.one_backend
def test_viewers_cannot_search_for_parts_of_texts(place):
    """A viewer could guess masked secrets letter by letter."""
    batch = f"/batches/{place.scene.batches['partial']}"
    searches = [
        ("/jobs", {"filter": "state=dead error=a"}),
        ("/jobs", {"filter": "label=a*"}),
        ("/batches", {"name": "a*"}),
    ]
    searches.append((batch, {"text": "a"}))
    assert {place.client.get(path, params=query).status_code for path, query in searches} == {200}
    assert place.client.get("/find?q=a", follow_redirects=False).headers["location"].endswith("label%3D%27a%2A%27")
    place.site.role = Role.VIEWER
    assert {place.client.get(path, params=query).status_code for path, query in searches} == {403}
    assert place.client.get("/find?q=a", follow_redirects=False).headers["location"].endswith("label%3Da")
    assert 'name="text"' not in place.client.get(batch).text
    assert "error=" not in place.client.get("/jobs").text


@pytest.mark.one_backend
def test_strange_forms(place):
    """An invalid form is refused with a page."""
    for path in (
        "/jobs/action",
        "/queues/action?name=x",
        "/schedule/action?name=nightly",
        "/workers/action?id=worker-1",
    ):
        assert place.client.post(path, data={"action": "explode", "request": "explode"}).status_code == 400, path
    assert place.client.post("/jobs/action", content=b"\xff\xfe").status_code == 400
    assert place.client.post("/queues/action?name=", data={"action": "pause"}).status_code == 404
    assert place.client.get("/jobs/action").status_code in (404, 405)


# -- logs ------------------------------------------------------------------------------------------


@pytest.mark.one_backend
def test_log(place):
    """The log of a command has colours, masks and a search; other jobs have no log."""
    job = place.scene.jobs["build"]
    page = place.get(f"/jobs/{job}/log")
    assert '<span class="f1">error</span>' in page
    assert "the token was ***" in page
    page = place.get(f"/jobs/{job}/log?find=SYMBOL")
    assert "1 lines hold" in page
    assert "<mark>symbol</mark>" in page
    assert "runs a Python handler" in place.get(f"/jobs/{place.scene.jobs['charge']}/log")


# -- an empty store --------------------------------------------------------------------------------


@pytest.mark.one_backend
def test_empty_store(real_database):
    """The pages of a new store say what to do first."""
    with holdfast.Holdfast(real_database.url) as app:
        client = client_of(OpenSite(app))
        for path in (
            "/",
            "/jobs",
            "/batches",
            "/queues",
            "/workers",
            "/schedules",
            "/errors",
            "/dependencies",
            "/audit-log",
            "/doctor",
        ):
            answer = client.get(path)
            assert answer.status_code == 200, answer.text[-1500:]
            assert not faults(answer.text)
        assert "holdfast add -- echo hello" in client.get("/jobs").text
        assert "holdfast batch run" in client.get("/batches").text
        assert "holdfast worker" in client.get("/workers").text


# -- assets ------------------------------------------------------------------------------

CHECKSUMS = {
    "uplot.js": "19c8d4c6ad88929a79f4ae49d6f7161566dfd0ba3d15cc495e974f787eb78f1f",
    "uplot.css": "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04",
    "uplot.LICENSE": "8f989229699b4fe2f1a0432d0e9edc338a8a911e250e2d1b01ecd770a5f5b1bd",
}


def test_assets():
    """All assets together are small; foreign ones are unchanged and have their licence."""
    assets = list((WEB_FOLDER / "static").iterdir())
    assert sum(path.stat().st_size for path in assets) < 150_000
    for name, digest in CHECKSUMS.items():
        assert hashlib.sha256((WEB_FOLDER / "static" / name).read_bytes()).hexdigest() == digest


def test_assets_load_nothing_from_other_sites():
    """No script, style or template names another server."""
    ours: list[Path] = [
        *(WEB_FOLDER / "templates").iterdir(),
        WEB_FOLDER / "static" / "app.js",
        WEB_FOLDER / "static" / "style.css",
    ]
    for path in ours:
        assert not re.search(r"https?://|//[a-z0-9-]+\.[a-z]", path.read_text(encoding="utf-8")), path


@pytest.mark.one_backend
def test_static(place):
    """Assets have their content types."""
    for name, kind in {"app.js": "javascript", "style.css": "text/css", "icon.svg": "image/svg+xml"}.items():
        answer = place.client.get(f"/static/{name}")
        assert answer.status_code == 200
        assert kind in answer.headers["content-type"]
    assert place.client.get("/static/../pages.py").status_code == 404
