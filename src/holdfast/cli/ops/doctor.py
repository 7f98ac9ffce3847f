"""``doctor``: health checks of the environment and the store."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from holdfast.admin.doctor.checks import examine
from holdfast.cli.command import command
from holdfast.cli.session import CliSession
from holdfast.cli.text import table
from holdfast.domain.health_check import HealthCheck, Level
from holdfast.output.printer import Line
from holdfast.settings import log_folder

UNWELL = 1


class DoctorAnswer(Struct, frozen=True):
    """The results of all checks; *well* if none failed."""

    well: bool
    checks: list[HealthCheck]


@command("doctor", answers=DoctorAnswer)
def doctor(session: CliSession) -> int:
    """Check the environment and the store, and say what to mend and how.

    Exit 1 when something will not work; what is only worth a look is exit 0.
    """
    checks = list(examine(lambda: session.store, logs=log_folder(session.url)))
    well = all(check.level is not Level.FAIL for check in checks)
    session.output.value(DoctorAnswer(well, checks), lambda: _lines(checks))
    return 0 if well else UNWELL


def _lines(checks: list[HealthCheck]) -> Iterator[Line]:
    rows = []
    for check in checks:
        rows.append([check.level, check.name, check.message])
        if check.fix:
            rows.append(["", "", f"→ {check.fix}"])
    return table(("", "CHECK", "FOUND"), rows)
