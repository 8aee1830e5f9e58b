"""widget-catalog --server: commands that change the catalog of a service on another machine."""

import json
import os
import pty
import re
import shlex
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import reverse_proxies
from builders import Json, document, png, version
from click.testing import CliRunner, Result
from conftest import create_catalog, error_message, exported, run_line, start_command
from flask import Flask
from mirrors import AppServer, serve
from ports import free_port
from publishers import bearer, create_token, manifest
from reverse_proxies import Origin

from catalog import __version__
from catalog.__main__ import cli
from catalog.commands import COMMANDS
from catalog.domain.token_text import generate_token
from catalog.remote import token_file
from catalog.remote.token_file import store_login
from catalog.system.atomic_files import atomic_replace

AppWith = Callable[..., Flask]
PUBLIC_URL = "https://widgets.example"
CATALOG = (
    document(
        "acme/clock",
        version("1.0.0"),
        version("1.1.0-beta.1", publishedAt="2025-01-15T03:04:05.000Z"),
        version("1.1.0", publishedAt="2025-02-02T03:04:05.000Z"),
        version("2.0.0", publishedAt="2025-03-02T03:04:05.000Z"),
    ),
    document("acme/weather", version("1.0.0")),
    document("acme/hidden", version("1.0.0"), listed=False),
)
PUBLISH = "publish new.json new.js --store"
# Each is run on this machine and through a service, one after another.
LINES = [
    f"{PUBLISH} --dry-run",
    PUBLISH,
    PUBLISH,
    f"{PUBLISH} --dry-run",
    f"{PUBLISH} --quiet",
    "publish new.json other.js --store",
    "publish new.json empty.js --store",
    "publish odd.json new.js --bundle-url https://cdn.example.com/{scope}/{name}/{version}.js",
    "publish odd.json new.js --bundle-url https://cdn.example.com/another.js",
    "publish odd.json new.js --bundle-url ftp://cdn.example.com/a.js",
    "publish hidden.json new.js --store --bundle-url https://cdn.example.com/hidden.js",
    "publish new.json new.js --bundle-url 'https://cdn.example.com/{vresion}.js'",
    "publish new.json new.js --bundle-url 'https://cdn.example.com/{version}}.js'",
    "publish at.json new.js --store",
    "publish registry.json new.js --store",
    "publish utf16.json new.js --store",
    "publish about.json new.js --store --readme about.md --picture about.png --dry-run",
    "publish about.json new.js --store --readme about.md --picture about.png",
    "publish about.json new.js --store --picture new.js",
    "publish unnamed.json new.js --store",
    "publish unknown.json new.js --store",
    "publish list.json new.js --store",
    "publish text.json new.js --store",
    "publish missing.json new.js --store",
    "publish - - --store",
    "yank acme/clock@1.x --reason 'Loses time zones: ü, \"quotes\" and / too.' --dry-run",
    "yank acme/clock@1.x --reason 'Loses time zones: ü, \"quotes\" and / too.'",
    "yank acme/clock@1.x",
    "yank acme/clock@2.0.0 acme/clock@1.1.0-beta.1 --dry-run",
    "yank acme/clock@2.0.0 acme/clock@1.1.0-beta.1 acme/weather@1.0.0",
    "yank acme/clock@'>=2 <3' --reason ''",
    "yank acme/clock@9.x",
    "yank acme/clock@1.0.0 acme/clock@9.9.9",
    "yank acme/weather@1.0.0 acme/clock@9.9.9",
    "yank acme/clock@nonsense",
    "yank acme/clock@1.0.0,2.0.0",
    "yank acme/clock@",
    "yank acme/clock@..",
    "yank acme/clock",
    "unyank acme/clock@1.0.0 acme/clock@1.x acme/weather@* --dry-run",
    "unyank acme/clock@1.0.0 acme/clock@1.x acme/weather@*",
    "unyank acme/clock@1.0.0",
    "deprecate acme/clock@'<2' --message 'Use 2.0.0.' --dry-run",
    "deprecate acme/clock@'<2' acme/weather@1.0.0 --message 'Use 2.0.0.'",
    "deprecate acme/clock@1.0.0 --message 'Use 2.0.0.'",
    "deprecate acme/clock@1.0.0 --replaced-by acme/weather",
    "deprecate acme/clock@1.0.0 --replaced-by acme/clock",
    "deprecate acme/clock@1.0.0 --replaced-by acme/clok",
    "deprecate acme/clock@1.0.0 acme/clock@2.0.0 --message 'Use another.'",
    "deprecate acme/clock --message 'Use another.'",
    "deprecate acme/clock@1.0.0 --message ''",
    "yank acme/clok@1.0.0",
    "unlist acm/clock",
    "unlist acme/quite-another",
    "deprecate acme/clock@1.0.0",
    "undeprecate acme/clock@1.0.0 --dry-run",
    "undeprecate acme/clock@1.0.0",
    "undeprecate acme/clock@1.0.0",
    "unlist acme/weather",
    "unlist acme/weather",
    "relist acme/hidden",
    "relist acme/hidden",
    "official acme/clock",
    "official acme/clock",
    "official acme/weather --off",
    "describe acme/clock --display-name 'Große Uhr' --description 'Tells time.' --icon mdi:bell",
    "describe acme/clock --display-name 'Große Uhr'",
    "describe acme/clock --description '' --icon ''",
    "describe acme/clock --readme about.md --picture about.png --issues https://acme.example/",
    "describe acme/clock --readme about.md --picture about.png",
    "describe acme/clock --keywords 'time, world clock'",
    "describe acme/clock --keywords ''",
    "describe acme/clock --readme '' --picture '' --issues ''",
    "describe acme/clock --picture new.js",
    "describe acme/clock --homepage http://acme.example/",
    "describe acme/none --picture about.png",
    "describe acme/clock --display-name ''",
    "describe acme/clock",
]


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Change to a directory with manifests and bundles; tokens are stored below it."""
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    manifests: dict[str, Any] = {
        "new": manifest("acme/new", "1.0.0", description="Ünïcode", releaseNotes="First."),
        "odd": manifest("acme/Odd Näme", "1.0.0-rc.1+build.5", icon="unusual"),
        "at": manifest("acme/clock@1", "1.0.0"),
        "registry": manifest("acme/registry.json", "1.0.0"),
        "hidden": manifest("acme/hidden", "2.0.0", isOfficial=True),
        "about": manifest("acme/about", "1.0.0", homepage="https://acme.example/"),
        "unnamed": {"scope": "acme", "version": "one", "sdkVersion": "x y"},
        "unknown": manifest("acme/new", "2.0.0", bundleUrl="https://cdn.example.com/a.js"),
        "list": [],
    }
    for name, content in manifests.items():
        Path(f"{name}.json").write_text(json.dumps(content), encoding="utf-8")
    Path("text.json").write_text("{", encoding="utf-8")
    Path("utf16.json").write_text(json.dumps(manifests["new"]), encoding="utf-16")
    Path("new.js").write_text("export default 1\n", encoding="utf-8")
    Path("other.js").write_text("export default 2\n", encoding="utf-8")
    Path("empty.js").write_text("", encoding="utf-8")
    Path("about.md").write_text("# Über\n", encoding="utf-8")
    Path("about.png").write_bytes(png(64, 36, bytes(500_000)))
    return work


@pytest.fixture
def app(app_with: AppWith) -> Flask:
    return app_with(*CATALOG, PUBLIC_URL=PUBLIC_URL)


@pytest.fixture
def server(app: Flask) -> Iterator[AppServer]:
    with serve(app) as running:
        yield running


@pytest.fixture
def token(app: Flask, monkeypatch: pytest.MonkeyPatch) -> str:
    """A token in the variable."""
    monkeypatch.setenv("CATALOG_TOKEN", create_token(app))
    return os.environ["CATALOG_TOKEN"]


def run_program(*arguments: str, stdin: str | None = None) -> Result:
    """Run widget-catalog in this process."""
    return CliRunner().invoke(cli, arguments, input=stdin)


def run_remotely(url: str, line: str, stdin: str | None = None) -> Result:
    return run_program("--server", url, *shlex.split(line), stdin=stdin)


def failure(result: Result) -> str:
    """Return the error of a command that failed with exit code 1."""
    assert (result.exit_code, result.stdout) == (1, ""), result.output
    # A server of this process may print lines too.
    (line,) = re.findall("^Error: (.*)$", result.stderr, re.M)
    return str(line)


def without_times(text: str) -> str:
    """Return the text without the time at which a test ran."""
    return re.sub(r'("(?:publishedAt|createdAt)": ?)"20(?!25)[^"]*"', r'\1"now"', text)


def test_every_command_has_the_same_output_and_effect_as_on_the_machine_of_the_catalog(
    app_with: AppWith,
    app: Flask,
    server: AppServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    token = create_token(app, scopes=(), permissions=("admin",))
    monkeypatch.setenv("CATALOG_TOKEN", token)
    local = app_with(*CATALOG, PUBLIC_URL=PUBLIC_URL)
    monkeypatch.setenv("CATALOG_PUBLIC_URL", PUBLIC_URL)
    for line in LINES:
        here = run_program("--database", local.config["DATABASE"], *shlex.split(line))
        there = run_remotely(server.url, line)
        results = [
            (each.exit_code, without_times(each.stdout), each.stderr) for each in (here, there)
        ]
        place = f"stored in {local.extensions['bundles'].name}."
        expected = (*results[0][:2], results[0][2].replace(place, f"stored in {server.url}."))
        assert results[1] == expected, line
        assert token not in there.output
    contents = [without_times(exported(each).decode()) for each in (local, app)]
    assert contents[0] == contents[1]
    hashes = [[*each.extensions["bundles"].hashes()] for each in (local, app)]
    assert hashes[0] == hashes[1]
    # Every command is in the list.
    others = {"log", "login", "logout", "whoami", "list", "show", "outdated", "health"}
    remote = {name for name, each in COMMANDS.items() if getattr(each, "remote", None)}
    assert {line.split()[0] for line in LINES} | others == remote


@pytest.mark.usefixtures("token")
@pytest.mark.parametrize("options", ["", " --bundle-url https://cdn.example/new.js"])
def test_what_is_not_javascript_is_refused_whether_or_not_it_is_sent(
    server: AppServer, options: str
) -> None:
    Path("page.js").write_text("<!doctype html>", encoding="utf-8")
    result = run_remotely(server.url, f"publish new.json page.js{options}")
    problem = "is an HTML page, not JavaScript; the download of the file may have failed."
    assert error_message(result).endswith(problem)
    assert run_remotely(server.url, "show acme/new").exit_code == 1


@pytest.mark.usefixtures("token")
def test_the_bundle_is_sent_and_stored_without_an_option(app: Flask, server: AppServer) -> None:
    result = run_remotely(server.url, "publish new.json new.js")
    assert result.stderr.splitlines() == [
        "Published acme/new@1.0.0.",
        f"Its bundle is stored in {server.url}.",
        "The latest version of acme/new is now 1.0.0.",
    ]
    with app.test_client().get("/api/v1/widgets/acme/new/1.0.0/bundle.js") as bundle:
        assert bundle.data == b"export default 1\n"


@pytest.mark.usefixtures("token")
def test_the_bundle_is_not_sent_with_a_url_of_another_host(app: Flask, server: AppServer) -> None:
    url = "https://cdn.example.com/new.js"
    result = run_remotely(server.url, f"publish new.json new.js --bundle-url {url}")
    shown = app.test_client().get("/api/v1/widgets/acme/new").json
    assert shown is not None
    assert (result.exit_code, shown["versions"][0]["bundleUrl"]) == (0, url)
    assert "stored" not in result.stderr


def test_the_log_is_the_same_as_on_the_machine_of_the_catalog(
    app: Flask, server: AppServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = create_token(app, "root", (), ("admin",))
    monkeypatch.setenv("CATALOG_TOKEN", token)
    client, path = app.test_client(), "/api/widgets/acme/clock/1.0.0"
    # More than fit on a page of the API.
    for action in ["yank", "unyank"] * 60:
        assert client.post(f"{path}/{action}", headers=bearer(token)).status_code == 200
    database = str(app.config["DATABASE"])
    for line in (
        "log",
        "log acme/clock --json",
        "log acme/new",
        "log --limit 1",
        "log --limit 110",
        "log --since 2999-01-01T00:00:00Z",
    ):
        here = run_program("--database", database, *line.split())
        there = run_remotely(server.url, line)
        assert (there.exit_code, there.output) == (0, here.output), line
    assert run_remotely(server.url, "log").stdout.count("token root  yank") == 60


def test_the_log_has_the_changes_in_the_scopes_of_the_token(
    app: Flask, server: AppServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for line in ("yank acme/clock@1.0.0", "delete acme/weather --yes"):
        assert run_line(app, line).exit_code == 0
    monkeypatch.setenv("CATALOG_TOKEN", create_token(app, "other", ("ops",)))
    assert run_remotely(server.url, "log").stdout == ""
    monkeypatch.setenv("CATALOG_TOKEN", create_token(app, "own"))
    here = run_line(app, "log").stdout.splitlines()
    assert run_remotely(server.url, "log").stdout.splitlines() == here[:2]


@pytest.mark.usefixtures("token")
def test_a_mistake_in_one_of_several_widgets_changes_none(app: Flask, server: AppServer) -> None:
    before = exported(app)
    result = run_remotely(server.url, "yank acme/clock@1.0.0 acme/weather@7.0.0")
    assert failure(result) == "There is no version acme/weather@7.0.0."
    assert exported(app) == before


@pytest.mark.usefixtures("token")
def test_describe_is_one_request_and_changes_everything_or_nothing(
    app: Flask, server: AppServer
) -> None:
    before = exported(app)
    options = "--description New --icon '' --readme about.md --homepage https://new.example/"
    result = run_remotely(server.url, f"describe acme/clock {options} --picture new.js")
    assert "The picture must be a PNG, JPEG, WebP or AVIF file" in failure(result)
    assert exported(app) == before
    server.responses.clear()
    result = run_remotely(server.url, f"describe acme/clock {options} --picture about.png")
    assert (result.exit_code, result.stderr) == (0, "Updated acme/clock.\n")
    assert [path for path, _ in server.responses] == [
        "/api/widgets/cli-version",
        "/api/widgets/acme/clock",
    ]
    (line,) = [each for each in exported(app).splitlines() if b'"name": "clock"' in each]
    clock = json.loads(line)
    assert (clock["widget"]["description"], clock["widget"]["icon"]) == ("New", None)
    assert clock["about"]["homepage"] == "https://new.example/"
    assert (clock["about"]["readme"], clock["about"]["picture"]["type"]) == (
        "# Über\n",
        "image/png",
    )


# Tokens.


def log_in(app: Flask, url: str, name: str = "ci") -> str:
    """Log in to the service with a new token; return the token."""
    token = create_token(app, name)
    assert run_remotely(url, "login", stdin=f"{token}\n").exit_code == 0
    return token


def test_login_stores_the_token_in_a_private_file_until_logout(
    app: Flask, server: AppServer, tmp_path: Path
) -> None:
    token = create_token(app)
    result = run_remotely(server.url, "login", stdin=f"{token}\n")
    path = tmp_path / "config" / "widget-catalog" / "tokens.json"
    assert f"Logged in to {server.url} with the token ci, valid until 20" in result.stderr
    assert f"The token is stored in {path}." in result.stderr
    assert token not in result.output
    assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    assert run_remotely(server.url, "unlist acme/clock").exit_code == 0
    assert [run_remotely(server.url, "logout").stderr for _ in range(2)] == [
        f"Removed the token for {server.url}. It stays valid until it is revoked there.\n",
        f"There is no stored token for {server.url}.\n",
    ]
    assert "There is no token" in failure(run_remotely(server.url, "unlist acme/clock"))


def test_a_token_belongs_to_one_service_in_any_spelling_of_its_url(
    app: Flask, server: AppServer
) -> None:
    url = server.url.replace("127.0.0.1", "localhost")
    log_in(app, url)
    for spelling in (url.upper(), f"{url}/"):
        assert run_remotely(spelling, "unlist acme/clock").exit_code == 0
    assert failure(run_remotely(server.url, "unlist acme/clock")) == (
        f"There is no token for {server.url}: run widget-catalog login --server {server.url}, "
        "or set CATALOG_TOKEN."
    )


def test_a_refused_token_is_named_and_not_stored(
    app: Flask, server: AppServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = create_token(app)
    run_line(app, "token revoke ci")
    assert failure(run_remotely(server.url, "login", stdin=token)) == (
        f"{server.url} refused the token. The token ci is revoked."
    )
    assert "There is no token" in failure(run_remotely(server.url, "unlist acme/clock"))
    for text, reason in (
        (token, "The token ci is revoked."),
        (generate_token()[1], "The token is unknown."),
    ):
        monkeypatch.setenv("CATALOG_TOKEN", text)
        assert failure(run_remotely(server.url, "unlist acme/clock")) == (
            f"{server.url} refused the token in CATALOG_TOKEN. {reason}"
        )


def test_the_variable_has_precedence_over_the_stored_token(
    app: Flask, server: AppServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CATALOG_TOKEN", create_token(app, "other", ("ops",)))
    result = run_remotely(server.url, "login", stdin=create_token(app, "stored"))
    assert "with the token stored, valid until" in result.stderr
    assert "CATALOG_TOKEN is set, and takes precedence over the stored token." in result.stderr
    result = run_remotely(server.url, "unlist acme/clock")
    assert failure(result) == "The token other is not valid for the scope 'acme'."


def test_login_without_standard_input_needs_a_token(server: AppServer) -> None:
    with start_command(
        Path(), "--server", server.url, "login", program="catalog", preexec_fn=lambda: os.close(0)
    ) as process:
        _, errors = process.communicate(timeout=60)
    assert errors == "Error: The input is not a token: it is incomplete or mistyped.\n"


def test_a_typed_token_is_not_shown(app: Flask, server: AppServer) -> None:
    token = create_token(app)
    terminal, process_end = pty.openpty()
    arguments = (Path(), "--server", server.url, "login")
    # In a session of its own, it cannot ask at the terminal of the tests.
    options: Json = {"program": "catalog", "stdin": process_end, "preexec_fn": os.setsid}
    with start_command(*arguments, **options) as process:
        prompt = ""
        while not prompt.endswith("Token: "):
            prompt += process.stderr.read(1) or "Token: "
        os.write(terminal, f"{token}\n".encode())
        _, errors = process.communicate(timeout=60)
    os.write(process_end, b"end")
    shown = b""
    while not shown.endswith(b"end"):
        shown += os.read(terminal, 1000)
    os.close(terminal)
    os.close(process_end)
    assert ("Logged in to " in errors, token.encode() in shown) == (True, False)


def test_a_token_as_an_argument_is_refused_and_not_shown(app: Flask, server: AppServer) -> None:
    token = create_token(app)
    result = run_remotely(server.url, f"login {token}")
    assert (result.exit_code, "Do not pass the token as an argument" in result.stderr) == (2, True)
    assert token not in result.output


def test_concurrent_logins_lose_no_token(
    app: Flask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = create_token(app)
    urls = ["https://1.example", "https://2.example"]
    second = threading.Thread(target=store_login, args=(urls[1], token))

    @contextmanager
    def start_second_before_the_end(path: Path) -> Iterator[Path]:
        with atomic_replace(path) as new:
            yield new
            if second.ident is None:
                second.start()
                # It waits until the first login has ended, if it works.
                second.join(0.2)

    monkeypatch.setattr(token_file, "atomic_replace", start_second_before_the_end)
    store_login(urls[0], token)
    second.join()
    stored = (tmp_path / "config" / "widget-catalog" / "tokens.json").read_text(encoding="utf-8")
    assert json.loads(stored) == {url: {"token": token} for url in urls}


def test_a_relative_directory_of_configuration_is_ignored(
    app: Flask, server: AppServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path))
    log_in(app, server.url)
    assert (tmp_path / ".config" / "widget-catalog" / "tokens.json").exists()


def test_a_user_without_a_home_directory_needs_the_variable(
    server: AppServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def find_no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CONFIG_HOME")
    monkeypatch.setattr(Path, "home", find_no_home)
    message = "There is no home directory; set HOME or CATALOG_TOKEN."
    assert failure(run_remotely(server.url, "unlist acme/clock")) == message


def test_a_mistyped_token_is_found_before_anything_is_sent(
    app: Flask, server: AppServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = create_token(app)
    mistyped = token[:-1] + ("a" if token[-1] != "a" else "b")
    result = run_remotely(server.url, "login", stdin=mistyped)
    assert failure(result) == "The input is not a token: it is incomplete or mistyped."
    monkeypatch.setenv("CATALOG_TOKEN", mistyped)
    result = run_remotely(server.url, "unlist acme/clock")
    assert failure(result) == "CATALOG_TOKEN is not a token: it is incomplete or mistyped."
    assert server.responses == []


def test_a_token_file_that_others_may_read_is_not_used(
    app: Flask, server: AppServer, tmp_path: Path
) -> None:
    log_in(app, server.url)
    path = tmp_path / "config" / "widget-catalog" / "tokens.json"
    path.chmod(0o640)
    assert failure(run_remotely(server.url, "unlist acme/clock")) == (
        f"Other users can read {path}; make it private: chmod 600 {path}"
    )


@pytest.mark.parametrize("content", ["{", "[]", '{"x": 1}', "\udcff"])
def test_a_damaged_token_file_is_reported(server: AppServer, tmp_path: Path, content: str) -> None:
    path = tmp_path / "config" / "widget-catalog" / "tokens.json"
    path.parent.mkdir(parents=True)
    path.touch(0o600)
    path.write_text(content, encoding="utf-8", errors="surrogateescape")
    assert failure(run_remotely(server.url, "unlist acme/clock")) == (
        f"{path} is not a valid token file; remove it and log in again."
    )


# The place of the options, and the variables.


def test_the_server_may_stand_before_or_after_the_command_or_in_a_variable(
    app: Flask, server: AppServer, token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for line in ("--server {} unlist acme/clock", "relist acme/clock --server {}"):
        assert run_program(*line.format(server.url).split()).exit_code == 0
    monkeypatch.setenv("CATALOG_SERVER", f"{server.url}/")
    assert run_program("unlist", "acme/clock").stderr == "acme/clock is unlisted.\n"
    # Both options, also for flask.
    assert run_line(app, f"relist acme/clock --server {server.url}").exit_code == 0
    assert server.responses[-1] == ("/api/widgets/acme/clock", 200)
    assert len(server.responses) == 8


def test_options_have_precedence_over_the_variable_of_the_server(
    app: Flask, server: AppServer, token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CATALOG_SERVER", "http://127.0.0.1:1")
    assert run_remotely(server.url, "unlist acme/clock").exit_code == 0
    database = ("--database", str(app.config["DATABASE"]))
    assert run_program(*database, "relist", "acme/clock").stderr == "acme/clock is listed.\n"


def test_an_invalid_variable_of_the_server_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CATALOG_SERVER", "widgets")
    assert failure(run_program("unlist", "acme/clock")) == (
        "CATALOG_SERVER must be an absolute http or https URL, not 'widgets'."
    )


def test_a_login_names_the_variable_and_is_no_target_by_itself(
    app: Flask, server: AppServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = run_remotely(server.url, "login", stdin=create_token(app))
    line = f"export CATALOG_SERVER={server.url}"
    assert f"To use this service without --server: {line}\n" in result.stderr
    assert failure(run_program("unlist", "acme/clock")) == (
        "catalog.db does not exist. Create it with: widget-catalog init; for the catalog of a "
        "service, use --server URL."
    )
    monkeypatch.setenv("CATALOG_SERVER", server.url)
    monkeypatch.setenv("CATALOG_DATABASE", "catalog.db")
    assert run_program("unlist", "acme/clock").stderr == "acme/clock is unlisted.\n"
    assert "export" not in run_program("login", stdin=create_token(app, "second")).stderr


@pytest.mark.parametrize(
    "line", ["delete acme/clock --yes", "check", "token list", "serve", "gc", "init"]
)
def test_with_the_variable_a_command_of_the_machine_is_refused_and_changes_nothing(
    monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    database = create_catalog(Path("catalog.db"), *CATALOG)
    before = database.read_bytes()
    monkeypatch.setenv("CATALOG_SERVER", "https://widgets.example")
    result = run_program(*line.split())
    assert (result.exit_code, result.stdout) == (2, "")
    assert (
        f"Error: {line.split()[0]} does not support --server, and CATALOG_SERVER "
        "names a service: unset it, or use --database.\n"
    ) in result.stderr
    assert database.read_bytes() == before


def test_the_option_of_the_database_lets_a_command_of_the_machine_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CATALOG_SERVER", "https://widgets.example")
    path = str(create_catalog(Path("here.db"), *CATALOG))
    assert run_program("--database", path, "delete", "acme/clock", "--yes").exit_code == 0


def test_logout_without_a_login_writes_nothing(server: AppServer, tmp_path: Path) -> None:
    result = run_remotely(server.url, "logout")
    assert result.stderr == f"There is no stored token for {server.url}.\n"
    assert not (tmp_path / "config").exists()


def test_whoami_shows_the_rights_of_the_token(
    app: Flask, server: AppServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CATALOG_TOKEN", create_token(app, "ci", ("acme", "ops"), ("publish",)))
    printed = run_remotely(server.url, "whoami").stdout
    lines = dict(line.split(maxsplit=1) for line in printed.splitlines())
    expiry = lines.pop("expires:")
    assert lines == {"token:": "ci", "scopes:": "acme, ops", "permissions:": "publish"}
    shown = json.loads(run_remotely(server.url, "whoami --json").stdout)
    assert (shown["scopes"], shown["expiresAt"]) == (["acme", "ops"], expiry)
    assert run_line(app, "token revoke ci").exit_code == 0
    assert "The token ci is revoked." in failure(run_remotely(server.url, "whoami"))


# The service.


@pytest.mark.parametrize(
    "url",
    ["http://widgets.example", "http://10.0.0.1:8080", "http://127.0.0.1.example", "http://[::2]/"],
)
def test_a_token_is_not_sent_over_http_to_another_machine(url: str) -> None:
    assert failure(run_remotely(url, "unlist acme/clock")) == (
        f"{url.rstrip('/')} is not an https URL. The token is sent over http only to a loopback "
        "address."
    )


INVALID_URLS = {
    **dict.fromkeys(("widgets.example", "https://me:word@x", "ftp://x", ""), "an absolute http or"),
    **dict.fromkeys(("https://x.example:99999", "https://x.example:x"), "a URL with a valid port."),
}


@pytest.mark.parametrize(("url", "allowed"), INVALID_URLS.items())
def test_an_invalid_url_of_a_service_is_refused(url: str, allowed: str) -> None:
    result = run_remotely(url, "unlist acme/clock")
    assert (result.exit_code, f"is not {allowed}" in result.stderr) == (2, True)


def test_the_minimum_version_of_the_service_is_asked_first(
    app_with: AppWith, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = app_with(*CATALOG, MINIMUM_CLI_VERSION="99.1.0")
    monkeypatch.setenv("CATALOG_TOKEN", create_token(app))
    with serve(app) as server:
        result = run_remotely(server.url, "unlist acme/clock")
    assert failure(result) == (
        f"{server.url} needs widget-catalog 99.1.0 or newer, but this is {__version__}. Install a "
        "newer release."
    )
    assert server.responses == [("/api/widgets/cli-version", 200)]


@pytest.mark.parametrize("line", ["delete acme/clock --yes", "serve", "token list", "export"])
def test_other_commands_work_on_the_machine_of_the_catalog_only(line: str) -> None:
    result = run_remotely("https://widgets.example", line)
    assert result.exit_code == 2
    assert f"{line.split()[0]} does not support --server." in result.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["login"], "Specify the service with --server URL."),
        (["logout"], "Specify the service with --server URL."),
        (["whoami"], "Specify the service with --server URL."),
        (["--ca", "new.js", "list"], "new.js is not a PEM file with"),
        (["--server", "https://w.example", "--database", "a.db", "log"], "Use either --server or"),
        (["--server", "https://w.example", "--ca", "none.pem", "log"], "'none.pem' does not exist"),
        (
            ["log", "--server", "https://w.example", "--ca", "new.js"],
            "new.js is not a PEM file with",
        ),
    ],
)
def test_contradicting_options_are_refused(arguments: list[str], message: str) -> None:
    result = run_program(*arguments)
    assert (result.exit_code, message in result.stderr) == (2, True)


@pytest.mark.parametrize("line", ["login --help", "--server https://w.example gc --help"])
def test_help_needs_no_valid_combination_of_options(line: str) -> None:
    result = run_program(*line.split())
    assert (result.exit_code, result.stdout.startswith("Usage: ")) == (0, True)


class FaultyService:
    """A service whose next responses are prepared: a status with an object, or no response."""

    def __init__(self) -> None:
        # The response to the first request, which asks for the minimum version.
        self.minimum: tuple[int, Json] = (200, {"minimumVersion": "1.0.0"})
        self.prepared: list[tuple[int, Json] | None] = []
        self.headers: dict[str, str] = {}
        self.requests: list[tuple[str, str, bytes]] = []
        self.connections = 0
        faulty = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def setup(self) -> None:
                faulty.connections += 1
                super().setup()

            def respond(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                prepared: tuple[int, Json] | None = faulty.minimum
                if self.path != "/api/widgets/cli-version":
                    faulty.requests.append((self.command, self.path, body))
                    prepared = faulty.prepared.pop(0)
                if prepared is None:
                    self.close_connection = True
                    return
                status, content = prepared
                self.send_response(status)
                text = json.dumps(content).encode() if content else b"<html>"
                self.send_header("Content-Length", str(len(text)))
                for name, value in faulty.headers.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(text)

            do_GET = do_PUT = do_POST = do_PATCH = respond  # noqa: N815

            def log_message(self, *arguments: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, args=(0.01,)).start()


@contextmanager
def running_service() -> Iterator[FaultyService]:
    running = FaultyService()
    try:
        yield running
    finally:
        running.server.shutdown()
        running.server.server_close()


@pytest.fixture(autouse=True)
def no_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no retry wait."""
    monkeypatch.setattr("catalog.remote.service.READ_WAITS", (0, 0, 0))
    monkeypatch.setattr("catalog.remote.service.CHANGE_WAITS", (0, 0))


