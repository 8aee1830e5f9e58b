"""/feed.atom: the newest releases as a valid Atom feed."""

import re
from collections.abc import Callable
from xml.etree import ElementTree

import feedparser
import pytest
from builders import Json, document, version
from conftest import run
from flask import Flask
from flask.testing import FlaskClient
from werkzeug.test import TestResponse

ATOM = "{http://www.w3.org/2005/Atom}"
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
ClientWith = Callable[..., FlaskClient]


def read(client: FlaskClient, query: str = "", **arguments: str) -> ElementTree.Element:
    response = client.get(f"/feed.atom{query}", **arguments)
    assert response.status_code == 200
    assert response.headers["Content-Type"] == "application/atom+xml; charset=utf-8"
    # The test's own server sent it.
    root = ElementTree.fromstring(response.text)  # noqa: S314
    assert_valid(root)
    return root


def assert_valid(root: ElementTree.Element) -> None:
    """Check what RFC 4287 requires of a feed and of its entries."""
    assert root.tag == f"{ATOM}feed"
    entries = root.findall(f"{ATOM}entry")
    for element in (root, *entries):
        for name in ("id", "title", "updated"):
            assert len(element.findall(f"{ATOM}{name}")) == 1
        assert TIME.fullmatch(element.findtext(f"{ATOM}updated", ""))
        assert re.fullmatch(r"[a-z]+:[^\s<>\"]+", element.findtext(f"{ATOM}id", ""))
    for entry in entries:
        assert entry.findtext(f"{ATOM}author/{ATOM}name")
        assert TIME.fullmatch(entry.findtext(f"{ATOM}published", ""))
        (link,) = entry.findall(f"{ATOM}link")
        assert link.attrib["rel"] == "alternate"
    assert len(set(ids(root))) == len(entries)
    links = {link.attrib["rel"]: link.attrib["href"] for link in root.findall(f"{ATOM}link")}
    assert links["self"] == root.findtext(f"{ATOM}id")


def ids(root: ElementTree.Element) -> list[str]:
    return [entry.findtext(f"{ATOM}id", "") for entry in root.findall(f"{ATOM}entry")]


def titles(root: ElementTree.Element) -> list[str]:
    return [entry.findtext(f"{ATOM}title", "") for entry in root.findall(f"{ATOM}entry")]


def dated(number: str, day: int, **fields: object) -> Json:
    return version(number, publishedAt=f"2025-01-{day:02}T00:00:00.000Z", **fields)


CATALOG = [
    document("acme/clock", dated("1.0.0", 1), dated("1.1.0", 5, releaseNotes="Ticks.")),
    document("acme/notes", dated("1.0.0", 4, displayName="Notes & <more>"), description="Write."),
    document("acme/old", dated("1.0.0", 6, yanked=True)),
    document("acme/hidden", dated("1.0.0", 7), listed=False),
    document("lab/tide", dated("0.1.0", 3)),
]


def test_newest_releases_of_listed_widgets_come_first(client_with: ClientWith) -> None:
    root = read(client_with(*CATALOG))
    assert titles(root) == ["Clock 1.1.0", "Notes & <more> 1.0.0", "Tide 0.1.0", "Clock 1.0.0"]
    assert root.findtext(f"{ATOM}updated") == "2025-01-05T00:00:00.000Z"
    summaries = [entry.findtext(f"{ATOM}summary") for entry in root.findall(f"{ATOM}entry")]
    assert summaries == ["Ticks.", "Write.", "", ""]


def parse_feed(response: TestResponse) -> feedparser.FeedParserDict:
    headers = {"content-type": response.headers["Content-Type"]}
    return feedparser.parse(response.data, response_headers=headers)


def test_feed_parser_reads_every_field_without_a_complaint(client_with: ClientWith) -> None:
    response = client_with(*CATALOG).get("/feed.atom")
    feed = parse_feed(response)
    # It is set for XML that is not well-formed, a wrong media type and a wrong encoding.
    assert not feed.bozo, feed.get("bozo_exception")
    assert (feed.version, feed.encoding) == ("atom10", "utf-8")
    assert feed.feed.id == "http://localhost/feed.atom"
    assert feed.feed.updated_parsed[:5] == (2025, 1, 5, 0, 0)
    assert [entry.title for entry in feed.entries] == [
        *("Clock 1.1.0", "Notes & <more> 1.0.0", "Tide 0.1.0", "Clock 1.0.0"),
    ]
    assert [entry.updated_parsed[2] for entry in feed.entries] == [5, 4, 3, 1]
    assert [entry.author for entry in feed.entries] == ["acme", "acme", "lab", "acme"]
    assert feed.entries[0].summary == "Ticks."
    assert feed.entries[0].link == "http://localhost/widgets/acme/clock/1.1.0"


