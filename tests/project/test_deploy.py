"""What is in deploy/ speaks of metrics that exist, and its rules fire when they should."""

from __future__ import annotations

import json
import re
import shutil
import subprocess

import pytest
import yaml

import holdfast
from holdfast.worker.metrics import WorkerCollector
from tests.support.alerts import DEPLOY, rules

NAME = re.compile(r"\bholdfast_[a-z_]+")
#: What Prometheus adds to the names of counters and histograms.
SUFFIXES = ("", "_total", "_bucket", "_count", "_sum")


def expressions() -> dict[str, list[str]]:
    panels = json.loads((DEPLOY / "grafana.json").read_text())["panels"]
    return {
        "alerts.yaml": [rule["expr"] for rule in rules().values()],
        "grafana.json": [target["expr"] for panel in panels for target in panel["targets"]],
    }


@pytest.fixture
def known(tmp_path, patient_scrapes):
    """The names of all metrics of a worker, and of the dashboard."""
    from starlette.testclient import TestClient

    from holdfast.domain.access.roles import Role
    from holdfast.web import asgi

    with holdfast.Holdfast(f"sqlite:///{tmp_path / 'jobs.db'}") as app:
        worker = app.worker()
        names = {metric.name for metric in WorkerCollector(worker, app.store).collect()}
        token, site = app.store.credentials.add("ci", Role.VIEWER, actor="ada"), asgi(app)
        client = TestClient(site, base_url="http://localhost", headers={"authorization": f"Bearer {token}"})
        names |= set(NAME.findall(client.get("/metrics").text))
        site.close()
    return {name + suffix for name in names for suffix in SUFFIXES}


@pytest.mark.parametrize("file", ["alerts.yaml", "grafana.json"])
def test_every_metric_that_is_named_exists(known, file):
    named = {name for expression in expressions()[file] for name in NAME.findall(expression)}
    assert named
    assert named <= known


def test_every_alert_says_what_to_do():
    for group in yaml.safe_load((DEPLOY / "alerts.yaml").read_text())["groups"]:
        for rule in group["rules"]:
            assert rule["annotations"]["summary"]
            assert rule["annotations"]["description"].count("See") or rule["annotations"]["description"].endswith(".")


def test_every_alert_has_a_test_in_which_it_fires():
    """E10.2"""
    tests = yaml.safe_load((DEPLOY / "alerts_test.yaml").read_text())["tests"]
    fired = {case["alertname"] for test in tests for case in test["alert_rule_test"] if case["exp_alerts"]}
    assert fired == set(rules())


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not here: make services installs it")
def test_the_rules_fire_when_they_should():
    """By promtool, on series that are made up."""
    done = subprocess.run(
        ["promtool", "test", "rules", "alerts_test.yaml"],
        cwd=DEPLOY,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