@pytest.fixture
def faulty(token: str) -> Iterator[FaultyService]:
    with running_service() as running:
        yield running


PUBLISHED = {
    "version": "acme/new@1.0.0",
    "published": True,
    "stored": True,
    "warnings": [],
    "isUnlisted": False,
    "isOfficialIgnored": False,
    "previousLatestVersion": None,
    "latestVersion": "1.0.0",
    "document": None,
}


FAULTS = {
    "did not respond": None,
    "responded 502": (502, {}),
    "responded 503": (503, {"error": "Busy."}),
    "responded 504": (504, {}),
}


@pytest.mark.parametrize(("problem", "fault"), FAULTS.items(), ids=FAULTS)
def test_a_request_that_fails_for_now_is_repeated_with_the_same_bytes(
    faulty: FaultyService, problem: str, fault: tuple[int, Json] | None
) -> None:
    faulty.prepared = [fault, fault, (201, PUBLISHED), fault, (200, {"changed": True})]
    result = run_remotely(faulty.url, "publish new.json new.js")
    assert result.stderr.splitlines()[:2] == [
        f"{faulty.url} {problem}; retrying for 0 seconds.",
        "Published acme/new@1.0.0.",
    ]
    assert run_remotely(faulty.url, "unlist acme/clock").exit_code == 0
    bodies = [(method, body) for method, _, body in faulty.requests]
    assert bodies == [bodies[0]] * 3 + [bodies[3]] * 2
    assert b"export default 1\n" in bodies[0][1]


