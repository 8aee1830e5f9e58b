"""What the pages' Content-Security-Policy lets a real browser run: our scripts and nothing else."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from builders import bundled, document
from conftest import Server, hold

from app import create_app
from catalog.documents import check_document
from catalog.store import writes

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

BUNDLE = b"self.document ? document.title = 'a bundle ran' : postMessage('ran')"
ADDRESS = "/api/v1/widgets/acme/clock/1.0.0/bundle.js"

# Each starts a script, and tells that it ran or which directive of the policy kept it from that.
# An inline script that runs has done so at once, and says nothing.
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
(address) => new Promise((resolve) => {
    document.addEventListener("securitypolicyviolation",
        ({ effectiveDirective }) => resolve(effectiveDirective));
    new Worker(address).addEventListener("message", ({ data }) => resolve(data));
})
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A catalog that holds a bundle, with the same origin as its pages."""
    app = create_app({"DATABASE": tmp_path_factory.mktemp("policy") / "catalog.db"})
    clock = document("acme/clock", bundled("1.0.0", BUNDLE))
    app.extensions["database"].create(writes.put_documents([check_document(clock)]))
    hold(app, BUNDLE)
    app.extensions["database"].close()
    with Server(app.config["DATABASE"]) as running:
        yield running


@pytest.fixture
def page(browser: "Browser", server: Server) -> Iterator["Page"]:
    with browser.new_context(base_url=server.url) as context:
        context.set_default_timeout(10_000)
        yield context.new_page()


@pytest.mark.parametrize("path", ["/", "/widgets/acme/clock", "/docs", "/none"])
@pytest.mark.parametrize(
    "attributes",
    [
        {"src": ADDRESS},
        {"src": ADDRESS, "type": "module"},
        {"text": "document.title = 'inline ran'"},
    ],
    ids=["bundle", "module", "inline"],
)
def test_a_script_that_gets_into_a_page_does_not_run(
    page: "Page", path: str, attributes: dict[str, Any]
) -> None:
    page.goto(path)
    title = page.title()
    assert page.evaluate(ADD_SCRIPT, attributes) == "script-src-elem"
    assert page.title() == title


def test_a_bundle_is_not_admitted_by_the_integrity_that_it_has(page: "Page") -> None:
    page.goto("/widgets/acme/clock")
    integrity = page.locator("#chosen-sri").inner_text()
    attributes = {"src": ADDRESS, "integrity": integrity}
    assert page.evaluate(ADD_SCRIPT, attributes) == "script-src-elem"


def test_a_bundle_does_not_run_as_a_worker(page: "Page") -> None:
    page.goto("/")
    assert page.evaluate(START_WORKER, ADDRESS) == "worker-src"


def test_the_bundle_would_run_in_a_page_without_the_policy(
    browser: "Browser", server: Server
) -> None:
    with browser.new_context(base_url=server.url, bypass_csp=True) as context:
        page = context.new_page()
        page.goto("/")
        assert page.evaluate(ADD_SCRIPT, {"src": ADDRESS}) == "ran"
        assert page.title() == "a bundle ran"


def test_our_own_scripts_run(page: "Page") -> None:
    # Each shows what is of no use without it: browse.js, copy.js, docs.js.
    for path, shown in (
        ("/", "kbd"),
        ("/widgets/acme/clock", "button.copy"),
        ("/docs", "form.try"),
    ):
        page.goto(path)
        assert page.locator(shown).first.is_visible()
