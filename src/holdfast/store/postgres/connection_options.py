"""Options of connections to PostgreSQL."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import psycopg

from holdfast.store.engine.backend import Timeouts

#: Plan types that prepared statements never use.
_DISABLED_PLANS = ("enable_seqscan", "enable_bitmapscan", "enable_sort", "enable_hashjoin", "enable_mergejoin")


def connect_options(url: str) -> dict[str, Any]:
    """Client-side limits against dead peers; options in the URL take precedence."""
    options: dict[str, Any] = {
        "connect_timeout": int(Timeouts.connect.total_seconds()),
        "tcp_user_timeout": int(Timeouts.statement.total_seconds() * 1000),
        "keepalives_idle": 10,
        "keepalives_interval": 5,
        "application_name": "holdfast",
        "autocommit": True,
    }
    in_url = psycopg.conninfo.conninfo_to_dict(url)
    return {name: value for name, value in options.items() if name not in in_url}


def prepared_options(url: str, patience: timedelta = Timeouts.statement) -> dict[str, Any]:
    """Options for prepared statements, which are planned once, for tables of any later size.

    A plan from the time when a table was empty would read, hash or sort a full table. So such plans
    are disabled: an index yields all rows, in its order. Each statement then has only one good plan,
    and a generic plan saves planning at each call.
    """
    in_url = psycopg.conninfo.conninfo_to_dict(url).get("options") or ""
    settings = {
        "plan_cache_mode": "force_generic_plan",
        "jit": "off",
        "timezone": "UTC",
        "statement_timeout": int(patience.total_seconds() * 1000),
        **dict.fromkeys(_DISABLED_PLANS, "off"),
    }
    options = " ".join([str(in_url), *(f"-c {name}={value}" for name, value in settings.items())])
    return {**connect_options(url), "options": options.strip(), "prepare_threshold": 2}


def is_readable(url: str) -> bool:
    """Whether libpq understands *url*, with at most one ``@``: a second one belongs to a password."""
    try:
        psycopg.conninfo.conninfo_to_dict(url)
    except psycopg.ProgrammingError:
        return False
    return url.partition("?")[0].count("@") <= 1