LASTING = {
    "none": (
        None,
        "{} did not respond, so it may have made the change; repeating the command is safe.",
    ),
    "502": ((502, {}), "{} responded 502. Try again later; repeating the command is safe."),
    "503": (
        (503, {"error": "The database\nis busy."}),
        r"The database\nis busy. Try again later; repeating the command is safe.",
    ),
}


@pytest.mark.parametrize(("fault", "message"), LASTING.values(), ids=LASTING)
def test_a_fault_that_lasts_is_reported_with_what_to_do(
    faulty: FaultyService, fault: tuple[int, Json] | None, message: str
) -> None:
    faulty.prepared = [fault] * 3
    result = run_remotely(faulty.url, "yank acme/clock@1.0.0")
    assert failure(result) == message.format(faulty.url)
    assert len(faulty.requests) == 3


def test_a_redirect_is_not_followed(faulty: FaultyService) -> None:
    faulty.prepared = [(301, {})]
    faulty.headers = {"Location": "https://elsewhere.example/"}
    assert failure(run_remotely(faulty.url, "unlist acme/clock")) == (
        f"{faulty.url} responded 301 and redirects to 'https://elsewhere.example/'."
    )


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (401, "it asks for a user name and password"),
        (403, "it does not allow this request from this machine"),
        (413, "the body is larger than the proxy allows"),
    ],
)
def test_a_refusal_that_the_service_would_explain_is_that_of_a_proxy(
    faulty: FaultyService, status: int, reason: str
) -> None:
    faulty.prepared = [(status, {})]
    assert failure(run_remotely(faulty.url, "publish new.json new.js")) == (
        f"The proxy at {faulty.url} refused the request ({status}): {reason}."
    )


