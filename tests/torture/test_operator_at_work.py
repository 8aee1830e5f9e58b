"""Commands that run in other processes while clients read and post."""

import json
from collections.abc import Callable
from pathlib import Path

from conftest import Server, create_demo, flask
from torture.clients import (
    POST,
    READS,
    count_status,
    installs,
    median,
    p99,
    responses_to,
    running_clients,
    wait_for_responses,
)

from bench.generate import document

WIDGETS = 10_000
CLIENTS = [READS, READS, READS, READS, READS, READS, [POST], [POST]]


def test_reads_and_installs_go_on_while_commands_run(
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
        with running_clients(server.port, *CLIENTS) as idle:
            wait_for_responses(idle, 300)
        with running_clients(server.port, *CLIENTS) as clients:
            flask(database, "import", catalog)
            flask(database, "publish", manifest, bundle, "--bundle-url", "https://cdn.example.com/")
            flask(database, "yank", "acme/clock@99.0.0")
            flask(database, "backup", tmp_path / "backup.db")
        assert server.stop() == 0
    alone, reads = responses_to(idle, "GET"), responses_to(clients, "GET")
    posts = responses_to(idle, "POST") + responses_to(clients, "POST")
    acknowledged = count_status(posts, 200)
    refused = [response for response in posts if response.status != 200]
    figures(
        "an import of 10,000 widgets, publish, yank and backup, under 8 clients that read and post",
        "no read fails or waits, and every install is counted",
        requests=len(reads) + len(posts),
        failed=len(reads) - count_status(reads, 200),
        p99_ms_idle=p99(alone),
        p99_ms_beside=p99(reads),
        acknowledged=acknowledged,
        refused_503=len(refused),
        longest_install_s=round(max(each.milliseconds for each in posts) / 1000, 1),
        lost=before + acknowledged - installs(database),
    )
    assert [response for response in reads if response.status != 200] == []
    assert refused == []
    assert installs(database) == before + acknowledged
    assert installs(tmp_path / "backup.db") <= before + acknowledged
    assert median(reads) < median(alone) * 3 + 5
