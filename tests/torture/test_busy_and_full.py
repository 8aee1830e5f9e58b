"""A file that others hold, that cannot grow, or that is exchanged, while clients read and post."""

import json
import shutil
import sqlite3
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from tests.conftest import Server, create_demo
from tests.torture.clients import (
    CLOCK,
    POST,
    READS,
    Answer,
    answers_of,
    asking,
    counted,
    installs,
    median,
    p99,
    wait_for_answers,
)

CLIENTS = [READS, READS, READS, READS, [POST], [POST], [POST], [POST]]
HELD = 60  # seconds
ROUNDS = 10
REFUSED = (503, "5")


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return create_demo(tmp_path / "catalog.db")


@pytest.fixture
def small_disc(tmp_path: Path) -> Iterator[Path]:
    """A file system of two megabytes."""
    disc = tmp_path / "disc"
    disc.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(disc)]
    if shutil.which("mount") is None or subprocess.run(mount, check=False).returncode:
        pytest.skip("only root may mount a file system, and not everywhere")
    yield disc
    subprocess.run(["umount", str(disc)], check=True)


def kinds(answers: list[Answer]) -> set[tuple[int, str | None]]:
    return {(answer.status, answer.retry_after) for answer in answers}


def test_another_process_holds_the_write_lock_for_a_minute(
    database: Path, figures: Callable[..., None]
) -> None:
    before = installs(database)
    with Server(database, CATALOG_THREADS="1") as server:
        with asking(server.port, *[READS] * 8) as alone:
            wait_for_answers(alone, 500)
        with closing(sqlite3.connect(database, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            with asking(server.port, *[READS] * 8, *[[POST]] * 8) as clients:
                time.sleep(HELD)  # the fault itself, not a wait for something to happen
            other.execute("ROLLBACK")
        with asking(server.port, *[[POST]] * 8) as released:
            wait_for_answers(released, 20)
        assert server.stop() == 0
    idle, reads = answers_of(alone, "GET"), answers_of(clients, "GET")
    refused, after = answers_of(clients, "POST"), answers_of(released, "POST")
    figures(
        "another process holds the write lock for 60 s, under 8 clients that read and 8 that post",
        "reads go on, installs are refused in time and not counted, all is well once it is free",
        seconds=HELD,
        requests=len(reads) + len(refused),
        failed=len(reads) - counted(reads, 200),
        p99_ms_idle=p99(idle),
        p99_ms_beside=p99(reads),
        refused_503=len(refused),
        longest_wait_s=round(max(answer.took for answer in refused) / 1000, 1),
        acknowledged_after=len(after),
        lost=before + len(after) - installs(database),
    )
    assert kinds(reads) == {(200, None)}
    assert kinds(refused) == {REFUSED}
    assert kinds(after) == {(200, None)}
    assert installs(database) == before + len(after)
    assert max(answer.took for answer in refused) < 10_000
    assert median(reads) < median(idle) * 3 + 5


def test_a_disc_that_fills_up_again_and_again(
    small_disc: Path, figures: Callable[..., None]
) -> None:
    database, filler = create_demo(small_disc / "catalog.db"), small_disc / "filler"
    before = installs(database)
    with Server(database) as server:
        with asking(server.port, *CLIENTS) as clients:
            for _ in range(ROUNDS):
                with filler.open("wb", buffering=0) as file, suppress(OSError):
                    while file.write(bytes(4096)):
                        pass
                wait_for_answers(clients, 20)
                filler.unlink()
                assert health(server) == (200, "ok")
                wait_for_answers(clients, 5)
        assert server.stop() == 0
    reads, posts = answers_of(clients, "GET"), answers_of(clients, "POST")
    acknowledged = counted(posts, 200)
    figures(
        "a disc that fills up and gets room again, under 8 clients that read and post",
        "reads go on, installs too while the log has room, else they are refused and not counted",
        rounds=ROUNDS,
        requests=len(reads) + len(posts),
        failed=len(reads) - counted(reads, 200),
        acknowledged=acknowledged,
        refused_503=len(posts) - acknowledged,
        lost=before + acknowledged - installs(database),
    )
    assert kinds(reads) == {(200, None)}
    assert kinds(posts) <= {(200, None), REFUSED}
    assert installs(database) == before + acknowledged


def health(server: Server) -> tuple[int, str]:
    response, body = server.request("GET", "/api/health")
    return response.status, json.loads(body)["status"]


def test_a_file_that_is_exchanged_again_and_again(
    database: Path, figures: Callable[..., None]
) -> None:
    """Each file is put aside with all that was acknowledged on it, and is as sound as the next."""
    away = [database.with_name(f"away-{number}.db") for number in range(ROUNDS)]
    before = installs(database)
    with Server(database) as server:
        with asking(server.port, *CLIENTS) as clients:
            for aside in away:
                spare = create_demo(database.with_name("spare.db"))
                wait_for_answers(clients, 10)
                database.rename(aside)
                assert health(server) == (503, "unavailable")
                spare.rename(database)
                wait_for_answers(clients, 10)
        assert health(server) == (200, "ok")
        assert server.request("GET", CLOCK)[0].status == 200
        assert server.stop() == 0
        assert "Traceback" not in server.errors
    answers = answers_of(clients, "GET") + answers_of(clients, "POST")
    acknowledged = counted(answers_of(clients, "POST"), 200)
    kept = sum(installs(each) - before for each in [*away, database])
    figures(
        "a file moved away and another put in its place, under 8 clients that read and post",
        "503 in between, then the new file without a restart; each keeps what it acknowledged",
        rounds=ROUNDS,
        requests=len(answers),
        acknowledged=acknowledged,
        unavailable_503=len(answers) - counted(answers, 200),
        lost=acknowledged - kept,
    )
    assert kinds(answers) == {(200, None), REFUSED}
    assert kept == acknowledged
