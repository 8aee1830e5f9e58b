"""widget-catalog outdated: the updates of installed versions, as a table."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from builders import document, version
from click.testing import Result
from conftest import Server, create_catalog, error_message, run
from flask import Flask
from upstreams import FakeUpstream, body

AppWith = Callable[..., Flask]
CLOCK = document(
    "acme/clock",
    version("1.0.0", publishedAt="2025-01-01T00:00:00Z"),
    version("1.1.0", publishedAt="2025-02-01T00:00:00Z"),
    version("2.0.0", publishedAt="2025-03-01T00:00:00Z", yanked=True, yankedReason="It stops."),
)
INSTALLED = """
# Dashboard in the hall
acme/clock@1.0.0
acme/clock@1.1.0

acme/clock@2.0.0
acme/clock@1.0.0
acme/notes@1.0.0
acme/clock@9.0.0
"""
TABLE = """\
WIDGET      INSTALLED  STATUS       UPDATE  REASON
acme/clock  1.0.0      update       1.1.0   1.1.0 is the newest version above 1.0.0 that runs on \
SDK 1.4.0; 2.0.0 was yanked: It stops.
acme/clock  2.0.0      yanked       1.1.0   2.0.0 was yanked: It stops; 1.1.0 is the highest \
version below 2.0.0 that runs on SDK 1.4.0.
acme/notes  1.0.0      unavailable  none    There is no widget 'acme/notes'.
acme/clock  9.0.0      unknown      none    There is no version 'acme/clock@9.0.0'.
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "installed.txt"
    path.write_text(INSTALLED, encoding="utf-8")
    return path


def test_table_has_every_version_that_is_not_current(app_with: AppWith, file: Path) -> None:
    result = run(app_with(CLOCK), "outdated", file, "--sdk", "1.4.0")
    assert (result.exit_code, result.stdout) == (0, TABLE)
    assert result.stderr == "2 updates for 5 installed versions.\n"


@pytest.mark.parametrize(
    ("before", "update"),
    [
        ("2025-02-01", None),
        ("2025-02-02", "1.1.0"),
        ("2025-02-01T00:00:00.001Z", "1.1.0"),
        ("1h", "1.1.0"),
        # More than a hundred years are not an age; a hundred are before every version.
        ("36500d", None),
    ],
)
def test_before_leaves_out_versions_that_are_too_new(
    app_with: AppWith, before: str, update: str | None
) -> None:
    options = ("--sdk", "1.4.0", "--json", "--before", before)
    result = run(app_with(CLOCK), "outdated", "-", *options, stdin="acme/clock@1.0.0")
    assert result.exit_code == 0, result.stderr
    (item,) = json.loads(result.stdout)
    assert (item["update"] or {"version": None})["version"] == update
    assert ("1.1.0 is too new" in item["reason"]) == (update is None)


@pytest.mark.parametrize("before", ["", "7", "d", "36700d", "2025-13-01", "yesterday"])
def test_before_that_is_neither_an_age_nor_a_date_is_wrong_usage(
    app_with: AppWith, before: str
) -> None:
    result = run(app_with(CLOCK), "outdated", "-", "--sdk", "1.4.0", "--before", before, stdin="")
    assert result.exit_code == 2
    assert "an age such as 7d or 12h, or a date such as 2026-11-30" in result.stderr


def test_before_is_for_a_service_too(mirror_app: Flask, tmp_path: Path) -> None:
    with Server(create_catalog(tmp_path / "served.db", CLOCK)) as server:
        options = ("--sdk", "1.4.0", "--server", server.url, "--before", "2025-02-01")
        result = run(mirror_app, "outdated", "-", *options, stdin="acme/clock@1.0.0")
    assert result.stderr == "0 updates for 1 installed version.\n"


def test_a_service_that_ignores_before_is_an_error(
    mirror_app: Flask, upstream: FakeUpstream
) -> None:
    item = {
        **{"scope": "acme", "name": "clock", "installed": "1.0.0", "status": "update"},
        **{"update": {"version": "1.1.0", "publishedAt": "2025-02-01T00:00:00.000Z"}},
        **{"yanked": False, "yankedReason": None, "deprecationMessage": None},
        "reason": "1.1.0 is newer.",
    }
    upstream.fail("/api/v1/widgets/updates", body(json.dumps({"updates": [item]}).encode()))
    options = ("--sdk", "1.4.0", "--server", upstream.url, "--before", "2025-02-01")
    result = run(mirror_app, "outdated", "-", *options, stdin="acme/clock@1.0.0")
    message = "The service ignores --before: its release is older than 1.1.0."
    assert error_message(result) == message


@pytest.mark.parametrize("sdk", ["1.4", "v1.4.0", "v1.4"])
def test_an_sdk_is_read_as_a_person_types_it(app_with: AppWith, file: Path, sdk: str) -> None:
    assert run(app_with(CLOCK), "outdated", file, "--sdk", sdk).stdout == TABLE


def test_json_is_the_updates_of_the_api(app_with: AppWith, file: Path) -> None:
    app = app_with(CLOCK)
    result = run(app, "outdated", file, "--sdk", "1.4.0", "--json")
    installed = dict.fromkeys(line for line in INSTALLED.splitlines() if "@" in line)
    query = "&".join(f"installed={each}" for each in installed)
    response = app.test_client().get(f"/api/v1/widgets/updates?compatSdk=1.4.0&{query}")
    assert (result.exit_code, result.stderr) == (0, "")
    assert json.loads(result.stdout) == json.loads(response.data)["updates"]


