"""``holdfast config``."""

from __future__ import annotations


def test_config_shows_the_origin_of_values(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "holdfast.toml").write_text('url = "sqlite:///here.db"')
    (tmp_path / "other.toml").write_text('url = "sqlite:///there.db"')

    def origin(*arguments):
        setting, *_ = run("config", "show", *arguments, "-o", "json").data["settings"]
        return setting["value"], setting["origin"]

    assert origin()[1] == "HOLDFAST_URL"
    monkeypatch.delenv("HOLDFAST_URL")
    assert origin() == (f"sqlite:///{tmp_path}/here.db", str(tmp_path / "holdfast.toml"))
    assert origin("--config", "other.toml") == (f"sqlite:///{tmp_path}/there.db", "other.toml")
    assert origin("--url", "postgresql://ada:secret@db/x") == ("postgresql://ada:***@db/x", "--url")
    (tmp_path / "holdfast.toml").write_text('[retention]\ndone = "1d"\ndead = "2d"')
    rows = run("config", "show", "-o", "json").data["settings"]
    origins = {row["name"]: row["origin"] for row in rows if row["name"].startswith("retention.")}
    file = str(tmp_path / "holdfast.toml")
    assert {name for name, where in origins.items() if where == file} == {"retention.done", "retention.dead"}
    assert set(origins.values()) == {file, "default"}
    monkeypatch.setenv("COLUMNS", "40")
    heading, *lines = run("config", "show", "--origin", "--url", f"sqlite:///{'x' * 100}.db").out.splitlines()
    assert heading.split() == ["SETTING", "VALUE", "ORIGIN"]
    assert lines[0].endswith("--url"), "a long value must not hide the origins"
    (tmp_path / "holdfast.toml").write_text('ulr = "x"')
    assert run("config", "show").code == 4
