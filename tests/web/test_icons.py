"""Icons: the built-in set, the operator's sets, rejected bodies, and letter avatars."""

import json
import logging
import re
from collections.abc import Callable
from pathlib import Path
from xml.etree.ElementTree import Element, fromstring

import pytest
from conftest import DEMO

from catalog.web.icons import BUILT_IN_ICONS, find_icon, icon_svg, letter_avatar

PATH = '<path d="M0 0h4v4z"/>'
Icons = Callable[..., str]


@pytest.fixture
def directory(tmp_path: Path) -> Icons:
    """Return a function that writes an icon set with the prefix "own" and returns its directory."""

    def make(text: str | None = None, **icons: object) -> str:
        content = json.dumps({"prefix": "own", **icons}) if text is None else text
        (tmp_path / "own.json").write_text(content, encoding="utf-8")
        return str(tmp_path)

    return make


def parse_svg(svg: str | None) -> Element:
    return fromstring(svg or "")  # noqa: S314, our own output


def view_box(svg: str | None) -> str:
    return parse_svg(svg).attrib["viewBox"]


def test_built_in_set_has_exactly_the_icons_of_the_demo_catalog() -> None:
    documents = map(json.loads, DEMO.read_text(encoding="utf-8").splitlines())
    names = {
        each["icon"].removeprefix("mdi:")
        for document in documents
        for each in (document["widget"], *document["versions"])
        if each["icon"] and each["icon"].startswith("mdi:")
    }
    icons = json.loads((BUILT_IN_ICONS / "mdi.json").read_text(encoding="utf-8"))["icons"]
    assert set(icons) == names
    for name in names:
        assert parse_svg(find_icon(f"mdi:{name}", "")).tag == "svg"


def test_built_in_set_states_its_author_and_licence() -> None:
    info = json.loads((BUILT_IN_ICONS / "mdi.json").read_text(encoding="utf-8"))["info"]
    assert info["license"]["spdx"] == "Apache-2.0"
    assert info["author"]["name"] == "Pictogrammers"
    assert "Apache" in (BUILT_IN_ICONS / "LICENSE").read_text(encoding="utf-8")


def test_icon_has_the_view_box_of_its_set_or_its_own(directory: Icons) -> None:
    path = directory(
        icons={"plain": {"body": PATH}, "large": {"body": PATH, "left": 1, "top": 2, "width": 32}},
        width=20,
        height=24,
    )
    assert view_box(find_icon("own:plain", path)) == "0 0 20 24"
    assert view_box(find_icon("own:large", path)) == "1 2 32 24"


def test_alias_is_its_parent_rotated_and_flipped(directory: Icons) -> None:
    path = directory(
        icons={"a": {"body": PATH, "width": 10, "height": 20}},
        aliases={"b": {"parent": "a", "rotate": 1}, "c": {"parent": "b", "hFlip": True}},
    )
    rotated, both = find_icon("own:b", path), find_icon("own:c", path)
    assert view_box(rotated) == view_box(both) == "-5 5 20 10"
    assert '<g transform="rotate(90 5 10)"><path' in (rotated or "")
    assert "rotate(90 5 10)translate(5 10)scale(-1 1)translate(-5 -10)" in (both or "")


def test_aliases_in_a_loop_are_no_icon(directory: Icons) -> None:
    path = directory(icons={}, aliases={"a": {"parent": "b"}, "b": {"parent": "a"}})
    assert find_icon("own:a", path) is None


def test_operators_set_takes_precedence_over_the_built_in_one(tmp_path: Path) -> None:
    own = {"prefix": "mdi", "icons": {"clock": {"body": '<path d="M9 9"/>'}}}
    (tmp_path / "mdi.json").write_text(json.dumps(own), encoding="utf-8")
    assert 'd="M9 9"' in (find_icon("mdi:clock", str(tmp_path)) or "")
    assert find_icon("mdi:train", str(tmp_path)) == find_icon("mdi:train", "")


@pytest.mark.parametrize(
    "icon",
    [
        *("mdi:none", "none:clock", "clock", "", ":", "mdi:", "mdi:clock:x", "MDI:clock"),
        *("../iconify/mdi:clock", "mdi:clock\n", "/etc/passwd", "天気:天気"),
    ],
)
def test_unknown_icon_is_none(icon: str) -> None:
    assert find_icon(icon, "") is None
    assert find_icon(icon, str(BUILT_IN_ICONS)) is None