def test_current_versions_are_only_counted(app_with: AppWith) -> None:
    result = run(app_with(CLOCK), "outdated", "-", "--sdk", "1.4.0", stdin="acme/clock@1.1.0")
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == "0 updates for 1 installed version.\n"


def test_empty_file_has_no_updates(app_with: AppWith) -> None:
    result = run(app_with(CLOCK), "outdated", "-", "--sdk", "1.4.0", stdin="")
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == "0 updates for 0 installed versions.\n"


def test_file_may_have_more_versions_than_one_request(app_with: AppWith) -> None:
    lines = "".join(f"acme/clock@1.0.{patch}\n" for patch in range(150))
    result = run(app_with(CLOCK), "outdated", "-", "--sdk", "1.4.0", stdin=lines)
    assert result.stdout.count("\n") == 151
    assert result.stderr == "1 update for 150 installed versions.\n"


@pytest.mark.parametrize(
    "line", ["acme/clock", "clock@1.0.0", "acme/clock@1", "\udcff", "a/b/c@1.0.0"]
)
def test_invalid_line_is_an_error_with_its_number(app_with: AppWith, line: str) -> None:
    content = f"acme/clock@1.0.0\n{line}\n".encode(errors="surrogateescape")
    result = run(app_with(CLOCK), "outdated", "-", "--sdk", "1.4.0", stdin=content)
    message = error_message(result)
    assert message.startswith("<stdin>: Line 2: '")
    assert message.endswith("' is not scope/name@version, such as acme/clock@1.0.0.")


def test_a_json_list_is_read_as_the_page_reads_it(app_with: AppWith) -> None:
    versions = '{"acme/clock": "1.0.0", "acme/notes": "latest"}'
    result = run(app_with(CLOCK), "outdated", "-", "--sdk", "1.4.0", "--json", stdin=versions)
    assert [each["update"]["version"] for each in json.loads(result.stdout)] == ["1.1.0"]
    ignored = "Ignored 1 entry without an exact version, such as 'acme/notes@latest'.\n"
    assert (result.exit_code, result.stderr) == (0, ignored)


@pytest.mark.parametrize("options", [(), ("--sdk", "1.x"), ("--sdk", "1.4.0", "--server", "x")])
def test_missing_or_invalid_option_is_wrong_usage(
    app_with: AppWith, options: tuple[str, ...]
) -> None:
    assert run(app_with(CLOCK), "outdated", "-", *options, stdin="").exit_code == 2


def test_url_gives_the_same_table_without_a_local_catalog(
    mirror_app: Flask, file: Path, tmp_path: Path
) -> None:
    with Server(create_catalog(tmp_path / "served.db", CLOCK)) as server:
        result = run(mirror_app, "outdated", file, "--sdk", "1.4.0", "--server", server.url)
    assert (result.exit_code, result.stdout) == (0, TABLE)
    assert not mirror_app.extensions["database"].exists()


@pytest.mark.parametrize("content", [b"[]", b"{}", b"<html>"])
def test_response_without_updates_is_an_error(
    mirror_app: Flask, file: Path, upstream: FakeUpstream, content: bytes
) -> None:
    upstream.faults["/api/v1/widgets/updates"].append(body(content))
    result = run(mirror_app, "outdated", file, "--sdk", "1.4.0", "--server", upstream.url)
    problem = "a proxy or another service may have sent it"
    assert error_message(result) == f"The response from {upstream.url} has no updates; {problem}."


ADVISED = document(
    "acme/advised",
    version("1.0.0", publishedAt="2025-01-01T00:00:00Z", deprecationMessage="Use acme/clock."),
    version("2.0.0", publishedAt="2025-02-01T00:00:00Z", yanked=True, yankedReason="It stops."),
    version("3.0.0", publishedAt="2025-03-01T00:00:00Z", sdkVersion="^9.0.0"),
    version("2.1.0", publishedAt="2025-04-01T00:00:00Z", sdkVersion="^1.0.0"),
)


def list_installed(app: Flask, *versions: str, options: str = "") -> Result:
    text = "".join(f"{each}\n" for each in versions)
    return run(app, "outdated", "-", "--sdk", "1.0.0", *options.split(), stdin=text)


def test_the_reason_of_a_yank_is_named_also_if_there_is_an_update(app_with: AppWith) -> None:
    result = list_installed(app_with(ADVISED), "acme/advised@2.0.0")
    assert "yanked  2.1.0   2.0.0 was yanked: It stops; 2.1.0 is the newest" in result.stdout


def test_a_deprecated_version_without_an_update_is_named(app_with: AppWith) -> None:
    only = document("acme/only", version("1.0.0", deprecationMessage="Use acme/clock."))
    result = list_installed(app_with(only), "acme/only@1.0.0")
    assert result.stdout.splitlines()[1:] == [
        "acme/only  1.0.0      deprecated  none    1.0.0 is deprecated: Use acme/clock."
    ]
    assert result.stderr == "0 updates for 1 installed version.\n"


@pytest.mark.parametrize("output", ["", " --json", " --quiet"])
def test_exit_code_is_1_if_a_version_should_be_replaced(app_with: AppWith, output: str) -> None:
    app = app_with(ADVISED)
    for installed, expected in (("2.1.0", 0), ("2.0.0", 1), ("1.0.0", 1), ("7.0.0", 1)):
        path = f"acme/advised@{installed}"
        assert list_installed(app, path, options=f"--exit-code{output}").exit_code == expected
        assert list_installed(app, path, options=output).exit_code == 0
