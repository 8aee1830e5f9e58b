"""/compare: two widgets side by side."""

from collections.abc import Callable

import pytest
from builders import document, version
from flask.testing import FlaskClient
from markup import assert_page, element, elements

ClientWith = Callable[..., FlaskClient]


def test_two_widgets_are_compared(client_with: ClientWith) -> None:
    client = client_with(
        document(
            "a/one",
            version("2.0.0-rc.1", publishedAt="2025-06-01T00:00:00Z"),
            version("1.0.0", license="MIT", permissions=["network"], bundleSize=20_000),
            **{"isOfficial": True, "downloadCount": 1234},
        ),
        document("b/two", version("3.0.0", sdkVersion="^2.0.0"), downloadCount=None),
    )
    page = assert_page(client.get("/compare?with=a/one&with=b/two"), 200)
    assert element(page, "h1").text == "One and Two"
    rows = {row.text.split()[0]: row.text for row in elements(page, "tr")[1:]}
    assert rows["Made"] == "Made by a Official b"
    assert rows["Installs"] == "Installs 1,234 unknown"
    assert rows["Version"] == "Version 1.0.0 3.0.0"
    assert rows["SDKs"] == "SDKs ^1.0.0 ^2.0.0"
    assert rows["Permissions"].endswith("It uses no permissions. No network access")
    assert rows["Licence"] == "Licence MIT not stated"
    assert rows["Size"] == "Size 20 kB 1.2 kB"
    page = client.get("/compare?with=a/one&with=b/two&compatSdk=1.4").text
    assert "Version for SDK 1.4.0 1.0.0 none" in element(page, "table").text


@pytest.mark.parametrize(
    ("query", "status", "messages"),
    [
        ("", 200, []),
        ("?with=a/one", 400, ["Enter scope/name."]),
        ("?with=a/one&with=a/none", 400, ["There is no widget 'a/none'."]),
        (
            "?with=a/hidden&with=one",
            400,
            ["There is no widget 'a/hidden'.", "There is no widget 'one'."],
        ),
    ],
)
def test_form_says_which_widget_is_missing(
    client_with: ClientWith, query: str, status: int, messages: list[str]
) -> None:
    client = client_with(document("a/one", version()), document("a/hidden", listed=False))
    page = assert_page(client.get(f"/compare{query}"), status)
    assert [error.text for error in elements(page, class_="field-error")] == messages
    assert elements(page, "table") == []
