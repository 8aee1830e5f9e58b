"""Helpers for tests in a real browser."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from builders import Json
from conftest import create_catalog, hold

from app import create_app

# Playwright is installed only on machines with Chromium.
if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page


def create_catalog_with_bundles(path: Path, widget: Json, *bundles: bytes) -> Path:
    """Create a database of one widget document, whose bundles the service holds."""
    app = create_app({"DATABASE": create_catalog(path, widget)})
    hold(app, *bundles)
    app.extensions["database"].close()
    return path


def expect_text(locator: "Locator", text: str | re.Pattern[str]) -> None:
    """Wait until the element has exactly this text."""
    from playwright.sync_api import expect

    expect(locator).to_have_text(text, timeout=60_000)


def expect_value(field: "Locator", value: str) -> None:
    """Wait until the field has this value."""
    from playwright.sync_api import expect

    expect(field).to_have_value(value, timeout=60_000)


def expect_title(page: "Page", title: str) -> None:
    """Wait until the page has this title."""
    from playwright.sync_api import expect

    expect(page).to_have_title(title, timeout=60_000)


def expect_url(page: "Page", url: str) -> None:
    """Wait until the page has this URL."""
    from playwright.sync_api import expect

    expect(page).to_have_url(url, timeout=60_000)


@contextmanager
def recorded(emitter: Any, event: str) -> Iterator[list[Any]]:
    """Collect the events of this name that a page or a context emits."""
    events: list[Any] = []

    def record(item: Any) -> None:
        events.append(item)

    emitter.on(event, record)
    try:
        yield events
    finally:
        emitter.remove_listener(event, record)


def is_too_wide(page: "Page") -> bool:
    """Return whether the page has to be scrolled sideways."""
    return bool(page.evaluate("document.documentElement.scrollWidth > window.innerWidth"))
