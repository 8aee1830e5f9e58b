"""deprecate --replaced-by: the message of the API, and the link of the pages."""

from collections.abc import Callable

import pytest
from builders import document, version
from conftest import error_message, run_line
from flask import Flask

OLD = document("acme/clock", version("1.0.0"), version("2.0.0"))
NEW = document("new scope/<clock>", version())
LINK = '<a href="/widgets/new%20scope/%3Cclock%3E">new scope/&lt;clock&gt;</a>.'


@pytest.fixture
def app(app_with: Callable[..., Flask]) -> Flask:
    return app_with(OLD, NEW)


@pytest.mark.parametrize(
    ("arguments", "before"),
    [
        ("acme/clock@*", "Replaced by "),
        ("acme/clock@* --message 'Too slow.'", "Too slow. Replaced by "),
        ("acme/clock@* --message 'Replaced by us.'", "Replaced by us. Replaced by "),
    ],
)
def test_the_name_is_text_in_the_api_and_a_link_on_pages(
    app: Flask, arguments: str, before: str
) -> None:
    result = run_line(app, f"deprecate {arguments} --replaced-by 'new scope/<clock>'")
    assert (result.exit_code, result.stderr.count("Deprecated acme/clock@")) == (0, 2)
    client = app.test_client()
    detail = client.get("/api/v1/widgets/acme/clock").json
    messages = {each["deprecationMessage"] for each in detail["versions"]}
    assert messages == {f"{before}new scope/<clock>."}
    for path in (
        "/widgets/acme/clock",
        "/widgets/acme/clock/1.0.0",
        "/updates?compatSdk=1.0.0&installed=acme/clock@1.0.0",
    ):
        page = client.get(path).text.replace("?compatSdk=1.0.0", "")
        assert before + LINK in page, path


@pytest.mark.parametrize("message", ["Replaced by acme.", "Replaced by a/b/c.", "Not Replaced by"])
def test_another_message_is_text_only(app: Flask, message: str) -> None:
    assert run_line(app, f"deprecate acme/clock@1.0.0 --message '{message}'").exit_code == 0
    page = app.test_client().get("/widgets/acme/clock/1.0.0").text
    assert f"{message}</span>" in page


def test_a_widget_that_does_not_exist_replaces_nothing(app: Flask) -> None:
    result = run_line(app, "deprecate acme/clock@1.0.0 --replaced-by acme/klock")
    assert error_message(result) == "There is no widget acme/klock. Did you mean acme/clock?"
    assert run_line(app, "deprecate --replaced-by acme/clock").exit_code == 2
