"""Real rqlite nodes on free ports of the loopback interface, and services beside them."""

import atexit
import os
import platform
import shutil
import signal
import sqlite3
import subprocess
import tempfile
import time
import warnings
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
import urllib3
from conftest import ROOT, Server
from flask import Flask
from ports import free_port

from app import create_app
from catalog.store.connection.cluster import rqlite_http
from catalog.store.connection.cluster.cluster import Cluster
from catalog.store.connection.sqlite import connect
from catalog.store.schema.migrations import set_new_revision
from catalog.store.schema.schema import APPLICATION_ID

# The program is for x86-64. To try the emulator there, run the tests by `linux32`.
EMULATOR = [] if platform.machine() == "x86_64" else ["qemu-x86_64-static"]
RQLITED = [*EMULATOR, str(ROOT / ".venv" / "rqlite" / "bin" / "rqlited")]
DATABASE = "db.sqlite"
# Emulated nodes need half a minute.
SECONDS_TO_START = 90


def slow_if_emulated(test: Callable[..., None]) -> Callable[..., None]:
    """Leave the test to `make torture` where the nodes are emulated."""
    return pytest.mark.torture(test) if EMULATOR else test


def require_rqlite() -> None:
    """Skip the test where rqlite cannot run, or fail with REQUIRE_RQLITE."""
    with suppress(OSError):
        if subprocess.run([*RQLITED, "-version"], capture_output=True, check=False).returncode == 0:
            return
    skip_or_fail = pytest.fail if os.environ.get("REQUIRE_RQLITE") else pytest.skip
    skip_or_fail("rqlite is not installed or cannot run here; make .venv/rqlite installs it.")


def wait_until(condition: Callable[[], object], seconds: float = SECONDS_TO_START) -> None:
    """Wait until the condition holds; fail if it does not in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "the condition did not hold in time"
        time.sleep(0.05)


class Node:
    """One rqlite process, which can be stopped, killed, suspended and started again."""

    def __init__(
        self, directory: Path, number: int, ports: list[int], options: list[str], user: str
    ) -> None:
        self.directory = directory
        self.database = directory / DATABASE
        http_port, self.raft_port = ports
        scheme = "https" if "-http-cert" in options else "http"
        self.url = f"{scheme}://127.0.0.1:{http_port}"
        self._headers = urllib3.make_headers(basic_auth=user) if user else {}
        self._command = [
            *RQLITED,
            "-fk",
            *("-raft-snap", "1024", "-raft-snap-int", "1s"),
            *("-node-id", str(number)),
            *("-http-addr", f"127.0.0.1:{http_port}"),
            *("-raft-addr", f"127.0.0.1:{self.raft_port}"),
            *options,
            str(directory),
        ]
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the process; it does not wait until the node responds."""
        with (self.directory.parent / f"{self.directory.name}.log").open("ab") as log:
            self.process = subprocess.Popen(self._command, stdout=log, stderr=log)

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the process."""
        assert self.process is not None
        self.process.send_signal(number)

    def end(self, number: signal.Signals = signal.SIGKILL) -> None:
        """End the process by a signal, and wait until it has ended."""
        if self.process:
            self.send(number)
            # A suspended process gets no other signal.
            self.send(signal.SIGCONT)
            self.process.wait(20)
            self.process = None

    def get(self, path: str) -> Any:
        """Return the JSON of a GET request; None if the node does not respond."""
        try:
            response = self._request(path)
            return response.json() if response.status == 200 else None
        except (urllib3.exceptions.HTTPError, ValueError):
            return None

    def _request(self, path: str) -> urllib3.BaseHTTPResponse:
        with (
            urllib3.PoolManager(cert_reqs="CERT_NONE", retries=False, timeout=6) as pool,
            warnings.catch_warnings(action="ignore"),
        ):
            return pool.request("GET", self.url + path, headers=self._headers)

    def is_ready(self) -> bool:
        """Return whether the node knows a leader and has applied its log."""
        with suppress(urllib3.exceptions.HTTPError):
            return self._request("/readyz?sync&timeout=5s").status == 200
        return False

    def has_catalog(self) -> bool:
        """Return whether the node's file is a catalog."""
        with suppress(Exception), closing(connect(self.database, "mode=ro")) as connection:
            (number,) = connection.execute("PRAGMA application_id").fetchone()
            return bool(number == APPLICATION_ID)
        return False


