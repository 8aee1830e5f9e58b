"""The operator's commands, as processes of their own, while clients read and post."""

import json
from collections.abc import Callable
from pathlib import Path

from bench.generate import document
from tests.conftest import Server, create_demo, flask
from tests.torture.clients import (
    POST,
    READS,
    answers_of,
    asking,
    counted,
    installs,
    median,
    p99,
    wait_for_answers,
)

WIDGETS = 10_000
CLIENTS = [READS, READS, READS, READS, READS, READS, [POST], [POST]]


def test_reads_and_installs_go_on_while_the_operator_works(
    tmp_path: Path, figures: Callable[..., None]
) -> None:
    database = create_demo(tmp_path / "catalog.db")
    catalog, manifest, bundle = (tmp_path / name for name in ("large.jsonl", "m.json", "b.js"))
    lines = (json.dumps(document(number)) + "\n" for number in range(WIDGETS))
    catalog.write_text("".join(lines), encoding="utf-8")
    published = {"scope": "acme", "name": "clock", "version": "99.0.0", "sdkVersion": "*"}
    manifest.write_text(json.dumps(published | {"displayName": "World Clock"}))
    bundle.write_text("export default 1")
    before = installs(database)
    with Server(database) as server:
        with asking(server.port, *CLIENTS) as idle:
            wait_for_answers(idle, 300)
        with asking(server.port, *CLIENTS) as clients:
            flask(database, "import", catalog)
            flask(database, "publish", manifest, bundle, "--bundle-url", "https://cdn.example.com/")
            flask(database, "yank", "acme/clock@99.0.0")
            flask(database, "backup", tmp_path / "backup.db")
        assert server.stop() == 0
    alone, reads = answers_of(idle, "GET"), answers_of(clients, "GET")
    posts = answers_of(idle, "POST") + answers_of(clients, "POST")
    acknowledged = counted(posts, 200)
    refused = [answer for answer in posts if answer.status != 200]
    figures(
        "an import of 10,000 widgets, publish, yank and backup, under 8 clients that read and post",
        "no read fails or waits for them; an install that must wait too long is refused, not lost",
        requests=len(reads) + len(posts),
        failed=len(reads) - counted(reads, 200),
        p99_ms_idle=p99(alone),
        p99_ms_beside=p99(reads),
        acknowledged=acknowledged,
        refused_503=len(refused),
        lost=before + acknowledged - installs(database),
    )
    assert [answer for answer in reads if answer.status != 200] == []
    assert {(answer.status, answer.retry_after) for answer in refused} <= {(503, "5")}
    assert installs(database) == before + acknowledged
    assert installs(tmp_path / "backup.db") <= before + acknowledged
    assert median(reads) < median(alone) * 3 + 5
