"""What commands, settings and the internal API refuse, and the sentences that say why."""

import json
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest
from builders import document, version
from click.testing import CliRunner
from conftest import error_message, exported, run, run_line
from flask import Flask
from publishers import bearer, create_token, manifest
from upstreams import FakeUpstream

from app import create_app
from catalog.__main__ import cli
from catalog.settings import SettingError

AppWith = Callable[..., Flask]
CLOCK = document("acme/clock", version("1.0.0"), version("2.0.0"))
HIDDEN = document("acme/hidden", version(), listed=False)
BRACES = "a URL without placeholders other than {scope}, {name} and {version}"


@pytest.fixture
def app(app_with: AppWith) -> Flask:
    return app_with(CLOCK, HIDDEN)


@pytest.mark.parametrize("name", ["BUNDLE_URL", "INSTALL_URL"])
@pytest.mark.parametrize(
    ("template", "allowed"),
    [
        ("https://cdn.example.com/{vresion}.js", BRACES),
        ("https://cdn.example.com/{version}}.js", BRACES),
        ("cdn.example.com/{version}.js", "an absolute http or https URL"),
        ("ftp://cdn.example.com/{version}.js", "an absolute http or https URL"),
    ],
)
def test_an_invalid_template_is_refused_at_start(name: str, template: str, allowed: str) -> None:
    with pytest.raises(SettingError) as error:
        create_app({name: template})
    assert str(error.value) == f"CATALOG_{name} must be {allowed}, not '{template}'."
    assert create_app({name: "https://cdn.example.com/{scope}/{name}/{version}.js"})


@pytest.fixture
def put(app: Flask) -> Callable[..., tuple[int, str]]:
    """A function that sends a PUT for acme/new@1.0.0, and returns status and error."""
    token = create_token(app)

    def send(content: object) -> tuple[int, str]:
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        response = app.test_client().put(
            "/api/widgets/acme/new/1.0.0",
            data=body,
            content_type="application/json",
            headers=bearer(token),
        )
        return response.status_code, (response.json or {}).get("error", "")

    return send


FIELDS = {"bundleUrl": "https://cdn.example.com/a.js", "bundleSize": 1, "sha256Hash": "a" * 64}
PUTS: dict[str, tuple[object, str]] = {
    "an unknown placeholder": (
        {"bundleUrl": "https://cdn.example.com/{vresion}.js"},
        f"bundleUrl must be {BRACES}, not 'https://cdn.example.com/{{vresion}}.js'.",
    ),
    "no URL": (
        {"bundleUrl": "x"},
        "bundleUrl must be an absolute http or https URL, not 'x'.",
    ),
    "a size": (
        {"bundleSize": -1},
        "bundleSize must be a whole number from 0 to 9007199254740991, not -1.",
    ),
    "a hash": ({"sha256Hash": 5}, "sha256Hash must be 64 hexadecimal digits, not 5."),
    "an empty URL": ({"bundleUrl": ""}, "bundleUrl must be a non-empty string, not ''."),
    "a name": (
        {"displayName": 1},
        "displayName must be a Unicode string without NUL characters, not 1.",
    ),
}


@pytest.mark.parametrize(("changes", "message"), PUTS.values(), ids=PUTS)
def test_a_request_names_the_field_that_is_wrong(
    put: Callable[..., tuple[int, str]], changes: dict[str, object], message: str
) -> None:
    assert put({**manifest("acme/new"), **FIELDS, **changes}) == (400, message)


@pytest.mark.parametrize("content", [[], "text", 1, None, True])
def test_a_manifest_that_is_no_object_is_named(
    put: Callable[..., tuple[int, str]], content: object
) -> None:
    assert put(content) == (400, "The manifest must be a JSON object.")


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-32"])
def test_another_encoding_than_utf_8_is_refused(
    app: Flask, put: Callable[..., tuple[int, str]], tmp_path: Path, encoding: str
) -> None:
    content = json.dumps({**manifest("acme/new"), **FIELDS}).encode(encoding)
    status, error = put(content)
    assert (status, error.startswith("The manifest is not JSON in UTF-8: ")) == (400, True)
    path, bundle = tmp_path / "m.json", tmp_path / "b.js"
    path.write_bytes(content)
    bundle.write_text("1")
    result = run(app, "publish", path, bundle, "--store")
    assert error_message(result).startswith(f"{path} is not JSON in UTF-8: ")


