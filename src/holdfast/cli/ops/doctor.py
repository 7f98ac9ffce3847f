"""``doctor``: what is wrong here, and how to mend it."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from holdfast.admin.doctor.checks import examine
from holdfast.cli.command import command as shared_command
from holdfast.cli.session import Session
from holdfast.cli.text import table
from holdfast.domain.health_check import HealthCheck, Level
from holdfast.output.printer import Line
from holdfast.settings import log_folder

UNWELL = 1


class Diagnosis(Struct, frozen=True):
    """All checks; not *well*: at least one failed."""

    well: bool
    checks: list[HealthCheck]


@shared_command("doctor", answers=Diagnosis)
def command(session: Session) -> int:
    """Check the environment and the store, and say what to mend and how.

    Exit 1 when something will not work; what is only worth a look is exit 0.
    """
    checks = list(examine(lambda: session.store, logs=log_folder(session.url)))
    well = all(check.level is not Level.FAIL for check in checks)
    session.output.value(Diagnosis(well, checks), lambda: _lines(checks))
    return 0 if well else UNWELL


def _lines(checks: list[HealthCheck]) -> Iterator[Line]:
    rows = []
    for check in checks:
        rows.append([check.level, check.name, check.message])
        if check.fix:
            rows.append(["", "", f"→ {check.fix}"])
    return table(("", "CHECK", "FOUND"), rows)