def test_a_first_response_that_is_an_error_or_a_redirect_is_reported(
    faulty: FaultyService,
) -> None:
    faulty.minimum = (500, {"error": "Internal server error."})
    assert failure(run_remotely(faulty.url, "unlist acme/clock")) == "Internal server error."
    faulty.minimum, faulty.headers = (308, {}), {"Location": "https://elsewhere.example/"}
    assert failure(run_remotely(faulty.url, "unlist acme/clock")) == (
        f"{faulty.url} responded 308 and redirects to 'https://elsewhere.example/'."
    )


# An entry of the audit log, without its id.
ENTRY: Json = {
    **dict.fromkeys(("at", "kind", "actor", "action"), "x"),
    **dict.fromkeys(("scope", "name", "version", "before", "after")),
}


def test_pages_that_repeat_themselves_end(faulty: FaultyService) -> None:
    faulty.prepared = [(200, {"entries": [{**ENTRY, "id": 7}]})] * 2
    assert failure(run_remotely(faulty.url, "log")).startswith(
        f"The response from {faulty.url} repeats a page;"
    )
    widget = {"scope": "acme", "name": "clock", "displayName": "Clock", "description": None}
    widget |= {"latestVersion": None, "downloadCount": None, "isOfficial": None}
    faulty.prepared = [(200, {"widgets": [widget], "total": 10**9})] * 2
    assert run_remotely(faulty.url, "list").stderr == "1 widget.\n"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("list", "{} has more than 3 pages of widgets; use --scope."),
        ("log", "{} has more than 3 pages of entries; use --limit or --since."),
        ("list clock", "{} has more than 3 pages of widgets; use --scope."),
        # Pages of the list are read for the name that may be meant.
        ("show acme/none", "{} has more than 3 pages of widgets; use --scope."),
    ],
)
def test_pages_without_end_are_not_followed(
    faulty: FaultyService, monkeypatch: pytest.MonkeyPatch, line: str, message: str
) -> None:
    monkeypatch.setattr("catalog.remote.remote_catalog.MAX_PAGES", 3)
    fields = {"scope": "acme", "displayName": "Clock", "description": None}
    fields |= {"latestVersion": None, "downloadCount": None, "isOfficial": None}
    pages: list[Json] = [
        {
            "entries": [{**ENTRY, "id": 10**6 - number}],
            "widgets": [{**fields, "name": f"clock-{number}"}],
            "total": 10**9,
        }
        for number in range(9)
    ]
    missing = [(404, {"error": "There is no widget acme/none."})] if "show" in line else []
    faulty.prepared = [*missing, *((200, page) for page in pages)]
    assert failure(run_remotely(faulty.url, line)) == message.format(faulty.url)
    assert len(faulty.requests) == 3 + len(missing)


