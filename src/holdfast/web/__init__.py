"""The dashboard and the HTTP API. They need the extra ``holdfast[web]``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.app import Holdfast
    from holdfast.web.app import Site

__all__ = ["asgi"]


def asgi(app: Holdfast, **options: Any) -> Site:
    """The dashboard and the API of an application, to mount in FastAPI, Starlette or Django.

    Every caller needs a token (``holdfast token add``), or comes through a trusted proxy. *hosts* are the names that
    the site answers to; see :class:`holdfast.web.options.WebOptions` for the other options.

    Raises:
        ConfigurationError: The extra is not installed, or an option is invalid.
    """
    from holdfast.errors import ConfigurationError

    try:
        from holdfast.web.app import Site
        from holdfast.web.options import make_options
    except ImportError as error:
        hint = "Install Holdfast with its extra web: pip install '.[web]' in a clone of the repository."
        raise ConfigurationError(f"the dashboard needs more packages: {error}", hint=hint) from error
    return Site(app, make_options(**options))
