"""Take the screenshots of the README: the demo catalog in the installed Chromium."""

import logging
import shutil
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Literal

from playwright.sync_api import Page, sync_playwright
from werkzeug.serving import make_server

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from app import create_app  # noqa: E402
from catalog.files.jsonl import read_demo  # noqa: E402
from catalog.store.bundles.bundles import Bundles  # noqa: E402
from catalog.store.connection.database import Database  # noqa: E402
from catalog.store.connection.sqlite import today  # noqa: E402
from catalog.store.write.demo import create_demo  # noqa: E402

SCREENSHOTS: dict[str, tuple[str, Literal["light", "dark"], int]] = {
    "browse.png": ("/?compatSdk=1.4.0", "light", 740),
    "widget.png": ("/widgets/acme/weather?compatSdk=1.4.0", "dark", 860),
}
DASHBOARD_WIDGETS = (
    "World Clock",
    "Weather",
    "Tasks",
    "Calendar",
    "Metrics Graph",
    "🌙 Moon Phase",
)
MAX_BYTES = 225_000


@contextmanager
def serve_demo() -> Iterator[str]:
    """Serve the demo catalog and yield its URL."""
    with tempfile.TemporaryDirectory() as directory:
        database = Database(Path(directory) / "demo.db")
        create_demo(database, Bundles(Path(directory) / "demo.db-bundles"), read_demo(), today())
        app = create_app({"DATABASE": database.path})
        server = make_server("127.0.0.1", 0, app, threaded=True)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        app.extensions["database"].close()


def main() -> None:
    chromium = shutil.which("chromium") or shutil.which("chromium-headless-shell")
    if chromium is None:
        sys.exit("Chromium is not installed.")
    # No access log.
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    with serve_demo() as url, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium)
        for name, (path, scheme, height) in SCREENSHOTS.items():
            page = browser.new_page(
                viewport={"width": 1280, "height": height}, color_scheme=scheme, base_url=url
            )
            page.goto(path)
            save(page, name)
        with serve_dashboard() as dashboard:
            page = browser.new_page(viewport={"width": 1200, "height": 860})
            page.goto(f"{dashboard}?catalog={url}")
            for widget in DASHBOARD_WIDGETS:
                page.get_by_role("button", name=f"Add {widget}", exact=True).click()
                page.get_by_role("region", name=widget, exact=True).wait_for()
            page.evaluate("scrollTo(0, 0)")
            save(page, "dashboard.png")
        browser.close()


def save(page: Page, name: str) -> None:
    """Write the screenshot of a page into docs/."""
    size = len(page.screenshot(path=ROOT / "docs" / name))
    print(f"docs/{name}: {size:,} bytes")
    if size > MAX_BYTES:
        sys.exit(f"docs/{name} is larger than {MAX_BYTES:,} bytes.")


class QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, *arguments: object) -> None:
        pass


@contextmanager
def serve_dashboard() -> Iterator[str]:
    """Serve the example dashboard on another origin, and yield its URL."""
    handler = partial(QuietHandler, directory=ROOT / "examples" / "dashboard")
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


if __name__ == "__main__":
    main()
