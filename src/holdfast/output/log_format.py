"""Log formats: text and JSON."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime

from holdfast.domain.names import escape_controls

#: The fields that a record may carry besides its message.
RECORD_FIELDS = ("job", "kind", "attempt", "token", "worker")


def configure(*, style: str = "text", level: str = "info") -> None:
    """Send Holdfast's logs to stderr; *style* is ``text`` or ``json``."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if style == "json" else TextFormatter())
    logger = logging.getLogger("holdfast")
    logger.handlers[:] = [handler]
    logger.setLevel(level.upper())
    logger.propagate = False


def is_json() -> bool:
    """Whether this process logs JSON."""
    return any(isinstance(handler.formatter, JsonFormatter) for handler in logging.getLogger("holdfast").handlers)


def record_fields(record: logging.LogRecord) -> dict[str, object]:
    return {name: value for name in RECORD_FIELDS if (value := getattr(record, name, None)) is not None}


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class TextFormatter(logging.Formatter):
    """One line, then the traceback if there is one."""

    def format(self, record: logging.LogRecord) -> str:
        fields = "".join(f" {name}={value}" for name, value in record_fields(record).items())
        line = f"{_time(record)} {record.levelname.lower():7} {record.getMessage()}{fields}"
        return escape_controls(f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line)


class JsonFormatter(logging.Formatter):
    """One JSON object per line."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **record_fields(record),
        }
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str, ensure_ascii=False)