def test_a_body_that_must_be_empty_is_refused_in_a_complete_sentence(app: Flask) -> None:
    headers = bearer(create_token(app, permissions=("yank",)))
    path = "/api/widgets/acme/clock/1.0.0/unyank"
    response = app.test_client().post(path, json={"reason": "x"}, headers=headers)
    assert response.json == {"error": "The body has unknown keys: 'reason'; it must be empty."}


@pytest.mark.parametrize("text", ["1_0", "+1", " 1", "1 ", "٣", "0", "", "1e1", "9" * 5000])
def test_a_limit_is_written_in_digits(app: Flask, text: str) -> None:
    headers = bearer(create_token(app))
    for key in ("limit", "before"):
        response = app.test_client().get("/api/audit", query_string={key: text}, headers=headers)
        assert response.status_code == 400


DEPRECATIONS = {
    "--replaced-by acme/hidden": "acme/hidden is not listed, so users could not find it.",
    "--replaced-by acme/none": "There is no widget acme/none.",
}


@pytest.mark.parametrize(("options", "message"), DEPRECATIONS.items(), ids=DEPRECATIONS)
def test_a_replacement_that_nobody_could_use_is_refused(
    app: Flask, options: str, message: str
) -> None:
    before = exported(app)
    result = run_line(app, f"deprecate acme/clock@1.0.0 {options}")
    assert error_message(result) == message
    assert exported(app) == before


@pytest.mark.parametrize(
    "line",
    [
        "deprecate acme/clock@1.0.0 acme/clock@2.0.0 --message 'acme/clock@3 is better.'",
        "deprecate --message 'acme/clock@3 is better.' acme/clock@1.0.0 acme/clock@2.0.0",
    ],
)
def test_the_message_of_a_deprecation_may_name_a_version(app: Flask, line: str) -> None:
    assert run_line(app, line).exit_code == 0
    shown = json.loads(run_line(app, "show acme/clock --json").stdout)
    messages = {each["deprecationMessage"] for each in shown["versions"]}
    assert messages == {"acme/clock@3 is better."}


@pytest.mark.parametrize(
    "line",
    [
        "mirror status --adopt",
        "mirror status --dry-run",
        "--ca {} check",
        "--ca {} list",
        "--database a.db --ca {} list",
        "health http://127.0.0.1:1 --server http://127.0.0.1:2",
        "unpack {} --bundles-only --yes",
    ],
)
def test_an_option_that_would_do_nothing_is_wrong_usage(
    app: Flask,
    upstream: FakeUpstream,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    line: str,
) -> None:
    monkeypatch.setenv("CATALOG_DATABASE", str(app.config["DATABASE"]))
    upstream.encrypt(tmp_path, monkeypatch)
    result = CliRunner().invoke(cli, shlex.split(line.format(tmp_path / "certificate.pem")))
    assert (result.exit_code, result.stdout) == (2, ""), result.output


@pytest.mark.parametrize("name", ["clock@1", "@", "registry.json"])
def test_a_name_with_a_second_meaning_is_refused_from_now_on(app: Flask, name: str) -> None:
    result = run(app, "import", "-", stdin=json.dumps(document(f"acme/{name}", version())))
    assert error_message(result).endswith(
        f": name must be a name without an @ and other than registry.json, not '{name}'."
    )


def test_a_stored_name_with_an_at_sign_stays_readable_and_a_scope_may_have_one(
    app_with: AppWith,
) -> None:
    app = app_with(document("acme/odd@1.0.0", version("2.0.0")), document("@acme/clock", version()))
    assert run_line(app, "show acme/odd@1.0.0").stdout.startswith("Odd@1.0.0 (acme/odd@1.0.0)\n")
    assert run_line(app, "yank acme/odd@1.0.0@2.0.0").exit_code == 0
    put_again = json.dumps(document("@acme/clock", version(), displayName="Again"))
    assert run(app, "import", "-", stdin=put_again).exit_code == 0
    assert run_line(app, "show @acme/clock@1.0.0").exit_code == 0


HOSTS = {
    "widget_catalog:8080": "http://widget_catalog:8080",
    "_x": "http://_x",
    "": "http://localhost",
    "a b": "http://localhost",
    "a_b/c": "http://localhost",
    "a_b:port": "http://localhost",
}


@pytest.mark.parametrize(("host", "base"), HOSTS.items())
def test_the_host_of_a_compose_file_is_used_in_addresses(app: Flask, host: str, base: str) -> None:
    response = app.test_client().get("/openapi.json", headers={"Host": host})
    assert response.json is not None
    assert response.json["servers"][0]["url"] == base
