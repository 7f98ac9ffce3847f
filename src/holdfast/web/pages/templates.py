"""Templates: one environment, in which every value is escaped and shows what it holds."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from holdfast._version import __version__
from holdfast.domain.jobs.filter import format_values
from holdfast.domain.names import quote_argument
from holdfast.web.pages import ansi, charts
from holdfast.web.pages import format as written

HERE = Path(__file__).parents[1]

#: The screens, the key that goes there after g, and which part of the store they show.
SCREENS = (
    ("overview", "", "Overview", "o"),
    ("jobs", "jobs", "Jobs", "j"),
    ("batches", "batches", "Batches", "b"),
    ("schedules", "schedules", "Schedules", "s"),
    ("queues", "queues", "Queues", "q"),
    ("workers", "workers", "Workers", "w"),
    ("errors", "errors", "Errors", "e"),
    ("dependencies", "dependencies", "Dependencies", "d"),
    ("acts", "acts", "Acts", "a"),
    ("doctor", "doctor", "Doctor", "h"),
)


@cache
def environment() -> Environment:
    """The templates, loaded once a process."""
    made = Environment(
        loader=FileSystemLoader(HERE / "templates"),
        autoescape=True,
        finalize=written.finalized,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.filters.update(
        verbatim=written.verbatim,
        number=written.number,
        counted=written.counted,
        size=written.size,
        duration=written.duration,
        age=written.age,
        timestamp=written.timestamp,
        clock=written.clock,
        state=written.state,
        first_line=written.first_line,
        pretty=written.pretty,
        compact=written.compact,
        ansi=ansi.ansi,
    )
    made.globals.update(
        bar=charts.bar,
        spark=charts.spark,
        strip=charts.strip,
        stretch_bar=charts.stretch_bar,
        screens=SCREENS,
        quoted=format_values,
        argument=quote_argument,
        version=__version__,
    )
    return made


def rendered(template: str, values: dict[str, Any]) -> str:
    """A page as text."""
    return environment().get_template(template).render(values)


def address(base: str, path: str, query: dict[str, Any]) -> str:
    """A path of this site with what is asked of it; names go into the query, where any sign may stand."""
    given = {name: value for name, value in query.items() if value not in (None, "")}
    said = f"?{urlencode(given, quote_via=quote)}" if given else ""
    return f"{base}/{path.lstrip('/')}{said}"
