"""Take the screenshots of the README: the demo catalog in the installed Chromium."""

import logging
import shutil
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from playwright.sync_api import sync_playwright
from werkzeug.serving import make_server

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from app import create_app  # noqa: E402
from catalog.files.demo import create_demo  # noqa: E402
from catalog.store.bundles import Bundles  # noqa: E402
from catalog.store.connection.database import Database  # noqa: E402
from catalog.store.connection.sqlite import today  # noqa: E402

SCREENSHOTS: dict[str, tuple[str, Literal["light", "dark"], int]] = {
    "browse.png": ("/?compatSdk=1.4.0", "light", 740),
    "widget.png": ("/widgets/acme/weather?compatSdk=1.4.0", "dark", 860),
}
MAX_BYTES = 200_000


@contextmanager
def serve_demo() -> Iterator[str]:
    """Serve the demo catalog and yield its URL."""
    with tempfile.TemporaryDirectory() as directory:
        database = Database(Path(directory) / "demo.db")
        create_demo(database, Bundles(Path(directory) / "demo.db-bundles"), today())
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
                viewport={"width": 1200, "height": height}, color_scheme=scheme, base_url=url
            )
            page.goto(path)
            size = len(page.screenshot(path=Path(__file__).with_name(name)))
            print(f"docs/{name}: {size:,} bytes")
            if size > MAX_BYTES:
                sys.exit(f"docs/{name} is larger than {MAX_BYTES:,} bytes.")
        browser.close()


if __name__ == "__main__":
    main()
