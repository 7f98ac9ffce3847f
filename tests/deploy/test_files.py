"""The files of deploy/ fit the product, their own formats, and each other."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import kubernetes_validate
import pytest

import holdfast
from holdfast.admin.doctor.checks import OTHER_VARIABLES
from holdfast.domain.names import parse_address
from holdfast.domain.quantities import as_duration
from holdfast.settings import setting_fields
from holdfast.web import server
from holdfast.worker import settler, shutdown
from holdfast.worker.metrics import MetricsServer
from tests.support.deploy_files import (
    COMPOSE,
    CONTAINERFILE,
    DEPLOY,
    GUIDES,
    MANIFESTS,
    UNITS,
    command_lines,
    containers,
    documents,
    instructions,
    objects,
    parse,
    pod_of,
    pods,
    services,
    unit_settings,
)

TEXTS = [COMPOSE, CONTAINERFILE, *UNITS, *MANIFESTS, *GUIDES]
#: What a worker may take after its grace period, in seconds: kills, last outcomes, services, and the last write.
AFTER_GRACE_S = (
    shutdown.STOP_BEFORE_END_S + settler.FLUSH_TIMEOUT_S + 2 * shutdown.HELPER_TIMEOUT_S + shutdown.LAST_WRITE_TIMEOUT_S
)
COMMANDS = {"worker", "scheduler", "web", "token add", "emergency-stop", "workers"}
COMMANDS |= {f"db {name}" for name in ("migrate", "roles", "backup", "check", "vacuum", "copy")}
KUBERNETES = "1.32"
#: Fields of KEDA 2.x objects.
SCALED = {"pollingInterval", "minReplicaCount", "maxReplicaCount", "triggers"}
KEDA = {
    "ScaledObject": SCALED | {"scaleTargetRef", "cooldownPeriod", "idleReplicaCount", "fallback", "advanced"},
    "ScaledJob": SCALED
    | {"jobTargetRef", "successfulJobsHistoryLimit", "failedJobsHistoryLimit", "rollout", "scalingStrategy"},
    "TriggerAuthentication": {"secretTargetRef", "env"},
}
TRIGGERS = {
    "postgresql": {"query", "targetQueryValue", "activationTargetQueryValue"},
    "metrics-api": {"url", "valueLocation", "authMode", "targetValue", "activationTargetValue"},
}


def name_of(value):
    return value.name if isinstance(value, Path) else value if isinstance(value, str) else None


@pytest.mark.parametrize(("place", "line"), list(command_lines()), ids=name_of)
def test_every_command_line_is_accepted(place, line):
    """By the parser of the product, with durations and addresses that it can read."""
    command, options = parse(line)
    assert command in COMMANDS, place
    if options.get("grace"):
        assert as_duration(options["grace"])
    for name in ("metrics", "web"):
        if options.get(name):
            assert parse_address(options[name])


@pytest.mark.parametrize("path", TEXTS, ids=name_of)
def test_every_variable_exists(path):
    known = {field.variable for field in setting_fields().values()} | OTHER_VARIABLES
    assert set(re.findall(r"\bHOLDFAST_[A-Z_]+", path.read_text())) <= known


@pytest.mark.parametrize("path", TEXTS, ids=name_of)
def test_no_password_is_in_a_file(path):
    passwords = re.findall(r"postgresql://[^:/@\s]+:([^@\n]+)@", path.read_text())
    assert all(password == "change-me" or password.startswith("${POSTGRES_PASSWORD") for password in passwords)


def test_every_file_is_in_the_readme():
    text = (DEPLOY / "README.md").read_text()
    names = [str(path.relative_to(DEPLOY)) for path in DEPLOY.rglob("*") if path.is_file() and path.name != "README.md"]
    assert [name for name in names if f"({name})" not in text] == []


# -- time to stop ---------------------------------------------------------------------------


def stops():
    """Each command line with the seconds that it gets to stop."""
    for name, service in services().items():
        if "postgres" not in service["image"] and "stop_grace_period" in service:
            yield f"compose.yaml: {name}", ["holdfast", *service["command"]], service["stop_grace_period"]
    for path in UNITS:
        settings = unit_settings(path)
        yield path.name, settings["ExecStart"].replace("%i", "1").split(), f"{settings['TimeoutStopSec']}s"
    for pod in pods():
        if pod.get("restartPolicy") != "Never" or "terminationGracePeriodSeconds" in pod:
            for container in pod["containers"]:
                seconds = pod.get("terminationGracePeriodSeconds", 30)
                yield f"container {container['name']}", container["command"], f"{seconds}s"


@pytest.mark.parametrize(("place", "line", "time"), list(stops()), ids=name_of)
def test_a_process_has_time_to_stop(place, line, time):
    """Longer than the grace period and the last writes of a worker; a dashboard ends its requests."""
    command, options = parse(line)
    grace = options.get("grace")
    assert (grace is not None) == (command == "worker"), f"{place}: a worker names its grace period"
    needed = as_duration(grace).total_seconds() + AFTER_GRACE_S if grace else AFTER_GRACE_S
    if command == "web":
        needed = 2 * server.GRACE_S
    assert as_duration(time).total_seconds() > needed


# -- health ---------------------------------------------------------------------------------


def probes():
    """The command line that serves each probe, its port and its path."""
    for container in containers():
        ports = {port["name"]: port["containerPort"] for port in container.get("ports", ())}
        for probe in ("livenessProbe", "readinessProbe"):
            if probe in container:
                request = container[probe]["httpGet"]
                yield container["command"], ports[request["port"]], request["path"]
    for service in services().values():
        test = service.get("healthcheck", {}).get("test", [])
        for port, path in re.findall(r"http://127\.0\.0\.1:(\d+)(/\w+)", " ".join(test)):
            yield ["holdfast", *service["command"]], int(port), path


@pytest.fixture
def status(tmp_path):
    """The status of a path of a worker or of the dashboard."""
    from starlette.testclient import TestClient

    from holdfast.web import asgi

    with holdfast.Holdfast(f"sqlite:///{tmp_path / 'jobs.db'}") as app:
        health, site = MetricsServer("127.0.0.1:0", app.worker(), app.store), asgi(app)

        def get(command, path):
            if command == "web":
                return TestClient(site, base_url="http://10.1.2.3:8320").get(path).status_code
            try:
                with urlopen(f"http://127.0.0.1:{health.port}{path}") as answer:
                    return answer.status
            except HTTPError as error:
                return error.code

        yield get
        health.close()
        site.close()


def test_every_probe_asks_a_port_and_a_path_that_exist(status):
    """A kubelet sends the address of the pod as the host."""
    paths = {"worker": {"/livez", "/readyz"}, "scheduler": {"/livez", "/readyz"}, "web": {"/healthz", "/readyz"}}
    seen = set()
    for line, port, path in probes():
        command, options = parse(line)
        assert parse_address(options.get("metrics") or options["web"])[1] == port
        assert path in paths[command]
        assert status(command, path) in (200, 503)
        seen.add((command, path))
    assert seen == {(command, path) for command, names in paths.items() for path in names}


# -- Kubernetes -----------------------------------------------------------------------------


def test_manifests_fit_the_schemas_of_kubernetes():
    plain = [each for each in objects() if each["kind"] not in KEDA]
    jobs = [
        {"apiVersion": "batch/v1", "kind": "Job", "metadata": each["metadata"], "spec": each["spec"]["jobTargetRef"]}
        for each in objects("ScaledJob")
    ]
    assert {each["kind"] for each in plain} == {"Deployment", "Service", "Job", "Secret"}
    for document in [*plain, *jobs]:
        kubernetes_validate.validate(document, KUBERNETES, strict=True)


@pytest.mark.parametrize("kind", KEDA)
def test_objects_of_keda_have_known_fields(kind):
    (first, *_) = found = objects(kind)
    assert first["apiVersion"] == "keda.sh/v1alpha1"
    authentications = {each["metadata"]["name"] for each in objects("TriggerAuthentication")}
    for document in found:
        assert set(document["spec"]) <= KEDA[kind]
        for trigger in document["spec"].get("triggers", ()):
            assert set(trigger["metadata"]) <= TRIGGERS[trigger["type"]]
            assert all(isinstance(value, str) for value in trigger["metadata"].values())
            assert trigger["authenticationRef"]["name"] in authentications


def test_a_scaled_object_names_a_deployment_and_its_slots():
    deployments = {each["metadata"]["name"]: each for each in objects("Deployment")}
    for document in objects("ScaledObject"):
        pod = pod_of(deployments[document["spec"]["scaleTargetRef"]["name"]])
        _, options = parse(pod["containers"][0]["command"])
        (trigger,) = document["spec"]["triggers"]
        target = trigger["metadata"].get("targetQueryValue") or trigger["metadata"]["targetValue"]
        assert int(target) == options["slots"]


def test_every_secret_that_is_named_exists():
    (secret,) = objects("Secret")
    keys = set(secret["stringData"])
    named = {
        entry["valueFrom"]["secretKeyRef"]["key"]
        for container in containers()
        for entry in container["env"]
        if "valueFrom" in entry
    }
    scalers = {
        each["key"]
        for document in objects("TriggerAuthentication")
        for each in document["spec"]["secretTargetRef"]
        if each["name"] == secret["metadata"]["name"]
    }
    assert named | scalers == keys


def test_pods_have_no_more_rights_than_they_need():
    for pod in pods():
        assert pod["automountServiceAccountToken"] is False
        assert pod["securityContext"]["runAsNonRoot"] is True
    for container in containers():
        rights = container["securityContext"]
        assert rights["allowPrivilegeEscalation"] is False
        assert rights["readOnlyRootFilesystem"] is True
        assert rights["capabilities"] == {"drop": ["ALL"]}
        assert re.fullmatch(r"[\w./-]+:(?!latest$)[\w.-]+", container["image"])


def test_the_service_reaches_the_dashboard():
    (service,) = objects("Service")
    (deployment,) = [each for each in objects("Deployment") if each["metadata"]["name"] == "holdfast-web"]
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    (container,) = pod_of(deployment)["containers"]
    (port,) = service["spec"]["ports"]
    assert service["spec"]["selector"].items() <= labels.items()
    assert port["targetPort"] in {each["name"] for each in container["ports"]}
    (hosts,) = [entry["value"] for entry in container["env"] if entry["name"] == "HOLDFAST_WEB_HOSTS"]
    assert service["metadata"]["name"] in hosts.split(",")


# -- compose, systemd, image ----------------------------------------------------------------


def test_the_compose_file_fits_its_schema():
    line = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", str(COMPOSE)]
    done = subprocess.run(line, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_compose_file_starts_things_in_order():
    """Workers and the dashboard wait for the migration, the migration for PostgreSQL; two workers run."""
    found = services()
    assert found["migrate"]["depends_on"]["postgres"]["condition"] == "service_healthy"
    for name in ("worker", "web"):
        assert found[name]["depends_on"]["migrate"]["condition"] == "service_completed_successfully"
    assert found["worker"]["deploy"]["replicas"] == 2
    assert (COMPOSE.parent / found["worker"]["build"]["context"] / found["worker"]["build"]["dockerfile"]).is_file()
    volumes = {mount.partition(":")[0] for service in found.values() for mount in service.get("volumes", ())}
    assert volumes == set(documents(COMPOSE)[0]["volumes"])


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed (make services)")
@pytest.mark.parametrize("path", UNITS, ids=name_of)
def test_units_are_valid(path, tmp_path):
    """systemd itself reads them; the program is one that exists."""
    text = re.sub(r"^ExecStart=\S+", "ExecStart=/bin/true", path.read_text(), flags=re.MULTILINE)
    unit = tmp_path / path.name.replace("@.", "@1.")
    unit.write_text(text)
    line = ["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", str(unit)]
    done = subprocess.run(line, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert unit.name not in done.stderr, done.stderr


def test_the_image_runs_as_a_plain_user():
    stages = [value for name, value in instructions() if name == "FROM"]
    assert all(re.match(r"[\w.-]+/[\w./-]+:\d[\w.-]+( AS \w+)?$", stage) for stage in stages)
    user, _, group = [value for name, value in instructions() if name == "USER"][-1].partition(":")
    assert int(user) > 0
    assert int(group) > 0
    assert all(pod["securityContext"]["runAsUser"] == int(user) for pod in pods())


def test_the_image_has_no_secret_and_copies_what_exists():
    for name, value in instructions():
        if name in ("ENV", "ARG"):
            assert not re.search(r"(?i)password|token|secret|key|_url", value)
        if name == "COPY" and not value.startswith("--from"):
            assert all((DEPLOY.parent / source).exists() for source in value.split()[:-1])
        if name in ("ENTRYPOINT", "CMD"):
            assert isinstance(json.loads(value), list), "signals reach the program only without a shell"


def test_the_shell_of_the_image_is_valid():
    for name, value in instructions():
        if name == "RUN":
            assert value.startswith("set -eu;"), "a step that fails ends the build"
            assert subprocess.run(["/bin/sh", "-n", "-c", value], check=False).returncode == 0