class Nodes(list[Node]):
    """The nodes of one cluster."""

    def __init__(self, directory: Path, count: int, *options: str, user: str = "") -> None:
        ports = [free_port() for _ in range(2 * count)]
        joined = ",".join(f"127.0.0.1:{port}" for port in ports[1::2])
        bootstrap = ["-bootstrap-expect", str(count), "-join", joined] if count > 1 else []
        options = (*bootstrap, *options)
        super().__init__(
            Node(directory / f"node{number}", number, ports[2 * number - 2 :][:2], [*options], user)
            for number in range(1, count + 1)
        )
        for node in self:
            node.start()
        try:
            self.wait_until_ready()
        except BaseException:
            self.close()
            raise

    def settings(self, node: Node) -> dict[str, str]:
        """Return the settings of the service beside the node."""
        return {
            "DATABASE": str(node.database),
            "RQLITE": node.url,
            "BUNDLES": str(node.directory.parent / "bundles"),
        }

    def app(self, node: Node) -> Flask:
        """Return the service beside the node."""
        return create_app(self.settings(node))

    def serve(self, node: Node) -> Server:
        """Start the service beside the node as a process."""
        settings = {f"CATALOG_{name}": value for name, value in self.settings(node).items()}
        return Server(node.database, **settings)

    def followers(self) -> list[Node]:
        """Return the nodes that are not the leader."""
        leader = self.leader()
        return [node for node in self if node is not leader]

    def restart(self) -> None:
        """Start the nodes that do not run, and wait until all of them are ready."""
        for node in self:
            if node.process:
                node.send(signal.SIGCONT)
            else:
                node.start()
        self.wait_until_ready()
        self.wait_until_catalog()

    def wait_until_catalog(self) -> None:
        """Wait until the file of every node is a catalog: a ready node may still apply its log."""
        for node in self:
            wait_until(node.has_catalog)

    def wait_until_ready(self) -> None:
        """Wait until every running node knows a leader and has applied its log."""
        for node in self:
            if node.process:
                wait_until(node.is_ready)

    def leader(self) -> Node:
        """Return the node that is the leader; wait for an election."""
        found: list[Node] = []

        def find() -> bool:
            for node in self:
                listed = (node.get("/nodes?ver=2&timeout=1s") or {}).get("nodes", [])
                leaders = [
                    each["id"] for each in listed if each.get("leader") and each["reachable"]
                ]
                if leaders:
                    found.append(self[int(leaders[0]) - 1])
                    return found[-1].process is not None
            return False

        wait_until(find)
        return found[-1]

    def close(self) -> None:
        """End all nodes."""
        for node in self:
            node.end()


_single_nodes: list[Nodes] = []


def load_on_node(path: Path, number: int) -> dict[str, str]:
    """Load a catalog on a node that is a cluster of its own; return the settings of its service.

    The nodes run until the tests end. Apps of one test need different numbers.
    """
    while len(_single_nodes) <= number:
        directory = Path(tempfile.mkdtemp())
        _single_nodes.append(Nodes(directory, 1))
        atexit.register(shutil.rmtree, directory)
        atexit.register(_single_nodes[-1].close)
    node = _single_nodes[number][0]
    cluster = Cluster(node.database, rqlite_http.Node(node.url))
    with closing(sqlite3.connect(path, isolation_level=None)) as source:
        set_new_revision(source)
        cluster.load(source)
    cluster.close()
    return {
        "DATABASE": str(node.database),
        "RQLITE": node.url,
        "BUNDLES": f"{path}-bundles",
    }