def test_the_responses_to_a_command_have_a_limit_in_total(
    faulty: FaultyService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("catalog.remote.service.MAX_TOTAL_BYTES", 1000)
    pages = [{"entries": [{**ENTRY, "id": number, "at": "x" * 400}]} for number in (9, 8, 7)]
    faulty.prepared = [(200, page) for page in pages]
    assert failure(run_remotely(faulty.url, "log")) == (
        f"{faulty.url} sent more than 1000 bytes in total."
    )


@pytest.mark.parametrize(
    "value",
    [
        "Mon, 01 Jan 999999999999 00:00:00 GMT",
        "Mon, 01 Jan 10000 00:00:00 GMT",
        "9" * 5000,
        "-1",
        "soon",
    ],
)
def test_an_invalid_time_to_retry_is_ignored(faulty: FaultyService, value: str) -> None:
    faulty.prepared = [(503, {"error": "Busy."}), (200, {"changed": True})]
    faulty.headers = {"Retry-After": value}
    result = run_remotely(faulty.url, "unlist acme/clock")
    assert (result.exit_code, result.stderr.splitlines()[-1]) == (0, "acme/clock is unlisted.")


EVIL = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202e\nForged"
SHOWN = r"\x1b]0;owned\x07\x1b[2J\x9b31m\u202e\nForged"
SESSION = {"token": EVIL, "scopes": [EVIL], "permissions": [EVIL], "expiresAt": EVIL}
EVIL_WIDGET = {
    **dict.fromkeys(("scope", "name", "displayName", "description", "icon", "createdAt"), EVIL),
    **{"downloadCount": 1, "isOfficial": None, "latestVersion": None},
}
CHANGED = {
    "versions": [{"version": f"acme/clock@{EVIL}", "changed": True, "already": False}],
    "previousLatestVersion": None,
    "latestVersion": EVIL,
}
# Each command with the responses of a hostile service.
HOSTILE: dict[str, list[Json]] = {
    "publish new.json new.js": [{**PUBLISHED, "version": EVIL, "warnings": [EVIL]}],
    "publish new.json new.js --dry-run": [{**PUBLISHED, "document": {EVIL: EVIL}}],
    "yank acme/clock@1.0.0": [CHANGED],
    "deprecate acme/clock@1.0.0 --message Old": [CHANGED],
    "whoami": [SESSION],
    "whoami --json": [SESSION],
    "list": [{"widgets": [EVIL_WIDGET], "total": 1}],
    "list --json": [{"widgets": [EVIL_WIDGET], "total": 1}],
    "show acme/clock": [
        {"widget": EVIL_WIDGET, "versions": []},
        {"homepage": EVIL},
        {"versions": [], "days": []},
    ],
    "log": [
        {
            "entries": [
                {
                    **dict.fromkeys(("at", "kind", "actor", "action", "scope", "name"), EVIL),
                    **{"id": 1, "version": EVIL, "before": {EVIL: EVIL}, "after": {}},
                }
            ]
        },
        {"entries": []},
    ],
    "unlist acme/clock": [{"error": EVIL}],
    "health": [{"status": EVIL, "error": EVIL}],
}


@pytest.mark.parametrize(("line", "responses"), HOSTILE.items(), ids=HOSTILE)
def test_no_text_of_a_service_controls_the_terminal(
    faulty: FaultyService, line: str, responses: list[Json]
) -> None:
    faulty.prepared = [(400 if "error" in each else 200, each) for each in responses]
    result = run_remotely(faulty.url, line)
    assert isinstance(result.exception, SystemExit | None), result.exception
    assert "owned" in result.output
    assert [each for each in result.output if not each.isprintable() and each != "\n"] == []
    assert not any(text.startswith("Forged") for text in result.output.splitlines())


def test_a_login_shows_the_name_of_the_token_without_control_characters(
    app: Flask, faulty: FaultyService
) -> None:
    faulty.prepared = [(200, SESSION)]
    result = run_remotely(faulty.url, "login", stdin=create_token(app, "other"))
    assert f"with the token {SHOWN}, valid until {SHOWN}." in result.stderr


def test_a_response_that_is_not_json_is_reported(faulty: FaultyService) -> None:
    faulty.prepared = [(200, {})]
    assert failure(run_remotely(faulty.url, "unlist acme/clock")) == (
        f"The response from {faulty.url} has no changed; "
        "a proxy or another service may have sent it."
    )


def test_requests_share_a_connection(faulty: FaultyService) -> None:
    faulty.prepared = [(201, PUBLISHED)]
    assert run_remotely(faulty.url, "publish new.json new.js").exit_code == 0
    assert faulty.connections == 1


@pytest.mark.usefixtures("token")
def test_a_service_that_is_no_catalog_is_named(app: Flask, server: AppServer) -> None:
    url = f"{server.url}/elsewhere"
    assert failure(run_remotely(url, "unlist acme/clock")) == (f"{url} is not a widget catalog.")


@pytest.mark.usefixtures("token")
def test_a_service_that_cannot_be_reached_is_named() -> None:
    url = f"http://127.0.0.1:{free_port()}"
    result = run_remotely(url, "unlist acme/clock")
    assert result.stderr.splitlines() == [
        f"{url} did not respond; retrying for 0 seconds.",
        f"Error: {url} cannot be reached: Connection refused; is the service running?",
    ]


def test_a_port_that_does_not_speak_tls_is_named(faulty: FaultyService) -> None:
    url = faulty.url.replace("http:", "https:")
    assert failure(run_remotely(url, "unlist acme/clock")) == (
        f"{url} failed the TLS handshake; this may not be its https port."
    )


def test_a_bundle_url_of_the_environment_is_for_the_service_only(
    app: Flask, server: AppServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CATALOG_TOKEN", create_token(app))
    monkeypatch.setenv("CATALOG_BUNDLE_URL", "https://cdn.example.com/here.js")
    assert run_remotely(server.url, "publish new.json new.js").exit_code == 0
    assert "https://cdn.example.com/here.js" not in exported(app).decode()


@pytest.fixture(scope="module")
def origin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Origin]]:
    """A service for proxies, and its database."""
    database = create_catalog(tmp_path_factory.mktemp("origin") / "origin.db", *CATALOG)
    with reverse_proxies.serve(database) as running:
        yield database, running


