"""Litestream with the file of deploy/: replication while the service runs, and a restore."""

import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from conftest import ROOT, Server, create_demo, run_on
from programs import find_program
from reverse_proxies import substitute

CLOCK = "/api/v1/widgets/acme/clock"


@pytest.fixture(scope="module")
def litestream() -> str:
    """The program."""
    return find_program("litestream")


class Replication:
    """Litestream for one database, configured as in deploy/, with other paths."""

    def __init__(self, program: str, database: Path, directory: Path) -> None:
        self.database = database
        self._program = program
        self._socket = directory / "litestream.sock"
        self._config = directory / "litestream.yml"
        paths = {
            "/run/litestream/litestream.sock": str(self._socket),
            "/var/backups/widget-catalog/litestream": str(directory / "replica"),
        }
        text = (ROOT / "deploy" / "litestream" / "litestream.yml").read_text(encoding="utf-8")
        self._config.write_text(substitute(text, paths), encoding="utf-8")

    def run(self, *arguments: object) -> None:
        """Run a command of Litestream; it must succeed."""
        subprocess.run(
            [self._program, *map(str, arguments)],
            env={**os.environ, "CATALOG_DATABASE": str(self.database)},
            check=True,
            capture_output=True,
            timeout=60,
        )

    @contextmanager
    def running(self) -> Iterator[None]:
        """Replicate during the block, and end with kill -9."""
        process = subprocess.Popen(
            [self._program, "replicate", "-config", str(self._config)],
            env={**os.environ, "CATALOG_DATABASE": str(self.database)},
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        try:
            # The control socket is open when this line is logged.
            assert any("replicating to" in line for line in process.stdout)
            yield
        finally:
            process.kill()
            process.communicate()

    def sync(self) -> None:
        """Wait until everything that is committed is in the replica."""
        self.run("sync", "-wait", "-socket", self._socket, self.database)

    def restore(self, target: Path) -> None:
        """Write the newest state of the replica to a new file."""
        check = ["-integrity-check", "full"]
        self.run("restore", "-config", self._config, *check, "-o", target, self.database)


@pytest.fixture
def replication(litestream: str, tmp_path: Path) -> Replication:
    (tmp_path / "service").mkdir()
    database = create_demo(tmp_path / "service" / "catalog.db")
    return Replication(litestream, database, tmp_path)


def install_concurrently(server: Server, clients: int, each: int) -> int:
    """Let clients install at the same time; return the number of acknowledged installs."""
    statuses: list[int] = []

    def install() -> None:
        for _ in range(each):
            statuses.append(server.request("POST", CLOCK)[0].status)

    threads = [threading.Thread(target=install) for _ in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return statuses.count(200)


def installs(server: Server) -> int:
    body = server.request("GET", CLOCK)[1]
    return int(body.split(b'"downloadCount":')[1].split(b",")[0])


def test_installs_before_the_last_sync_survive_the_loss_of_the_disk(
    replication: Replication, tmp_path: Path
) -> None:
    with Server(replication.database) as server, replication.running():
        before = installs(server)
        synced = install_concurrently(server, 8, 10)
        replication.sync()
        later = install_concurrently(server, 8, 2)
        # Both are killed at the end of the block.
    assert (synced, later) == (80, 16)
    shutil.rmtree(replication.database.parent)
    replication.database.parent.mkdir()
    replication.restore(tmp_path / "restored.db")
    restore = run_on(replication.database, "restore", tmp_path / "restored.db")
    assert (restore.exit_code, restore.stdout) == (0, "")
    with Server(replication.database) as server:
        assert synced <= installs(server) - before <= synced + later


def test_replication_continues_with_a_restored_catalog(
    replication: Replication, tmp_path: Path
) -> None:
    other = create_demo(tmp_path / "other.db")
    assert run_on(other, "delete", "acme/clock", "--yes").exit_code == 0
    assert run_on(other, "backup", tmp_path / "backup.db").exit_code == 0
    with replication.running():
        replication.sync()
        run_on(replication.database, "restore", tmp_path / "backup.db", "--yes")
        replication.sync()
    # Its own tables are gone, and it creates them when it starts.
    with replication.running():
        run_on(replication.database, "unlist", "acme/notes")
        replication.sync()
    replication.restore(tmp_path / "restored.db")
    assert run_on(tmp_path / "restored.db", "export").stdout == (
        run_on(replication.database, "export").stdout
    )
