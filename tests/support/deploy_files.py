"""The files of deploy/ and the guides about them: YAML documents, containers, and the command lines of Holdfast."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import yaml

from holdfast.cli.main import cli
from holdfast.cli.session import CliSession

DEPLOY = Path(__file__).parents[2] / "deploy"
COMPOSE = DEPLOY / "compose.yaml"
CONTAINERFILE = DEPLOY / "Containerfile"
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
GUIDES = [DEPLOY.parent / "docs" / "guides" / name for name in ("production.md", "postgresql.md", "backups.md")]
MANIFESTS = sorted([*(DEPLOY / "kubernetes").glob("*.yaml"), *(DEPLOY / "keda").glob("*.yaml")])


def documents(path: Path) -> list[dict[str, Any]]:
    return [document for document in yaml.safe_load_all(path.read_text()) if document]


def objects(*kinds: str) -> list[dict[str, Any]]:
    """The objects of Kubernetes of some kinds, or all."""
    every = [document for path in MANIFESTS for document in documents(path)]
    return [each for each in every if not kinds or each["kind"] in kinds]


def pod_of(document: dict[str, Any]) -> dict[str, Any] | None:
    """The pod that an object starts, if any."""
    spec = document.get("spec", {})
    template = spec.get("template") or spec.get("jobTargetRef", {}).get("template")
    return None if template is None else template["spec"]


def pods() -> list[dict[str, Any]]:
    return [pod for document in objects() if (pod := pod_of(document)) is not None]


def containers() -> list[dict[str, Any]]:
    return [each for pod in pods() for each in [*pod.get("initContainers", ()), *pod["containers"]]]


def services() -> dict[str, dict[str, Any]]:
    """The services of the compose file; Holdfast's have its image."""
    return documents(COMPOSE)[0]["services"]


def unit_settings(path: Path) -> dict[str, str]:
    """The settings of a systemd unit; of several with one name, the last."""
    return dict(line.split("=", 1) for line in path.read_text().splitlines() if re.match(r"[A-Za-z]+=", line))


def instructions() -> list[tuple[str, str]]:
    """The instructions of the Containerfile, each on one line."""
    text = re.sub(r"^#.*\n", "", CONTAINERFILE.read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    return [tuple(line.split(maxsplit=1)) for line in text.splitlines() if line.strip()]  # type: ignore[misc]


def command_lines() -> Iterator[tuple[str, list[str]]]:
    """Where a command line of Holdfast is, and its arguments."""
    found = dict(instructions())
    yield "Containerfile", [*json.loads(found["ENTRYPOINT"]), *json.loads(found["CMD"])]
    for name, service in services().items():
        if "postgres" not in service["image"]:
            yield f"compose.yaml: {name}", ["holdfast", *service["command"]]
    for path in UNITS:
        yield path.name, shlex.split(unit_settings(path)["ExecStart"].replace("%i", "1"))
    for container in containers():
        yield f"container {container['name']}", container["command"]
    for path in [COMPOSE, CONTAINERFILE, *UNITS, *MANIFESTS]:
        for line in re.findall(r"^# +(holdfast .*)$", path.read_text(), re.MULTILINE):
            yield f"{path.name}: comment", shlex.split(line)
    for path in GUIDES:
        for block in re.findall(r"^ *```sh\n(.*?)^ *```$", path.read_text(), re.DOTALL | re.MULTILINE):
            for line in re.findall(r"^ *(holdfast .*)$", block, re.MULTILINE):
                yield path.name, shlex.split(line, comments=True)


def parse(line: list[str]) -> tuple[str, dict[str, Any]]:
    """The name of the command and its options, by the parser of the product; a line that it refuses raises."""
    program, *arguments = line
    assert Path(program).name == "holdfast"
    command: click.Command | None = cli
    names = []
    while isinstance(command, click.Group):
        names.append(arguments.pop(0))
        command = command.get_command(click.Context(command), names[-1])
    assert command is not None, names
    context = command.make_context(" ".join(names), list(arguments), obj=CliSession())
    return " ".join(names), context.params
