"""The application factory: settings, and several services in one process."""

import subprocess
import sys
from collections.abc import Callable
from os import fsdecode
from pathlib import Path

import pytest
from builders import document
from conftest import ROOT, run
from flask import Flask
from flask.testing import FlaskClient

from app import create_app


def names(client: FlaskClient) -> list[str]:
    return [widget["name"] for widget in client.get("/api/v1/widgets/search").json["widgets"]]


def minimum_cli_version(app: Flask) -> str:
    return app.test_client().get("/api/widgets/cli-version").json["minimumVersion"]


def test_two_services_in_one_process_serve_their_own_files(
    client_with: Callable[..., FlaskClient],
) -> None:
    first, second = client_with(document("acme/clock")), client_with(document("acme/radio"))
    assert (names(first), names(second)) == (["clock"], ["radio"])
    assert first.post("/api/v1/widgets/acme/clock").status_code == 200
    assert second.post("/api/v1/widgets/acme/clock").status_code == 404
    assert second.get("/api/stats").json["downloads"] == 0


def test_the_factory_works_twice_in_a_fresh_process_without_a_database(tmp_path: Path) -> None:
    code = "from app import create_app; create_app(); create_app()"
    settings = {"PYTHONPATH": str(ROOT), "CATALOG_DATABASE": str(tmp_path / "none.db")}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        cwd=tmp_path,
        env=settings,
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert list(tmp_path.iterdir()) == []


def test_the_environment_is_read_at_each_call(monkeypatch: pytest.MonkeyPatch) -> None:
    for number in ("2.3.4", "3.0.0-rc.1"):
        monkeypatch.setenv("CATALOG_MINIMUM_CLI_VERSION", number)
        assert minimum_cli_version(create_app()) == number


def test_settings_of_the_factory_override_the_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("DATABASE", "HOST", "PORT", "MINIMUM_CLI_VERSION"):
        monkeypatch.setenv(f"CATALOG_{name}", "")
    settings = {"DATABASE": tmp_path / "a.db", "HOST": "::1", "PORT": 1}
    app = create_app({**settings, "MINIMUM_CLI_VERSION": "9.9.9"})
    assert app.extensions["database"].path == tmp_path / "a.db"
    assert (app.config["HOST"], app.config["PORT"]) == ("::1", 1)
    assert minimum_cli_version(app) == "9.9.9"


@pytest.mark.parametrize("name", ["1", "{}"])
def test_setting_that_looks_like_json_is_text(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv("CATALOG_DATABASE", name)
    assert create_app().extensions["database"].path == Path(name)


@pytest.mark.parametrize(
    "name", ["a ?mode=memory#b%41%.db", "météo'\".db", ":memory:", fsdecode(b"\xff.db")], ids=ascii
)
def test_a_database_may_have_any_name(tmp_path: Path, name: str) -> None:
    app = create_app({"DATABASE": f"{tmp_path}/{name}"})
    assert run(app, "init").exit_code == 0
    assert app.test_client().get("/api/health").json == {"status": "ok"}
    app.extensions["database"].close()
    assert [path.name for path in tmp_path.iterdir()] == [name]
