"""Settings and where they come from."""

from __future__ import annotations

from pathlib import Path

import pytest

import holdfast
from holdfast.cli.ops.config import flatten
from holdfast.cli.ops.pid_file import PidFile
from holdfast.errors import ConfigurationError
from holdfast.settings import load_settings, log_folder, read_settings, setting_fields


def url(directory, **environ):
    setting = read_settings(environ=environ, directory=directory).values["url"]
    return setting.value, setting.origin


def test_weak_and_strong(tmp_path):
    """holdfast.toml, then [tool.holdfast], then the environment; each overrules those before."""
    (tmp_path / "holdfast.toml").write_text('url = "sqlite:///own.db"\nslots = 3')
    assert url(tmp_path) == (f"sqlite:///{tmp_path}/own.db", str(tmp_path / "holdfast.toml"))
    (tmp_path / "pyproject.toml").write_text('[tool.holdfast]\nurl = "sqlite:///pyproject.db"')
    assert url(tmp_path) == (f"sqlite:///{tmp_path}/pyproject.db", str(tmp_path / "pyproject.toml"))
    assert load_settings(environ={}, directory=tmp_path).slots == 3
    assert url(tmp_path, HOLDFAST_URL="sqlite:///env.db") == ("sqlite:///env.db", "HOLDFAST_URL")


def test_the_nearest_folder_counts(tmp_path):
    """A project file without settings is passed by; of two folders only the nearer is read."""
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)
    (tmp_path / "pyproject.toml").write_text('[tool.holdfast]\nurl = "sqlite:///above.db"\nslots = 3')
    (below / "pyproject.toml").write_text('[project]\nname = "other"')
    assert url(below)[0] == f"sqlite:///{tmp_path}/above.db"
    (below / "holdfast.toml").write_text("slots = 5")
    assert url(below)[1] == "default"


def test_a_relative_url_of_a_file_is_the_same_store_everywhere(tmp_path, monkeypatch):
    """K77: also below the folder of the file, and when the file is named."""
    below = tmp_path / "below"
    below.mkdir()
    (tmp_path / "holdfast.toml").write_text('url = "sqlite:///jobs.db?durability=fast"')
    expected = f"sqlite:///{tmp_path}/jobs.db?durability=fast"
    assert url(tmp_path)[0] == url(below)[0] == expected
    monkeypatch.chdir(tmp_path)
    named = read_settings(environ={}, directory=below, file=Path("holdfast.toml"))
    assert named.settings.url == named.values["url"].value == expected
    assert url(below, HOLDFAST_URL="sqlite:///jobs.db")[0] == "sqlite:///jobs.db"


def test_all_names_of_a_store_lead_to_the_same_logs(tmp_path, monkeypatch):
    """K82: links, home directories and relative paths."""
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "jobs.db").touch()
    (tmp_path / "link.db").symlink_to(tmp_path / "real" / "jobs.db")
    (tmp_path / "folder").symlink_to(tmp_path / "real")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    names = ["sqlite:///link.db", "sqlite:link.db", "sqlite:///folder/jobs.db", "sqlite:///~/link.db"]
    assert {log_folder(name) for name in [*names, f"sqlite:///{tmp_path}/link.db?durability=fast"]} == {
        tmp_path / "real" / "jobs.db-logs"
    }
    assert {PidFile.of(name).path for name in names} == {PidFile.of(names[0]).path}
    with pytest.raises(ConfigurationError, match="cannot be found"):
        log_folder("sqlite:///~nobody-of-this-name/jobs.db")


def test_then_a_file_of_the_user(tmp_path):
    """Below the user's data directory."""
    assert url(tmp_path, HOME="/home/ada", XDG_DATA_HOME="/data")[0] == "sqlite:////data/holdfast/holdfast.db"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("url = ", "cannot be read"),
        ('urll = "x"', "no setting 'urll'"),
        ("url = 5", "url must be a text, not 5"),
        ("slots = true", "slots must be a whole number"),
        ('queues = "mail"', "queues must be a list of texts"),
        ("queues = [1]", "queues must be a list of texts"),
        ('output = "yaml"', "output must be text or json or ndjson"),
        ('memory_profiles = {train = "much"}', "memory_profiles must be a table"),
        ("memory_profiles = {train = 8}", "memory_profiles must be a table"),
        ('host_limits = {"*" = "120%"}', "host_limits must be a table"),
        (b"\xff\xfe", "cannot be read"),
    ],
)
def test_a_broken_file_is_an_error(tmp_path, text, says):
    """It names the file and the setting."""
    (tmp_path / "holdfast.toml").write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ConfigurationError, match=says) as caught:
        load_settings(environ={}, directory=tmp_path)
    assert "holdfast.toml" in caught.value.message


def test_an_unknown_key_has_a_suggestion(tmp_path):
    (tmp_path / "holdfast.toml").write_text("slot = 3")
    with pytest.raises(ConfigurationError) as caught:
        load_settings(environ={}, directory=tmp_path)
    assert caught.value.hint == "Did you mean 'slots'?"


