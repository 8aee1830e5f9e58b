"""What link previews and search engines read of a page: description, canonical address, feed."""

import pytest
from flask.testing import FlaskClient
from markup import element, elements

from catalog import __version__

WEATHER = "/widgets/acme/weather"
BASE = "https://w.example/catalog"


def meta(page: str) -> dict[str, str]:
    nodes = [node.attributes for node in elements(page, "meta")]
    return {
        node.get("name") or node["property"]: node["content"] for node in nodes if "content" in node
    }


@pytest.mark.parametrize("path", ["/", WEATHER, "/docs", "/updates"])
def test_page_describes_itself(demo: FlaskClient, path: str) -> None:
    page = demo.get(path, base_url=BASE).text
    canonical = element(page, "link", rel="canonical").attributes["href"]
    assert canonical == BASE + path
    described = meta(page)
    assert described["og:title"] == elements(page, "title")[0].text
    assert described["og:description"] == described["description"] != ""
    assert described["og:url"] == canonical


def test_canonical_address_is_below_the_public_url(
    demo: FlaskClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    public = "https://public.example/widgets"
    monkeypatch.setitem(demo.application.config, "PUBLIC_URL", public)
    page = demo.get(f"{WEATHER}?compatSdk=1.4.0", base_url="http://localhost/internal").text
    canonical = element(page, "link", rel="canonical").attributes["href"]
    assert canonical == f"{public}{WEATHER}"


@pytest.mark.parametrize("path", ["/", "/none"])
def test_footer_has_the_release_and_links_that_exist(demo: FlaskClient, path: str) -> None:
    page = demo.get(path).text
    footer = element(page, "footer").text
    assert __version__ in footer
    links = [node for node in elements(page, "a") if node.text and node.text in footer]
    targets = {node.attributes["href"] for node in links}
    assert {"/publish", "/feed.atom"} <= targets
    assert "/api/health" not in targets
    assert [url for url in targets if demo.get(url).status_code != 200] == []
