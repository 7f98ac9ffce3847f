"""Upgrades of payloads: which versions a kind reads, and how."""

from __future__ import annotations

import pytest

from holdfast.domain.jobs.kind import Kind
from holdfast.domain.jobs.kind_options import KindOptions
from holdfast.errors import InvalidKind, InvalidPayload


def mail(to: str, cc: str = "", urgent: bool = False) -> None: ...


def add_cc(payload):
    return {**payload, "cc": "archive"}


def rename_address(payload):
    payload["to"] = payload.pop("address")
    return payload


def kind(version=3, upgrades=None) -> Kind:
    return Kind("mail", mail, KindOptions(version=version), upgrades)


def test_an_older_payload_runs_through_every_later_upgrade():
    """K13: version 1 takes both steps, version 2 the second, version 3 none."""
    reader = kind(3, {1: add_cc, 2: rename_address})
    assert reader.decode('{"address": "ann"}', version=1) == {"to": "ann", "cc": "archive", "urgent": False}
    assert reader.decode('{"address": "ann"}', version=2)["cc"] == ""
    assert reader.decode('{"to": "ann"}', version=3)["to"] == "ann"


def test_a_version_without_an_upgrade_fits_as_it_is():
    """K13: a compatible change, such as a new parameter with a default, needs no function."""
    assert kind(3, {2: add_cc}).decode('{"to": "ann"}', version=1)["cc"] == "archive"
    assert kind(2).decode('{"to": "ann"}', version=1)["to"] == "ann"


def test_a_newer_payload_is_not_read_even_if_it_would_fit():
    """K13: the newer code may mean something else by the same fields."""
    with pytest.raises(InvalidPayload, match="has version 4, and this code reads up to 3"):
        kind(3).decode('{"to": "ann"}', version=4)


def test_an_upgrade_that_returns_no_payload_is_an_error_with_its_name():
    with pytest.raises(InvalidPayload, match="returned a NoneType, not a payload"):
        kind(2, {1: lambda payload: None}).decode("{}", version=1)


@pytest.mark.parametrize("upgrades", [{0: add_cc}, {3: add_cc}, {"1": add_cc}, {True: add_cc}, {1: "add_cc"}])
def test_an_upgrade_that_could_never_be_used_is_refused(upgrades):
    with pytest.raises(InvalidKind):
        kind(3, upgrades)


@pytest.mark.parametrize("version", [0, -1, 1.5, "1.2", 2**31])
def test_a_version_is_a_whole_number_from_one(version):
    with pytest.raises(InvalidKind):
        kind(version)


def test_the_digest_names_what_the_code_reads():
    """K13: workers with equal digests read the same payloads; a changed upgrade is other code."""
    assert kind(2, {1: add_cc}).digest == kind(2, {1: add_cc}).digest
    digests = {each.digest for each in (kind(1), kind(2), kind(2, {1: add_cc}), kind(2, {1: rename_address}))}
    assert len(digests) == 4

    def other(to: str) -> None: ...

    assert Kind("mail", other, KindOptions()).digest != kind(1).digest


def test_a_change_inside_a_comprehension_is_other_code():
    """S17: a worker with a mended upgrade gets the jobs that the old one could not read."""

    def upgrades(factor: str):
        scope: dict[str, object] = {}
        exec(f"def upgrade(payload):\n    return {{name: [n * {factor} for n in payload] for name in payload}}", scope)
        return scope["upgrade"]

    assert kind(2, {1: upgrades("2")}).digest == kind(2, {1: upgrades("2")}).digest
    assert kind(2, {1: upgrades("2")}).digest != kind(2, {1: upgrades("3")}).digest
