"""What a look at the environment finds: each check with its fix."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct


class Level(StrEnum):
    """How bad it is: nothing to do, worth a look, or something will not work."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


class HealthCheck(Struct, frozen=True):
    """One check: what was found, and what to do about it."""

    name: str
    level: Level
    message: str
    fix: str = ""


def ok(name: str, message: str) -> HealthCheck:
    return HealthCheck(name, Level.OK, message)


def warn(name: str, message: str, fix: str) -> HealthCheck:
    return HealthCheck(name, Level.WARN, message, fix)


def fail(name: str, message: str, fix: str) -> HealthCheck:
    return HealthCheck(name, Level.FAIL, message, fix)
