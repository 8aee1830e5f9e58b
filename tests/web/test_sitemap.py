"""/sitemap.xml and /robots.txt, for search engines."""

from collections.abc import Callable
from xml.etree import ElementTree

import pytest
from builders import document, version
from flask.testing import FlaskClient

NAMESPACE = "{http://www.sitemaps.org/schemas/sitemap/0.9}"
ClientWith = Callable[..., FlaskClient]


def read(client: FlaskClient, path: str = "/sitemap.xml", **arguments: str) -> ElementTree.Element:
    response = client.get(path, **arguments)
    assert response.status_code == 200
    assert response.headers["Content-Type"] == "application/xml; charset=utf-8"
    assert response.headers["Cache-Control"] == "no-cache"
    # The test's own server sent it.
    return ElementTree.fromstring(response.text)  # noqa: S314


def urls(root: ElementTree.Element) -> list[str]:
    return [node.text or "" for node in root.iter(f"{NAMESPACE}loc")]


def test_sitemap_has_every_page_of_listed_widgets(client_with: ClientWith) -> None:
    client = client_with(
        document("acme/clock", version(publishedAt="2025-01-02T03:04:05.678Z")),
        document("acme/天 <&", listed=True),
        document("acme/secret", version(), listed=False),
    )
    root = read(client, base_url="https://w.example/catalog")
    assert root.tag == f"{NAMESPACE}urlset"
    assert urls(root) == [
        "https://w.example/catalog/",
        "https://w.example/catalog/updates",
        "https://w.example/catalog/docs",
        "https://w.example/catalog/widgets/acme/clock",
        "https://w.example/catalog/widgets/acme/%E5%A4%A9%20%3C%26",
    ]
    assert [node.text for node in root.iter(f"{NAMESPACE}lastmod")] == ["2025-01-02T03:04:05.678Z"]


def test_every_address_in_the_sitemap_exists(demo: FlaskClient) -> None:
    addresses = urls(read(demo))
    assert len(addresses) == 36
    for url in addresses[:8]:
        assert demo.get(url.removeprefix("http://localhost")).status_code == 200


def test_large_catalog_has_an_index_of_sitemaps(
    client_with: ClientWith, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("catalog.web.sitemap.PART_SIZE", 2)
    client = client_with(*(document(f"acme/clock-{number}") for number in range(5)))
    root = read(client)
    assert root.tag == f"{NAMESPACE}sitemapindex"
    parts = [read(client, url.removeprefix("http://localhost")) for url in urls(root)]
    assert len(parts) == 3
    widgets = [url for part in parts for url in urls(part) if "/widgets/" in url]
    assert widgets == [f"http://localhost/widgets/acme/clock-{number}" for number in range(5)]


@pytest.mark.parametrize("number", ["0", "2", "-1", "x", "01", "9999999", "9" * 5000])
def test_other_sitemaps_do_not_exist(demo: FlaskClient, number: str) -> None:
    assert demo.get(f"/sitemap-{number}.xml").status_code == 404


def test_unchanged_sitemap_is_304(demo: FlaskClient) -> None:
    for encoding in ("identity", "gzip"):
        headers = {"Accept-Encoding": encoding}
        etag = demo.get("/sitemap.xml", headers=headers).headers["ETag"]
        response = demo.get("/sitemap.xml", headers={**headers, "If-None-Match": etag})
        assert (response.status_code, response.headers["ETag"]) == (304, etag)
        assert response.headers["Cache-Control"] == "no-cache"


def test_robots_name_the_sitemap_below_the_public_url(client_with: ClientWith) -> None:
    client = client_with(PUBLIC_URL="https://w.example/catalog")
    response = client.get("/robots.txt")
    assert response.headers["Content-Type"] == "text/plain; charset=utf-8"
    assert response.text == (
        "User-agent: *\nDisallow: /catalog/api/\n\nSitemap: https://w.example/catalog/sitemap.xml\n"
    )
