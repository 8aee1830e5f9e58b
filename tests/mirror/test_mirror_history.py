"""A random history of an upstream, with runs killed at random, ends with a copy equal to it."""

import json
import os
import random
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from builders import Json, bundled, described, document, png
from conftest import ROOT, hold, put, run
from flask import Flask
from mirrors import AppServer, exported, serve, served_content
from prepared_processes import start_python

from app import create_app

NAMES = [f"acme/w{number}" for number in range(4)]
VERSIONS = [f"1.{number}.0" for number in range(4)]
ROUNDS = 10
# widget-catalog mirror with small batches, so that few widgets make several.
FLASK = """
import sys
from catalog.mirror import documents
from flask.cli import main
documents.BATCH_SIZE = 2
sys.argv[0] = "flask"
main()
"""


class History:
    """An upstream that changes, and a mirror whose runs are killed."""

    def __init__(self, upstream: Flask, folder: Path, seed: int) -> None:
        self.random = random.Random(seed)  # noqa: S311
        self.upstream, self.folder = upstream, folder
        self.stack = ExitStack()
        self.server = self.serve()
        self.mirror = create_app({"DATABASE": folder / "mirror.db"})
        self.stack.enter_context(closing(self.mirror.extensions["database"]))
        self.number = 0
        self.kills = 0
        self.changes: list[Callable[[], object]] = [
            *[self.publish] * 4,
            *[self.yank, self.unlist, self.relist, self.delete, self.delete_version],
            *[self.replace, self.describe, self.restore, self.delete_copy],
        ]

    def serve(self) -> AppServer:
        """Serve the upstream at a new URL; earlier ones stay."""
        return self.stack.enter_context(serve(self.upstream))

    def content(self, kind: str) -> bytes:
        self.number += 1
        return f"{kind} {self.number}".encode()

    def put(self, version: str, **fields: object) -> None:
        """Publish a version of a random widget, or replace its bytes."""
        content, picture = self.content("bundle"), png(8, 8, self.content("picture"))
        widget = document(self.random.choice(NAMES), bundled(version, content), **fields)
        about = {"readme": f"Readme {self.number}", "picture": described(picture)}
        if self.random.random() < 0.5:
            widget["about"] = about
        put(self.upstream, widget)
        hold(self.upstream, content, picture)

    def publish(self) -> None:
        self.put(self.random.choice(VERSIONS))

    def replace(self) -> None:
        self.put(VERSIONS[0], description=f"Replaced {self.number}")

    def describe(self) -> None:
        readme = self.folder / "readme.md"
        readme.write_bytes(self.content("readme"))
        run(self.upstream, "describe", self.random.choice(NAMES), "--readme", readme)

    def yank(self) -> None:
        action = self.random.choice(["yank", "unyank"])
        run(self.upstream, action, f"{self.random.choice(NAMES)}@{VERSIONS[0]}")

    def unlist(self) -> None:
        run(self.upstream, "unlist", self.random.choice(NAMES))

    def relist(self) -> None:
        for name in NAMES:
            run(self.upstream, "relist", name)

    def delete(self) -> None:
        run(self.upstream, "delete", self.random.choice(NAMES), "--yes")

    def delete_version(self) -> None:
        target = f"{self.random.choice(NAMES)}@{self.random.choice(VERSIONS)}"
        run(self.upstream, "delete", target, "--yes")

    def restore(self) -> None:
        """Go back to the last backup, or make one."""
        backup = self.folder / "upstream.backup"
        if backup.exists():
            assert run(self.upstream, "restore", backup, "--yes").exit_code == 0
            backup.unlink()
        else:
            assert run(self.upstream, "backup", backup).exit_code == 0

    def delete_copy(self) -> None:
        target = f"{self.random.choice(NAMES)}@{VERSIONS[0]}"
        run(self.mirror, "delete", target, "--yes")

    def refresh_and_kill(self, *arguments: str) -> None:
        """Run mirror in a process that is killed when its n-th request arrives."""
        last, counted, started = self.random.randint(1, 9), [0], threading.Event()
        lock = threading.Lock()

        def kill(path: str) -> None:
            with lock:
                counted[0] += 1
                if counted[0] < last:
                    return
            assert started.wait(60)
            process.kill()
            # Send no response before the process has ended.
            process.wait(60)

        self.server.on_request = kill
        process = start_python(
            ["-c", FLASK, "mirror", *arguments],
            {**os.environ, "CATALOG_DATABASE": str(self.mirror.config["DATABASE"])},
            cwd=ROOT,
            stdout=None,
            stderr=subprocess.PIPE,
        )
        started.set()
        with process:
            process.communicate(timeout=120)
        self.kills += process.returncode < 0
        self.server.on_request = lambda path: None

    def refresh(self, *arguments: str) -> None:
        result = run(self.mirror, "mirror", *arguments)
        assert result.exit_code == 0, result.stderr

    def move(self) -> None:
        """Serve the upstream at another URL, and let the mirror follow, also if it is killed."""
        old, self.server = self.server, self.serve()
        self.refresh_and_kill("move", old.url, self.server.url, "--yes")
        known: list[Json] = json.loads(run(self.mirror, "mirror", "status", "--json").stdout)
        if [each["url"] for each in known] == [old.url]:
            self.refresh("move", old.url, self.server.url, "--yes")

    def run(self) -> None:
        self.refresh(self.server.url, "--bundles")
        for number in range(ROUNDS):
            for _ in range(self.random.randint(1, 4)):
                self.random.choice(self.changes)()
            if number == ROUNDS // 2:
                self.move()
            elif self.random.random() < 0.7:
                self.refresh_and_kill()
            else:
                self.refresh()
        self.refresh()


@pytest.fixture(params=[1, 3])
def history(
    request: pytest.FixtureRequest, app_with: Callable[..., Flask], tmp_path: Path
) -> Iterator[History]:
    # An upstream without any widget is refused, so one stays.
    upstream = app_with(document("base/anchor", bundled("1.0.0", b"anchor")))
    hold(upstream, b"anchor")
    history = History(upstream, tmp_path, request.param)
    with history.stack:
        yield history


def test_a_copy_of_a_random_history_ends_equal_to_the_upstream(history: History) -> None:
    history.run()
    expected = served_content(history.upstream)
    assert served_content(history.mirror) == expected
    # The history was worth it.
    assert history.kills >= 1
    assert any(each["picture"] for each in expected.values())
    assert all(one["bundle"] for each in expected.values() for one in each["versions"])
    listed = {path for path, each in exported(history.mirror).items() if each["widget"]["listed"]}
    assert listed == expected.keys()
