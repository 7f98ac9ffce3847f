"""Where the store is when nobody says."""

from __future__ import annotations

import pytest

import holdfast
from holdfast.config import default_url
from holdfast.errors import ConfigurationError


def test_the_environment_comes_first(tmp_path):
    """``HOLDFAST_URL`` wins over every file."""
    (tmp_path / "holdfast.toml").write_text('url = "sqlite:///file.db"')
    assert default_url(environ={"HOLDFAST_URL": "sqlite:///env.db"}, directory=tmp_path) == "sqlite:///env.db"


def test_then_the_nearest_configuration_file(tmp_path):
    """Here or above; ``holdfast.toml`` before ``pyproject.toml``."""
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)
    (tmp_path / "pyproject.toml").write_text('[tool.holdfast]\nurl = "sqlite:///pyproject.db"')
    assert default_url(environ={}, directory=below) == "sqlite:///pyproject.db"
    (below / "pyproject.toml").write_text('[project]\nname = "other"')
    assert default_url(environ={}, directory=below) == "sqlite:///pyproject.db"
    (tmp_path / "holdfast.toml").write_text('url = "sqlite:///own.db"')
    assert default_url(environ={}, directory=below) == "sqlite:///own.db"


def test_then_a_file_of_the_user(tmp_path):
    """Below the user's data directory."""
    url = default_url(environ={"HOME": "/home/ada", "XDG_DATA_HOME": "/data"}, directory=tmp_path)
    assert url == "sqlite:////data/holdfast/holdfast.db"


@pytest.mark.parametrize("text", ["url = ", 'urll = "x"', "url = 5", b"\xff\xfe"])
def test_a_broken_file_is_an_error(tmp_path, text):
    """It names the file."""
    (tmp_path / "holdfast.toml").write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ConfigurationError, match=r"holdfast\.toml"):
        default_url(environ={}, directory=tmp_path)


def test_an_app_without_a_url_asks_the_configuration(tmp_path, monkeypatch):
    """When it needs one, not before."""
    app = holdfast.Holdfast()
    monkeypatch.setenv("HOLDFAST_URL", f"sqlite:///{tmp_path}/jobs.db")
    assert app.url.endswith("jobs.db")
