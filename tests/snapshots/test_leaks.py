"""No secret is shown: by any command in any format, on any page, by any endpoint, to any role (E1.1)."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.snapshots.conftest import Ended, Scenery
from tests.snapshots.requests import API, PAGES, Ask
from tests.snapshots.secrets import HARMLESS, LEAK, SECRETS, STRUCTURED, hide, text_columns
from tests.snapshots.site import BASE
from tests.snapshots.test_commands import COMMANDS, FORMATS, lines_of
from tests.snapshots.test_commands import file_of as command_name
from tests.snapshots.test_site import file_of

ROLES = ("viewer", "operator", "admin", "session", None)
#: Streams: an answer that is allowed does not end.
STREAMS = {"GET /events", "GET /live"}
#: A consumer gets results as the units handed them over.
HANDS_OVER = {"inbox take", "POST /inboxes/take"}


@pytest.fixture(scope="session")
def scenery(scenery: Scenery, tmp_path_factory: pytest.TempPathFactory) -> Scenery:
    """The fixed store with a secret in each text."""
    folder = tmp_path_factory.mktemp("secrets") / "home"
    scenery.copy(folder)
    hide(folder)
    return scenery._replace(folder=folder)


def test_every_column_of_text_has_a_secret_or_a_reason(scenery: Scenery):
    """A new column needs a secret in tests/snapshots/secrets.py."""
    hidden = {tuple(name.split(".")) for name in SECRETS if "." in name}
    known = {(table, column) for each in (HARMLESS, STRUCTURED) for table in each for column in each[table]}
    assert text_columns(scenery.folder) == hidden | known


@pytest.mark.parametrize("command", sorted({*COMMANDS} - HANDS_OVER), ids=command_name)
def test_a_command_shows_no_secret(command: str, call: Callable[..., Ended], tmp_path: Path):
    """E1.1: in text, JSON and NDJSON, in its errors, and in the files that it writes."""
    for line in lines_of(command):
        words, _, stdin = line.partition(" <<< ")
        for name in FORMATS:
            requested = [] if name == "text" else ["-o", name]
            ended = call([*command.split(), *requested, *shlex.split(words)], stdin)
            assert not _leaks(ended.out + ended.err), f"holdfast {command} {' '.join(requested)} {line}"
            for file in (tmp_path / "home").glob("units.*"):
                assert not _leaks(file.read_text()), f"{file.name} of holdfast {command} {line}"


@pytest.mark.parametrize("name", sorted({*API} - HANDS_OVER), ids=file_of)
def test_an_endpoint_shows_no_secret(name: str, sites: Callable[[], Any]):
    _walk(name, API[name], BASE, sites)


@pytest.mark.parametrize("name", PAGES, ids=file_of)
def test_a_page_shows_no_secret(name: str, sites: Callable[[], Any]):
    _walk(name, PAGES[name], "", sites)


def _walk(name: str, requests: tuple[Ask, ...], base: str, sites: Callable[[], Any]) -> None:
    """Send each request in each role. What follows a change is sent to a fresh copy of the store."""
    method = name.partition(" ")[0]
    paths = {repr((ask.path, ask.body)): ask for ask in requests}
    asks = requests if name in STREAMS else [ask._replace(role=role) for ask in paths.values() for role in ROLES]
    left = list(asks)
    while left:
        with sites() as site:
            changed = False
            while left and not changed:
                ask = left.pop()
                answer = site.send(method, ask, base)
                assert not _leaks(answer.text + str(answer.headers)), f"{method} {base}{ask.path} as {ask.role}"
                changed = method == "POST" and answer.status_code < 400


def _leaks(text: str) -> set[str]:
    """The texts whose secrets appear."""
    names = {secret: name for name, secret in SECRETS.items()}
    return {names.get(re.sub(r"\W*$", "", leak), leak) for leak in LEAK.findall(text)}
