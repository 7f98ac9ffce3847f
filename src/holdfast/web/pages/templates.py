"""The templates of the pages: one environment, in which every value is escaped."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from holdfast._version import __version__
from holdfast.domain.jobs.selector import format_values
from holdfast.domain.names import quote_argument
from holdfast.web.pages import ansi, charts
from holdfast.web.pages import format as formats

WEB_FOLDER = Path(__file__).parents[1]

#: The navigation: name, path, title, and the key that opens the screen after g.
SCREENS = (
    ("overview", "", "Overview", "o"),
    ("jobs", "jobs", "Jobs", "j"),
    ("batches", "batches", "Batches", "b"),
    ("schedules", "schedules", "Schedules", "s"),
    ("queues", "queues", "Queues", "q"),
    ("workers", "workers", "Workers", "w"),
    ("errors", "errors", "Errors", "e"),
    ("dependencies", "dependencies", "Dependencies", "d"),
    ("audit_log", "audit-log", "Acts", "a"),
    ("doctor", "doctor", "Doctor", "h"),
)


@cache
def environment() -> Environment:
    """The templates, loaded once per process."""
    loaded = Environment(
        loader=FileSystemLoader(WEB_FOLDER / "templates"),
        autoescape=True,
        finalize=formats.finalize,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    loaded.filters.update(
        verbatim=formats.verbatim,
        number=formats.number,
        counted=formats.counted,
        size=formats.size,
        duration=formats.duration,
        age=formats.age,
        timestamp=formats.timestamp,
        clock=formats.clock,
        state=formats.state,
        first_line=formats.first_line,
        pretty=formats.pretty,
        compact=formats.compact,
        ansi=ansi.ansi,
    )
    loaded.globals.update(
        bar=charts.bar,
        spark=charts.spark,
        strip=charts.strip,
        stretch_bar=charts.stretch_bar,
        screens=SCREENS,
        quoted=format_values,
        argument=quote_argument,
        version=__version__,
    )
    return loaded


def render(template: str, values: dict[str, Any]) -> str:
    return environment().get_template(template).render(values)


def build_url(base: str, path: str, query: dict[str, Any]) -> str:
    """The address of a page. Names belong in the query, where any character is allowed."""
    parameters = {name: value for name, value in query.items() if value not in (None, "")}
    suffix = f"?{urlencode(parameters, quote_via=quote)}" if parameters else ""
    return f"{base}/{path.lstrip('/')}{suffix}"