@pytest.mark.parametrize(
    "name", ["widget-catalog", "widget-catalog-prefix", "widget-catalog-cache", "Caddyfile"]
)
def test_an_author_publishes_through_a_proxy_with_tls_until_the_token_is_revoked(
    origin: tuple[Path, Origin], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    database, service = origin
    widget = f"acme/{name.lower()}"

    def run_locally(line: str) -> Result:
        return run_program("--database", str(database), *shlex.split(line))

    token = run_locally(f"token create {name} --scope acme --can publish,yank").stdout
    # More than nginx lets pass elsewhere.
    Path("large.js").write_bytes(b"export default 1\n" * 100_000)
    proxy_of = reverse_proxies.caddy if name.startswith("Caddy") else reverse_proxies.nginx
    with proxy_of(tmp_path, service.port, name) as proxy:
        url = f"https://127.0.0.1:{proxy.port}{proxy.prefix}"

        def run_here(line: str) -> Result:
            return run_program(*shlex.split(line))

        options = f"--server {url} --ca {proxy.certificate}"
        assert run_program(*f"login {options}".split(), stdin=token).exit_code == 0
        # The login remembers the file of certificates.
        assert run_here(f"yank acme/clock@2.0.0 --server {url}").exit_code == 0
        monkeypatch.setenv("CATALOG_TOKEN", token.strip())
        monkeypatch.setenv("CATALOG_SERVER", url)
        monkeypatch.setenv("CATALOG_CA", str(proxy.certificate))
        for number in ("1.0.0", "1.1.0", "2.0.0"):
            Path("m.json").write_text(json.dumps(manifest(widget, number)), encoding="utf-8")
            assert run_here("publish m.json large.js").exit_code == 0
        yanked = run_here(f"yank {widget}@'>=1.1 <2 || 2.x' --reason 'Größer / kleiner'")
        assert yanked.stderr.splitlines() == [
            f"Yanked {widget}@2.0.0.",
            f"Yanked {widget}@1.1.0.",
            f"The latest version of {widget} is now 1.0.0.",
        ]
        Path("m.json").write_text(json.dumps(manifest("ops/clock")), encoding="utf-8")
        refused = failure(run_here("publish m.json large.js"))
        assert refused == f"The token {name} is not valid for the scope 'ops'."
        assert run_locally(f"token revoke {name}").exit_code == 0
        assert f"{url} refused the token" in failure(run_here(f"unyank {widget}@2.0.0"))
    actions = re.findall(rf"token {name}  (\w+)  ", run_locally(f"log {widget}").stdout)
    assert actions == ["publish"] * 3 + ["yank"] * 2


def test_a_version_that_is_published_elsewhere_moves_to_the_service_only_with_store(
    app: Flask, server: AppServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CATALOG_TOKEN", create_token(app))
    url = "https://cdn.example.com/new.js"
    assert run_remotely(server.url, f"publish new.json new.js --bundle-url {url}").exit_code == 0

    def bundle_urls() -> set[str]:
        scope, name = (json.loads(Path("new.json").read_text())[key] for key in ("scope", "name"))
        detail = app.test_client().get(f"/api/v1/widgets/{scope}/{name}").get_json()
        return {version["bundleUrl"] for version in detail["versions"]}

    assert url in bundle_urls()
    again = run_remotely(server.url, "publish new.json new.js")
    assert (again.exit_code, "is stored" in again.stderr, url in bundle_urls()) == (0, False, True)
    stored = run_remotely(server.url, "publish new.json new.js --store")
    assert (stored.exit_code, "is stored" in stored.stderr) == (0, True)
    assert url not in bundle_urls()


UNEXPECTED = {
    "whoami": {"token": "ci", "scopes": None, "permissions": [], "expiresAt": None},
    "list": {"widgets": [{"scope": "acme"}], "total": 1},
    "yank acme/clock@1.0.0": {"versions": "all"},
    "log": {"entries": [7]},
    "publish new.json new.js": {"version": 1},
}


@pytest.mark.parametrize(("line", "response"), UNEXPECTED.items(), ids=UNEXPECTED)
def test_a_response_of_another_shape_is_reported(
    faulty: FaultyService, line: str, response: Json
) -> None:
    faulty.prepared = [(200, response)]
    message = failure(run_remotely(faulty.url, line))
    assert re.fullmatch(
        rf"The response from {faulty.url} (has no \w+|is not from a widget catalog); a proxy or "
        r"another service may have sent it\.",
        message,
    )


def test_an_error_of_the_command_itself_is_not_taken_for_one_of_the_service(
    server: AppServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("click.echo", lambda *_, **__: len(7))  # type: ignore[arg-type]
    result = run_remotely(server.url, "list")
    assert isinstance(result.exception, TypeError)
