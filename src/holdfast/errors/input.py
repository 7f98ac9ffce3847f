"""Errors of the call itself: its input is wrong, or it names something that does not exist."""

from __future__ import annotations

from holdfast.errors.base import HoldfastError


class InvalidInput(HoldfastError):
    """The call is wrong and will be wrong again: nothing was written."""

    code = "E_INVALID"
    exit_code = 2
    http_status = 400


class InvalidPayload(InvalidInput):
    """The payload does not fit the annotations of the handler."""

    code = "E_INVALID_PAYLOAD"
    hint = "Compare the payload with the handler's annotations; the message names the field."


class PayloadTooLarge(InvalidInput):
    """The payload is larger than the store accepts."""

    code = "E_PAYLOAD_TOO_LARGE"
    http_status = 413
    hint = "Keep the data elsewhere (a file, a table) and enqueue its name."


class InvalidText(InvalidInput):
    """A text holds a character that cannot be stored everywhere."""

    code = "E_INVALID_TEXT"
    hint = "Remove NUL characters and lone surrogates, or encode the bytes (base64) first."


class InvalidKind(InvalidInput):
    """A handler cannot be registered under this name or with these settings."""

    code = "E_INVALID_KIND"


class NoTransaction(InvalidInput):
    """The caller's connection commits every statement by itself."""

    code = "E_NO_TRANSACTION"
    hint = "Begin a transaction first, or leave the connection out to enqueue at once."


class InvalidExpression(InvalidInput):
    """A schedule cannot be read; ``context["position"]`` is the character where it goes wrong."""

    code = "E_EXPRESSION"
    hint = "Try it with: holdfast schedule preview 'EXPRESSION'"

    def __init__(self, message: str, /, *, position: int, hint: str | None = None) -> None:
        super().__init__(f"{message}, at character {position + 1}", hint=hint, position=position)


class UnknownZone(InvalidInput):
    """There is no such time zone."""

    code = "E_UNKNOWN_ZONE"
    hint = "Zones have the names of the IANA database: Europe/Berlin, America/New_York, UTC."


class NeverFires(InvalidInput):
    """A schedule that can be read, but names no day of the calendar."""

    code = "E_NEVER_FIRES"
    hint = "With a wildcard such as */2 in one of them, day and weekday must both hold; and February has 29 days."


class NotFound(HoldfastError):
    """What was named does not exist."""

    code = "E_NOT_FOUND"
    exit_code = 3
    http_status = 404


class UnknownKind(NotFound):
    """No application has registered this kind of job."""

    code = "E_UNKNOWN_KIND"
    hint = "Register the kind with @app.job, or start a worker of the application that has it."


class NoSuchJob(NotFound):
    """No job has this id."""

    code = "E_NO_SUCH_JOB"


class JobPruned(NotFound):
    """The job ended long ago; its row was removed by retention, its key was kept."""

    code = "E_JOB_PRUNED"
    http_status = 410
    hint = "Raise the retention if finished jobs must stay longer."


class NoSuchBatch(NotFound):
    """There is no batch with this id."""

    code = "E_NO_SUCH_BATCH"
    hint = "See holdfast batch ls."


class NoSuchSchedule(NotFound):
    """There is no schedule of this name."""

    code = "E_NO_SUCH_SCHEDULE"
    hint = "See holdfast schedule ls."


class DependencyNotFound(NotFound):
    """A dependency names a job, key or label that matches nothing."""

    code = "E_NEED_NOT_FOUND"
    hint = "Labels and keys are looked up at once: enqueue the needed jobs first."