def test_every_setting_can_come_from_the_environment(tmp_path):
    """Lists are divided by commas, tables too."""
    texts = {"slots": "4", "queues": "mail, default", "output": "json", "log_level": "debug", "log_format": "json"}
    texts |= {"api_key_sha256": "0" * 64, "web_secure": "on", "web_proxy_role": "operator"}
    texts |= {"web_proxy_roles": "ops=operator, staff=viewer", "run_commands": "on"}
    texts |= {"memory_profiles": "train=8G, merge*=512M", "host_limits": "*=70%", "retention": "done=1d"}
    fields = setting_fields()
    environ = {setting.variable: texts.get(name, "x") for name, setting in fields.items() if not setting.is_table}
    settings, values, _ = read_settings(environ=environ, directory=tmp_path)
    assert settings.slots == 4
    assert settings.queues == ["mail", "default"]
    assert settings.memory_profiles == {"train": "8G", "merge*": "512M"}
    assert settings.host_limits == {"*": "70%"}
    assert settings.web_proxy_roles == {"ops": "operator", "staff": "viewer"}
    assert {each.origin for name, each in values.items() if not fields[name].is_table} == set(environ)


@pytest.mark.parametrize(("variable", "text"), [("HOLDFAST_SLOTS", "many"), ("HOLDFAST_OUTPUT", "yaml")])
def test_a_wrong_variable_is_named(tmp_path, variable, text):
    with pytest.raises(ConfigurationError, match=variable):
        load_settings(environ={variable: text}, directory=tmp_path)


def test_an_app_without_a_url_reads_the_configuration(tmp_path, monkeypatch):
    """When it needs one, not before."""
    app = holdfast.Holdfast()
    monkeypatch.setenv("HOLDFAST_URL", f"sqlite:///{tmp_path}/jobs.db")
    assert app.url.endswith("jobs.db")


TABLES = """
audit_checks = [["git", "diff", "--quiet"]]
[command]
memory = "2G"
retry = 1
env = {OMP_NUM_THREADS = "1"}
[profiles."train*"]
memory = "16G"
"""


def test_commands_have_their_presets_in_the_file(tmp_path):
    """By label where a profile fits; each part has a name of its own."""
    (tmp_path / "holdfast.toml").write_text(TABLES)
    settings, values, _ = read_settings(environ={}, directory=tmp_path)
    leaves = {leaf.name: leaf.value for name in ("command", "profiles") for leaf in flatten(values[name])}
    assert leaves == {
        "command.memory": "2G",
        "command.retry": 1,
        "command.env.OMP_NUM_THREADS": "1",
        "profiles.train*.memory": "16G",
    }
    assert settings.audit_checks == [["git", "diff", "--quiet"]]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[command]\nmemori = 1", "memori"),
        ('[command]\nmemory = "much"', "'much' is not a valid size"),
        ('[command]\ntimeout = "soon"', "not a duration"),
        ("[command]\nretry = -1", "-1"),
        ('[command.env]\n"A B" = "x"', "'A B' cannot be a variable"),
        ('profiles = "x"', "profiles"),
        ('[profiles.train]\nqueue = ""', "the queue"),
        ('audit_checks = ["git diff"]', "audit_checks"),
        ("audit_checks = [[]]", "length >= 1"),
    ],
)
def test_a_preset_that_makes_no_sense_is_an_error(tmp_path, text, says):
    (tmp_path / "holdfast.toml").write_text(text)
    with pytest.raises(ConfigurationError, match=says) as caught:
        load_settings(environ={}, directory=tmp_path)
    assert caught.value.hint


def test_each_layer_sets_single_ages_of_the_retention(tmp_path):
    """E2: the ages that a layer leaves out stay as they were; 0 keeps for ever."""
    ages = load_settings(environ={}, directory=tmp_path).retention
    assert (ages["done"], ages["dead"], ages["events"], ages["audit"]) == ("30d", "90d", "0", "365d")
    (tmp_path / "holdfast.toml").write_text('[retention]\ndone = "7d"\nbatches = 0')
    environ = {"HOLDFAST_RETENTION": "dead=1w, done=12h"}
    ages = load_settings(environ=environ, directory=tmp_path).retention
    assert (ages["done"], ages["dead"], ages["batches"], ages["plans"]) == ("12h", "1w", "0", "90d")


@pytest.mark.parametrize(
    ("text", "message"),
    [("deaf=1d", "'deaf'"), ("done=soon", "'soon'"), ("done", "''")],
)
def test_a_mistyped_retention_is_refused(tmp_path, text, message):
    """E2: a worker that started with the default would prune what was to stay."""
    with pytest.raises(ConfigurationError, match=message):
        load_settings(environ={"HOLDFAST_RETENTION": text}, directory=tmp_path)
    (tmp_path / "holdfast.toml").write_text("retention = 5")
    with pytest.raises(ConfigurationError, match="table"):
        load_settings(environ={}, directory=tmp_path)
