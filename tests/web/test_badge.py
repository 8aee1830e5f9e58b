"""badge.svg: the version of a widget as a picture."""

import re
from collections.abc import Callable
from xml.etree import ElementTree

import pytest
from builders import document, version
from flask.testing import FlaskClient

from catalog.web.badge import AVAILABLE, DEPRECATED, LABEL_COLOUR, UNAVAILABLE

WEATHER = "/widgets/acme/weather/badge.svg"
SVG = "{http://www.w3.org/2000/svg}"
ClientWith = Callable[..., FlaskClient]


def read(client: FlaskClient, path: str) -> ElementTree.Element:
    response = client.get(path)
    assert response.status_code == 200
    assert response.headers["Content-Type"] == "image/svg+xml; charset=utf-8"
    # The test's own server sent it.
    return ElementTree.fromstring(response.text)  # noqa: S314


def texts(root: ElementTree.Element) -> list[str]:
    return [node.text or "" for node in root.iter(f"{SVG}text")]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", ["acme/weather", "3.1.0"]),
        ("?compatSdk=1.4.0", ["acme/weather for SDK 1.4.0", "2.6.0"]),
        ("?compatSdk=1.4", ["acme/weather for SDK 1.4.0", "2.6.0"]),
        ("?compatSdk=9.0.0", ["acme/weather for SDK 9.0.0", "none"]),
    ],
)
def test_badge_shows_the_latest_version(demo: FlaskClient, query: str, expected: list[str]) -> None:
    root = read(demo, WEATHER + query)
    assert texts(root) == expected
    assert root.attrib["aria-label"] == root.findtext(f"{SVG}title") == ": ".join(expected)


def test_badge_says_that_the_version_is_deprecated(client_with: ClientWith) -> None:
    client = client_with(document("acme/clock", version(deprecationMessage="Old.")))
    assert texts(read(client, "/widgets/acme/clock/badge.svg"))[1] == "1.0.0 (deprecated)"


def test_badge_of_a_widget_without_available_version_says_none(client_with: ClientWith) -> None:
    client = client_with(document("acme/clock", version(yanked=True)))
    assert texts(read(client, "/widgets/acme/clock/badge.svg"))[1] == "none"


def test_badge_of_an_unlisted_widget_is_404(client_with: ClientWith) -> None:
    client = client_with(document("acme/secret", version(), listed=False))
    for name in ("secret", "absent"):
        assert client.get(f"/widgets/acme/{name}/badge.svg").status_code == 404


def test_invalid_sdk_is_400(demo: FlaskClient) -> None:
    response = demo.get(f"{WEATHER}?compatSdk=one")
    assert response.status_code == 400
    assert "max-age" not in response.headers["Cache-Control"]


def test_badge_is_cached_for_five_minutes_and_then_revalidated(demo: FlaskClient) -> None:
    response = demo.get(WEATHER)
    assert response.headers["Cache-Control"] == "max-age=300"
    unchanged = demo.get(WEATHER, headers={"If-None-Match": response.headers["ETag"]})
    assert unchanged.status_code == 304
    assert unchanged.headers["Cache-Control"] == "max-age=300"


def test_names_are_escaped_and_long_ones_shortened(client_with: ClientWith) -> None:
    hostile = "<script>\"'&"
    client = client_with(document(f"{hostile}/{'天' * 200}", version("1.0.0-" + "a" * 200)))
    root = read(client, f"/widgets/{hostile}/{'天' * 200}/badge.svg")
    label, value = texts(root)
    assert label.startswith(hostile)
    assert len(label) == 61
    assert len(value) == 41
    assert {node.tag.removeprefix(SVG) for node in root.iter()} == {
        *("svg", "title", "rect", "path", "g", "text")
    }


def test_each_text_fits_its_half(demo: FlaskClient) -> None:
    for query in ("", "?compatSdk=1.4.0"):
        root = read(demo, WEATHER + query)
        width = float(root.attrib["viewBox"].split()[2])
        (path,) = root.iter(f"{SVG}path")
        middle = float(re.findall(r"\d+", path.attrib["d"])[0])
        label, value = root.iter(f"{SVG}text")
        for node, start, end in ((label, 0, middle), (value, middle, width)):
            half = float(node.attrib["textLength"]) / 2
            assert start < float(node.attrib["x"]) - half
            assert float(node.attrib["x"]) + half < end


def luminance(colour: str) -> float:
    channels = [int(colour[n : n + 2], 16) / 255 for n in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return sum(f * c for f, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


@pytest.mark.parametrize("colour", [LABEL_COLOUR, AVAILABLE, DEPRECATED, UNAVAILABLE])
def test_white_text_has_enough_contrast(colour: str) -> None:
    assert 1.05 / (luminance(colour) + 0.05) >= 4.5
