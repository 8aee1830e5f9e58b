"""widget-catalog mirror as a process: a kill at any point, an interrupt, and the progress bar."""

import os
import signal
import subprocess
import threading
from collections.abc import Container
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
from catalog.mirror import fetch
from flask.cli import main
fetch.BATCH_SIZE = 6
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


# The last six are requested only after the first batch was written.
SOME = range(6, WIDGETS)
NONE, ALL = [0], [WIDGETS]
# The request that kills the process, and how many widgets and bundles it may have stored by then.
KILLS = {
    detail("acme/w00"): (NONE, NONE),
    detail("acme/w19"): (SOME, NONE),
    "/bundles/1.0.19.js": (ALL, SOME),
}


def test_killed_mirror_continues_and_ends_like_an_uninterrupted_one(
    upstream: FakeUpstream, tmp_path: Path
) -> None:
    for number in range(WIDGETS):
        version = upstream.with_bundle(f"1.0.{number}", b"%d " % number * 3000)
        upstream.put(document(f"acme/w{number:02}", version, downloadCount=number))
    for path, (widgets, bundles) in KILLS.items():
        kill_at(path, upstream, tmp_path / "killed.db")
        check_progress(tmp_path / "killed.db", widgets, bundles)
    contents = []
    for name in ("killed.db", "whole.db"):
        app = create_app({"DATABASE": tmp_path / name})
        with closing(app.extensions["database"]):
            mirror_summary(app, upstream.url, "--bundles")
            contents.append(read_mirror(app, upstream.url))
    assert contents[0] == contents[1]


def kill_at(path: str, upstream: FakeUpstream, database: Path) -> None:
    """Run a mirror that is killed when it requests this path."""
    started = threading.Event()

    def kill(requested: str) -> None:
        if requested == path:
            started.wait(10)
            process.kill()
            # Send no response before the process has ended.
            process.wait(10)

    upstream.on_request = kill
    process = start_mirror(upstream.url, database, "--bundles")
    started.set()
    process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL
    upstream.on_request = lambda requested: None


def check_progress(database: Path, widgets: Container[int], bundles: Container[int]) -> None:
    app = create_app({"DATABASE": database})
    with closing(app.extensions["database"]):
        paths = list(exported(app))
        urls = [url for path in paths for url in bundle_urls(app.test_client(), path).values()]
    assert len(paths) in widgets
    assert len([url for url in urls if url.startswith("http://localhost/")]) in bundles


def read_mirror(app: Flask, url: str) -> list[object]:
    """Return the documents, bundles and files of a mirror, and the summary of a refresh."""
    client = app.test_client()
    urls = {path: bundle_urls(client, path) for path in exported(app)}
    bundles = [held_bundle(client, each) for own in urls.values() for each in own.values()]
    directory = Path(f"{app.config['DATABASE']}-bundles")
    files = {file.name: file.read_bytes() for file in directory.rglob("*") if file.is_file()}
    return [exported(app), urls, bundles, files, mirror_summary(app, url)]


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
        _, output = process.communicate(timeout=20)
    except subprocess.TimeoutExpired:
        # Python drops a KeyboardInterrupt in some places, such as a callback.
        process.send_signal(signal.SIGINT)
        _, output = process.communicate(timeout=20)
    message = "Interrupted; the next run continues from here.\n"
    assert (process.returncode, output) == (130, message)


def test_terminal_shows_the_progress(upstream: FakeUpstream, tmp_path: Path) -> None:
    upstream.put(*(document(f"acme/{name}") for name in ("alarm", "clock", "notes")))
    output = run_at_terminal(tmp_path / "mirror.db", "mirror", upstream.url)
    assert "Widgets  [" in output
    assert "3/3" in output
    assert output.endswith("3 added, 0 changed, 0 unchanged, 0 failed, 0 gone.\n")