REJECTED_BODIES = {
    "script": "<script>alert(1)</script>",
    "event handler": '<path onload="alert(1)" d="M0 0"/>',
    "event handler in capitals": '<path ONCLICK="alert(1)" d="M0 0"/>',
    "link": '<a href="https://example.com"><path d="M0 0"/></a>',
    "script link": '<a href="javascript:alert(1)"><path d="M0 0"/></a>',
    "link by xlink": '<use xlink:href="#x"/>',
    "use": '<use href="https://example.com/x.svg#x"/>',
    "image": '<image href="https://example.com/x.png"/>',
    "foreign object": "<foreignObject><b>x</b></foreignObject>",
    "style": '<path style="fill:red" d="M0 0"/>',
    "style sheet": "<style>path { fill: red }</style>",
    "class": '<path class="skip" d="M0 0"/>',
    "animation": '<set attributeName="href" to="javascript:alert(1)"/>',
    "URL in a fill": '<path fill="url(https://example.com/x)" d="M0 0"/>',
    "escaped URL": r'<path fill="u\72l(https://example.com/x)" d="M0 0"/>',
    "URL after a local reference": '<path fill="url(#a) url(//example.com)" d="M0 0"/>',
    "entity": '<!DOCTYPE x [<!ENTITY e "x">]><path d="&e;"/>',
    "comment": "<!-- x --><path/>",
    "processing instruction": '<?xml-stylesheet href="x"?><path/>',
    "unbalanced end tag": "</svg><script>alert(1)</script><svg>",
    "other namespace": '<path xmlns="http://www.w3.org/1999/xhtml"/>',
    "not XML": "<path",
    "not text": 7,
    "lone surrogate": '<path d="\ud800"/>',
    "nested too deep": "<g>" * 5000 + "</g>" * 5000,
}


@pytest.mark.parametrize("body", REJECTED_BODIES.values(), ids=REJECTED_BODIES)
def test_body_that_does_more_than_draw_is_rejected(
    directory: Icons, body: object, caplog: pytest.LogCaptureFixture
) -> None:
    path = directory(icons={"bad": {"body": body}, "good": {"body": PATH}})
    assert find_icon("own:bad", path) is None
    assert find_icon("own:good", path) is not None
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert record.getMessage().startswith("The icon own:bad is not shown: its body ")
    assert "\n" not in record.getMessage()


def test_ids_in_an_icon_are_unique_in_a_page(directory: Icons) -> None:
    body = (
        '<defs><linearGradient id="a"><stop stop-color="rgb(1, 2, 3)"/></linearGradient></defs>'
        '<path fill="url(#a)" transform="rotate(45)"/>'
    )
    path = directory(icons={"one": {"body": body}, "two": {"body": body}})
    for name in ("one", "two"):
        svg = find_icon(f"own:{name}", path) or ""
        assert re.findall('id="(.*?)"', svg) == [f"own-{name}-a"]
        assert f'fill="url(#own-{name}-a)"' in svg


INVALID_SETS = {
    "not JSON": "{",
    "a list": "[]",
    "icons that are a list": '{"icons": []}',
    "an icon that is text": '{"icons": {"a": "x"}}',
    "a width that is text": '{"icons": {"a": {"body": "", "width": "x\\"><script>"}}}',
    "nested too deep": "[" * 100_000,
}


@pytest.mark.parametrize("text", INVALID_SETS.values(), ids=INVALID_SETS)
def test_invalid_set_has_no_icons(directory: Icons, text: str) -> None:
    assert find_icon("own:a", directory(text)) is None


@pytest.mark.parametrize(
    ("name", "letter"),
    [
        ("Weather", "W"),
        ("🍅 focus", "F"),
        ("天気予報", "天"),
        ("مواقيت", "م"),
        ("ßen", "S"),
        ("E\u0301te", "É"),
        ("3 days", "3"),
        ("<b>", "B"),
        ("<&>", "?"),
    ],
)
def test_avatar_has_the_first_letter_of_the_name(name: str, letter: str) -> None:
    (text,) = parse_svg(letter_avatar(name, "acme/x")).iter("text")
    assert text.text == letter


def test_widget_without_a_known_icon_has_the_avatar() -> None:
    for icon in (None, "", "custom:sparkle", "x" * 100_000 + ":a"):
        assert icon_svg(icon, "", name="Scenes", seed="a/b") == letter_avatar("Scenes", "a/b")
    assert icon_svg("mdi:train", "", name="T", seed="a/b") == find_icon("mdi:train", "")
