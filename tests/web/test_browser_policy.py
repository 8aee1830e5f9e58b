"""What the Content-Security-Policy of the pages allows a browser to run: only our own scripts."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from browser_tools import create_catalog_with_bundles
from builders import bundled, document
from conftest import Server

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

BUNDLE = b"self.document ? document.title = 'a bundle ran' : postMessage('ran')"
BUNDLE_PATH = "/api/v1/widgets/acme/clock/1.0.0/bundle.js"

# Each adds a script and returns "ran" or the directive of the policy that blocked it. An inline
# script runs synchronously and has no load event.
ADD_SCRIPT = """
(attributes) => new Promise((resolve) => {
    document.addEventListener("securitypolicyviolation",
        ({ effectiveDirective }) => resolve(effectiveDirective));
    const script = Object.assign(document.createElement("script"), attributes);
    script.addEventListener("load", () => resolve("ran"));
    document.body.append(script);
    if (document.title === "inline ran") resolve("ran");
})
"""
START_WORKER = """
(url) => new Promise((resolve) => {
    document.addEventListener("securitypolicyviolation",
        ({ effectiveDirective }) => resolve(effectiveDirective));
    new Worker(url).addEventListener("message", ({ data }) => resolve(data));
})
"""


@pytest.fixture(scope="module")
def bundle_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A catalog that holds a bundle, which has the same origin as the pages."""
    path = tmp_path_factory.mktemp("policy") / "catalog.db"
    clock = document("acme/clock", bundled("1.0.0", BUNDLE))
    with Server(create_catalog_with_bundles(path, clock, BUNDLE)) as running:
        yield running


@pytest.mark.parametrize("path", ["/", "/widgets/acme/clock", "/docs", "/none"])
@pytest.mark.parametrize(
    "attributes",
    [
        {"src": BUNDLE_PATH},
        {"src": BUNDLE_PATH, "type": "module"},
        {"text": "document.title = 'inline ran'"},
    ],
    ids=["bundle", "module", "inline"],
)
def test_injected_script_does_not_run(
    page: "Page", bundle_server: Server, path: str, attributes: dict[str, Any]
) -> None:
    page.goto(bundle_server.url + path)
    title = page.title()
    assert page.evaluate(ADD_SCRIPT, attributes) == "script-src-elem"
    assert page.title() == title


def test_integrity_attribute_does_not_allow_a_bundle(page: "Page", bundle_server: Server) -> None:
    page.goto(f"{bundle_server.url}/widgets/acme/clock")
    integrity = page.locator("#selected-sri").text_content()
    attributes = {"src": BUNDLE_PATH, "integrity": integrity}
    assert page.evaluate(ADD_SCRIPT, attributes) == "script-src-elem"


def test_bundle_does_not_run_as_a_worker(page: "Page", bundle_server: Server) -> None:
    page.goto(bundle_server.url)
    assert page.evaluate(START_WORKER, BUNDLE_PATH) == "worker-src"


def test_bundle_would_run_without_the_policy(browser: "Browser", bundle_server: Server) -> None:
    with browser.new_context(base_url=bundle_server.url, bypass_csp=True) as context:
        page = context.new_page()
        page.goto("/")
        assert page.evaluate(ADD_SCRIPT, {"src": BUNDLE_PATH}) == "ran"
        assert page.title() == "a bundle ran"


# Each script shows an element that is hidden without it.
@pytest.mark.parametrize(
    ("path", "shown"),
    [("/", "kbd"), ("/publish", "button.copy"), ("/docs#conventions", ".contents [aria-current]")],
    ids=["search", "copy", "docs"],
)
def test_own_script_runs(page: "Page", bundle_server: Server, path: str, shown: str) -> None:
    page.goto(bundle_server.url + path)
    page.locator(shown).first.wait_for()
