"""Roles."""

from __future__ import annotations

import pytest

from holdfast.domain.access.roles import Role, checked_role
from holdfast.errors import InvalidInput


def test_roles_rise():
    """Each may do what the one before it may."""
    assert [[role.may(required) for required in Role] for role in Role] == [
        [True, False, False],
        [True, True, False],
        [True, True, True],
    ]


def test_an_unknown_role_is_refused():
    with pytest.raises(InvalidInput, match="no role 'root'"):
        checked_role("root")
