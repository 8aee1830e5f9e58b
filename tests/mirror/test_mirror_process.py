"""widget-catalog mirror as a process: a kill at any point, an interrupt, and the progress bar."""

import os
import signal
import subprocess
import threading
from contextlib import closing
from pathlib import Path

from builders import document
from conftest import ROOT, run_at_terminal
from flask import Flask
from mirrors import bundle_urls, exported, held_bundle, mirror_summary
from prepared_processes import start_python
from upstreams import FakeUpstream, Handler, detail

from app import create_app

WIDGETS = 20
# flask with small batches, so that few widgets make several.
FLASK = """
import sys
from catalog.mirror import documents
from flask.cli import main
documents.BATCH_SIZE = 6
sys.argv[0] = "flask"
main()
"""


def start_mirror(url: str, database: Path, *options: str) -> subprocess.Popen[str]:
    return start_python(
        ["-c", FLASK, "mirror", url, *options],
        {**os.environ, "CATALOG_DATABASE": str(database)},
        cwd=ROOT,
        stdout=None,
        stderr=subprocess.PIPE,
    )


# The request that kills the process, and how many widgets and bundles it may have stored by then:
# requests run in parallel, so any others may have been faster than the first one. The last six are
# requested only after the first batch was written.
SOME = range(6, WIDGETS)
KILLS = {
    detail("acme/w00"): (range(WIDGETS), range(1)),
    detail("acme/w19"): (SOME, range(1)),
    "/bundles/1.0.19.js": (range(WIDGETS, WIDGETS + 1), SOME),
}


def test_killed_mirror_continues_and_ends_like_an_uninterrupted_one(
    upstream: FakeUpstream, tmp_path: Path
) -> None:
    for number in range(WIDGETS):
        version = upstream.with_bundle(f"1.0.{number}", b"%d " % number * 3000)
        upstream.put(document(f"acme/w{number:02}", version, downloadCount=number))
    killed, whole = (create_app({"DATABASE": tmp_path / name}) for name in ("a.db", "b.db"))
    with closing(killed.extensions["database"]), closing(whole.extensions["database"]):
        for path, (widgets, bundles) in KILLS.items():
            kill_at(path, upstream, tmp_path / "a.db")
            assert len(exported(killed)) in widgets
            assert len(served_bundles(killed)) in bundles
        for app in (killed, whole):
            mirror_summary(app, upstream.url, "--bundles")
        assert exported(killed) == exported(whole)
        assert served_bundles(killed) == served_bundles(whole)
    assert stored_files(tmp_path / "a.db-bundles") == stored_files(tmp_path / "b.db-bundles")
    # Each bundle is stored twice: as it is, and compressed.
    assert len(stored_files(tmp_path / "b.db-bundles")) == 2 * WIDGETS


def kill_at(path: str, upstream: FakeUpstream, database: Path) -> None:
    """Run a mirror that is killed when it requests this path."""
    started = threading.Event()

    def kill(requested: str) -> None:
        if requested == path:
            assert started.wait(60)
            process.kill()
            # Send no response before the process has ended.
            process.wait(60)

    upstream.on_request = kill
    process = start_mirror(upstream.url, database, "--bundles")
    started.set()
    process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL
    upstream.on_request = lambda requested: None


def served_bundles(app: Flask) -> dict[str, bytes | None]:
    """Return the bundles that are served here, by their URLs."""
    client = app.test_client()
    urls = [url for path in exported(app) for url in bundle_urls(client, path).values()]
    return {url: held_bundle(client, url) for url in urls if url.startswith("http://localhost/")}


def stored_files(directory: Path) -> dict[str, bytes]:
    """Return the content of each file by its name, without abandoned scratch directories."""
    return {path.name: path.read_bytes() for path in directory.iterdir() if path.is_file()}


def test_interrupt_ends_the_command_without_waiting_for_responses(
    upstream: FakeUpstream, tmp_path: Path
) -> None:
    requested = threading.Event()

    def never_respond(handler: Handler) -> None:
        requested.set()
        handler.upstream.stopping.wait(60)

    upstream.put(document("acme/clock"))
    upstream.fail(detail("acme/clock"), never_respond)
    # The test process may ignore SIGINT, and a child would inherit that.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    process = start_mirror(upstream.url, tmp_path / "mirror.db")
    signal.signal(signal.SIGINT, before)
    assert requested.wait(30)
    process.send_signal(signal.SIGINT)
    # The connection stays open for longer than these timeouts.
    try:
        _, output = process.communicate(timeout=60)
    except subprocess.TimeoutExpired:
        # Python drops a KeyboardInterrupt in some places, such as a callback.
        process.send_signal(signal.SIGINT)
        _, output = process.communicate(timeout=60)
    message = "Interrupted. Run the same command again to continue.\n"
    assert (process.returncode, output) == (130, message)


def test_terminal_shows_the_progress(upstream: FakeUpstream, tmp_path: Path) -> None:
    upstream.put(*(document(f"acme/{name}") for name in ("alarm", "clock", "notes")))
    output = run_at_terminal(tmp_path / "mirror.db", "mirror", upstream.url)
    assert "Widgets  [" in output
    assert "3/3" in output
    assert output.endswith("3 added, 0 changed, 0 unchanged, 0 failed, 0 gone.\n")
