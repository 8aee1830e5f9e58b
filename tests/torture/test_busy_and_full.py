"""A file that is locked, cannot grow, or is replaced, while clients read and post."""

import json
import shutil
import sqlite3
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest
from conftest import Server, create_demo
from torture.clients import (
    POST,
    READS,
    Response,
    count_status,
    installs,
    median,
    p99,
    responses_to,
    running_clients,
    wait_for_responses,
)

CLIENTS = [READS, READS, READS, READS, [POST], [POST], [POST], [POST]]
LOCKED = 60  # seconds
ROUNDS = 10
REFUSED = (503, "5")


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return create_demo(tmp_path / "catalog.db")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of two megabytes."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(disk)]
    if shutil.which("mount") is None or subprocess.run(mount, check=False).returncode:
        pytest.skip("only root may mount a file system, and not everywhere")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


def outcomes(responses: list[Response]) -> set[tuple[int, str | None]]:
    return {(response.status, response.retry_after) for response in responses}


def test_another_process_holds_the_write_lock_for_a_minute(
    database: Path, figures: Callable[..., None]
) -> None:
    before = installs(database)
    with Server(database) as server:
        with running_clients(server.port, *[READS] * 8) as alone:
            wait_for_responses(alone, 500)
        with closing(sqlite3.connect(database, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            with running_clients(server.port, *[READS] * 8, *[[POST]] * 8) as clients:
                # This is the fault itself, not a wait for an event.
                time.sleep(LOCKED)
            other.execute("ROLLBACK")
        with running_clients(server.port, *[[POST]] * 8) as released:
            wait_for_responses(released, 20)
        assert server.stop() == 0
    idle, reads = responses_to(alone, "GET"), responses_to(clients, "GET")
    refused, after = responses_to(clients, "POST"), responses_to(released, "POST")
    figures(
        "another process holds the write lock for 60 s, under 8 clients that read and 8 that post",
        "reads go on, installs are refused within 10 s and not counted; both work once it is free",
        seconds=LOCKED,
        requests=len(reads) + len(refused),
        failed=len(reads) - count_status(reads, 200),
        p99_ms_idle=p99(idle),
        p99_ms_beside=p99(reads),
        refused_503=len(refused),
        longest_wait_s=round(max(response.milliseconds for response in refused) / 1000, 1),
        acknowledged_after=len(after),
        lost=before + len(after) - installs(database),
    )
    assert outcomes(reads) == {(200, None)}
    assert outcomes(refused) == {REFUSED}
    assert outcomes(after) == {(200, None)}
    assert installs(database) == before + len(after)
    assert max(response.milliseconds for response in refused) < 10_000
    assert median(reads) < median(idle) * 3 + 5


def test_a_disk_that_fills_up_again_and_again(
    small_disk: Path, figures: Callable[..., None]
) -> None:
    database, filler = create_demo(small_disk / "catalog.db"), small_disk / "filler"
    before = installs(database)
    with Server(database) as server:
        with running_clients(server.port, *CLIENTS) as clients:
            for _ in range(ROUNDS):
                with filler.open("wb", buffering=0) as file, suppress(OSError):
                    while file.write(bytes(4096)):
                        pass
                wait_for_responses(clients, 20)
                filler.unlink()
                assert health(server) == (200, "ok")
                wait_for_responses(clients, 5)
        assert server.stop() == 0
    reads, posts = responses_to(clients, "GET"), responses_to(clients, "POST")
    acknowledged = count_status(posts, 200)
    figures(
        "a disk that fills up and has space again, under 8 clients that read and post",
        "reads go on; so do installs while the WAL has space, else 503 and not counted",
        rounds=ROUNDS,
        requests=len(reads) + len(posts),
        failed=len(reads) - count_status(reads, 200),
        acknowledged=acknowledged,
        refused_503=len(posts) - acknowledged,
        lost=before + acknowledged - installs(database),
    )
    assert outcomes(reads) == {(200, None)}
    assert outcomes(posts) <= {(200, None), REFUSED}
    assert installs(database) == before + acknowledged


def health(server: Server) -> tuple[int, str]:
    response, body = server.request("GET", "/api/health")
    return response.status, json.loads(body)["status"]


def test_a_file_that_is_replaced_again_and_again(
    database: Path, figures: Callable[..., None]
) -> None:
    """Each file has all installs that were acknowledged while it was at the path."""
    replaced = [database.with_name(f"replaced-{number}.db") for number in range(ROUNDS)]
    before = installs(database)
    responses: list[Response] = []
    unknown = 0
    for path in replaced:
        spare = create_demo(database.with_name("spare.db"))
        with Server(database) as server:
            with running_clients(server.port, *CLIENTS) as clients:
                wait_for_responses(clients, 10)
                database.rename(path)
                spare.rename(database)
                _, errors = server.process.communicate(timeout=30)
            assert server.process.returncode == 1
            assert len(errors.splitlines()) == 1
        responses += responses_to(clients, "GET") + responses_to(clients, "POST")
        unknown += sum(client.unknown for client in clients)
    posts = [response for response in responses if response.method == "POST"]
    acknowledged = count_status(posts, 200)
    stored = sum(installs(each) - before for each in [*replaced, database])
    figures(
        "a file moved away and another put in its place, under 8 clients that read and post",
        "the service ends with an error, and the file that was moved has its installs",
        rounds=ROUNDS,
        requests=len(responses),
        acknowledged=acknowledged,
        unavailable_503=len(responses) - count_status(responses, 200),
        lost=max(acknowledged - stored, 0),
    )
    assert outcomes(responses) <= {(200, None), REFUSED}
    assert acknowledged <= stored <= acknowledged + unknown
    assert installs(database) == before