def test_feed_of_a_scope_has_only_its_releases(client_with: ClientWith) -> None:
    client = client_with(*CATALOG)
    root = read(client, "?scope=lab")
    assert titles(root) == ["Tide 0.1.0"]
    assert root.findtext(f"{ATOM}id") == "http://localhost/feed.atom?scope=lab"
    assert client.get("/feed.atom?scope=none").status_code == 404


def test_feed_of_a_widget_has_only_its_releases(client_with: ClientWith) -> None:
    client = client_with(*CATALOG)
    root = read(client, "?scope=acme&name=clock")
    assert titles(root) == ["Clock 1.1.0", "Clock 1.0.0"]
    assert root.findtext(f"{ATOM}title") == "Widget Catalog: new releases of acme/clock"
    assert root.findtext(f"{ATOM}id") == "http://localhost/feed.atom?scope=acme&name=clock"
    for name in ("none", "hidden"):
        assert client.get(f"/feed.atom?scope=acme&name={name}").status_code == 404


def test_feed_has_the_newest_50_releases(client_with: ClientWith) -> None:
    numbers = [dated(f"1.0.{number}", 1 + number % 28) for number in range(60)]
    root = read(client_with(document("acme/clock", *numbers)))
    days = [entry.findtext(f"{ATOM}published") for entry in root.findall(f"{ATOM}entry")]
    assert days == sorted((each["publishedAt"] for each in numbers), reverse=True)[:50]


def test_ids_do_not_depend_on_the_host_and_links_do(client_with: ClientWith) -> None:
    client = client_with(*CATALOG)
    feeds = [read(client, base_url=url) for url in ("http://a.example", "https://b.example")]
    assert ids(feeds[0]) == ids(feeds[1])
    assert ids(feeds[0])[0] == "urn:uuid:d188897b-82cd-5ab7-afde-08e04ac64f5e"
    links = [root.find(f"{ATOM}entry/{ATOM}link").attrib["href"] for root in feeds]
    assert links == [
        "http://a.example/widgets/acme/clock/1.1.0",
        "https://b.example/widgets/acme/clock/1.1.0",
    ]


@pytest.mark.parametrize("text", ["\x01\x1b[2J", "\ufffe\uffff", "]]>&amp;<b>", "天気 🍅\n"])
def test_any_text_gives_valid_xml(client_with: ClientWith, text: str) -> None:
    widget = document("odd 天/a?b&c", dated("1.0.0", 1, releaseNotes=text), displayName="<&>")
    root = read(client_with(widget), "?scope=odd%20天")
    shown = re.sub("[\x00-\x08\x0b-\x1f\ufffe\uffff]", "\ufffd", text)
    assert root.findtext(f"{ATOM}entry/{ATOM}summary") == shown
    link = root.find(f"{ATOM}entry/{ATOM}link")
    assert link is not None
    assert link.attrib["href"] == "http://localhost/widgets/odd%20%E5%A4%A9/a%3Fb%26c/1.0.0"


def test_unchanged_feed_is_304(app_with: Callable[..., Flask]) -> None:
    app = app_with(*CATALOG)
    client = app.test_client()
    headers = {"If-None-Match": client.get("/feed.atom").headers["ETag"]}
    assert client.get("/feed.atom", headers=headers).status_code == 304
    assert run(app, "yank", "lab/tide@0.1.0").exit_code == 0
    assert client.get("/feed.atom", headers=headers).status_code == 200


def test_long_texts_are_cut(client_with: ClientWith) -> None:
    long = version(displayName="Clock " * 1_000, releaseNotes="A long story. " * 4_000)
    entry = read(client_with(document("acme/clock", long))).find(f"{ATOM}entry")
    assert entry is not None
    title, summary = (entry.findtext(f"{ATOM}{name}", "") for name in ("title", "summary"))
    assert title.startswith("Clock Clock")
    assert title.endswith("… 1.0.0")
    assert len(title) < 300
    assert summary.startswith("A long story. A long")
    assert summary.endswith("…")
    assert len(summary) <= 2_001
