"""Health checks: the results of ``holdfast doctor``."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct


class Level(StrEnum):
    """The severity of a result; with FAIL, something will not work."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


class HealthCheck(Struct, frozen=True):
    """The result of one check, and the fix."""

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
