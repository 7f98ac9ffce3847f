"""``doctor``: health checks of the environment and the store."""

from __future__ import annotations

from collections.abc import Iterator
from textwrap import wrap

from msgspec import Struct

from holdfast.admin.doctor.checks import examine
from holdfast.cli.command import command
from holdfast.cli.session import CliSession
from holdfast.cli.text import UNLIMITED, table, terminal_width
from holdfast.domain.health_check import HealthCheck, Level
from holdfast.domain.quantities import local_times
from holdfast.output.printer import Line
from holdfast.settings import log_folder

UNWELL = 1
MIN_TEXT_WIDTH = 40


class DoctorAnswer(Struct, frozen=True):
    """The results of all checks; *well* if none failed."""

    well: bool
    checks: list[HealthCheck]


@command("doctor", answers=DoctorAnswer)
def doctor(session: CliSession) -> int:
    """Check the environment and the store, and suggest fixes.

    It takes seconds. Exit 1 if a check fails; warnings exit with 0. To check every row of the database, use holdfast db
    check; to check whether you can deploy, holdfast audit.

    Examples:
      holdfast doctor
    """
    checks = list(examine(lambda: session.store, logs=log_folder(session.url)))
    well = all(check.level is not Level.FAIL for check in checks)
    session.output.value(DoctorAnswer(well, checks), lambda: _lines(checks, wide=session.is_wide))
    return 0 if well else UNWELL


def _lines(checks: list[HealthCheck], *, wide: bool) -> Iterator[Line]:
    """A table whose last column is wrapped: advice that is cut is of no use."""
    left = len("warn    ") + max(len(check.name) for check in checks)
    room = UNLIMITED if wide else max(MIN_TEXT_WIDTH, terminal_width() - left)
    rows = []
    for check in checks:
        message = local_times(check.message)
        texts = [message, f"→ {check.fix}"] if check.fix else [message]
        lines = [line for text in texts for line in wrap(text, room, break_long_words=False, break_on_hyphens=False)]
        rows += [[check.level, check.name, lines[0]], *(["", "", line] for line in lines[1:])]
    return table(("", "CHECK", "FOUND"), rows, room=UNLIMITED)
