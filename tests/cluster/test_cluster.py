"""A catalog on real rqlite nodes: writes, reads, faults, commands. The nodes use loopback only."""

import json
import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from builders import bundled, document, version
from command_lines import LINES
from conftest import (
    DEMO,
    ROOT,
    create_demo,
    error_message,
    exported,
    hold,
    put,
    run,
    run_line,
    running,
)
from flask import Flask
from issuers import AUDIENCE, Issuer, make_key
from publishers import FORM_TYPE, bearer, create_token, form, manifest
from reverse_proxies import make_certificate
from rqlite_nodes import Node, Nodes, require_rqlite, slow_if_emulated, wait_until
from store.test_write_sequences import Catalog, Draw
from upstreams import FakeUpstream

from app import create_app
from catalog.store.connection.revision import SELECT_REVISION
from catalog.store.connection.sqlite import DatabaseError
from catalog.store.connection.transaction import Transaction
from catalog.store.schema.schema import SCHEMA_VERSION
from catalog.system.issuer_keys import IssuerKeys

CLOCK = "/api/v1/widgets/acme/clock"
# Seconds that any install may take.
LONGEST = 6
# By decades; a restored catalog has the time in nanoseconds as its revision.
ADVANCE_CLOCK = "UPDATE revision SET content = content + :ns, downloads = downloads + :ns"


@pytest.fixture(scope="session")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    """Three nodes with the demo catalog; a test that stops some of them restarts them."""
    require_rqlite()
    with closing(Nodes(tmp_path_factory.mktemp("cluster"), 3)) as running:
        assert run(running.app(running[0]), "init", "--demo").exit_code == 0
        running.wait_until_catalog()
        yield running


@pytest.fixture
def apps(nodes: Nodes) -> Iterator[dict[Node, Flask]]:
    """The service beside each node; afterwards all nodes run again."""
    services = {node: nodes.app(node) for node in nodes}
    yield services
    for app in services.values():
        app.extensions["database"].close()
    nodes.restart()


def downloads(app: Flask) -> int:
    response = app.test_client().get(CLOCK)
    assert response.status_code == 200
    return int(response.json["widget"]["downloadCount"])


def health(app: Flask) -> tuple[int, str]:
    response = app.test_client().get("/api/health")
    return response.status_code, response.json["status"]


def install(app: Flask) -> int:
    return app.test_client().post(CLOCK).status_code


def refused_after(app: Flask) -> float:
    """Install, which must be refused in time, and return how many seconds that took."""
    started = time.monotonic()
    response = app.test_client().post(CLOCK)
    seconds = time.monotonic() - started
    # 504 without Retry-After if the leader may have had the install.
    refused = response.status_code, response.headers.get("Retry-After")
    assert refused in {(503, "5"), (504, None)}
    assert seconds < LONGEST
    return seconds


def revision(app: Flask) -> tuple[int, int]:
    row = app.extensions["database"].reader().execute(SELECT_REVISION).fetchone()
    return tuple(row)


def have_equal_revisions(apps: dict[Node, Flask]) -> bool:
    # While a node loads a catalog, it has no file for a moment.
    with suppress(DatabaseError):
        return len({revision(app) for app in apps.values()}) == 1
    return False


def wait_until_equal(apps: dict[Node, Flask]) -> None:
    """Wait until all nodes have the same catalog and the same counters."""
    wait_until(lambda: have_equal_revisions(apps))
    assert len({exported(app) for app in apps.values()}) == 1
    for app in apps.values():
        # A command has set it; requests follow.
        app.extensions["database"].on_wait = None


def test_an_install_is_seen_at_once_on_its_node_and_soon_on_the_others(
    apps: dict[Node, Flask],
) -> None:
    for app in apps.values():
        before = downloads(app)
        assert install(app) == 200
        assert downloads(app) == before + 1
        wait_until(lambda: len({downloads(each) for each in apps.values()}) == 1)


@slow_if_emulated
def test_an_import_is_the_same_as_into_a_file(apps: dict[Node, Flask], tmp_path: Path) -> None:
    changed = tmp_path / "changed.jsonl"
    lines = [json.loads(line) for line in DEMO.read_text(encoding="utf-8").splitlines()]
    for line in lines:
        line["widget"]["displayName"] += " ünicode"
    new = [document(f"bulk/w{number}", version()) for number in range(300)]
    changed.write_text("".join(json.dumps(line) + "\n" for line in [*lines, *new]))
    first, *_ = apps.values()
    backup = tmp_path / "before.db"
    run(first, "backup", backup)
    file_app = create_app({"DATABASE": backup, "BUNDLES": first.config["BUNDLES"]})
    results = {run(app, "import", "--prune", "--yes", changed).stderr for app in (first, file_app)}
    assert ["300 added" in each for each in results] == [True], results
    # A slow node may apply the last part after the command has ended.
    wait_until(lambda: have_equal_revisions(apps))
    assert exported(first) == exported(file_app)
    assert run(first, "check").stdout == run(file_app, "check").stdout
    again = run(first, "import", changed).stderr
    assert again.endswith("0 added, 0 changed, 334 unchanged.\n")
    wait_until_equal(apps)
    file_app.extensions["database"].close()


def without_times(documents: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the documents without the times of what was published now."""
    for each in documents:
        for item in (each["widget"], *each["versions"]):
            key = "publishedAt" if "version" in item else "createdAt"
            item[key] = min(item[key], "2026")
    return documents


@slow_if_emulated
def test_a_sequence_of_writes_has_the_same_result_as_on_a_file(
    apps: dict[Node, Flask], tmp_path: Path, upstream: FakeUpstream
) -> None:
    first, *_ = apps.values()
    original, file = tmp_path / "original.db", tmp_path / "file.db"
    for path in (original, file):
        assert run(first, "backup", path).exit_code == 0
    file_app = create_app({"DATABASE": file, "BUNDLES": first.config["BUNDLES"]})
    catalogs = []
    for name, app in {"nodes": first, "file": file_app}.items():
        (tmp_path / name).mkdir()
        catalogs.append(Catalog(app, tmp_path / name, upstream))
    # With this seed, thirteen kinds of writes are among them.
    for step in Draw(2699).steps(15):
        done_on_nodes, done_in_file = (catalog.do(step) for catalog in catalogs)
        assert done_on_nodes == done_in_file, step
        on_nodes, in_file = (without_times(catalog.export()) for catalog in catalogs)
        assert on_nodes == in_file, step
    assert run(first, "check").exit_code == 0
    assert run(first, "restore", original, "--yes").exit_code == 0
    wait_until_equal(apps)
    file_app.extensions["database"].close()


def test_a_token_publishes_on_every_node_and_no_restore_makes_it_valid_again(
    apps: dict[Node, Flask], tmp_path: Path
) -> None:
    for number, app in enumerate(apps.values()):
        token = create_token(app, f"ci-{number}")
        response = app.test_client().put(
            f"/api/widgets/acme/clock/9.{number}.0",
            data=form(manifest(number=f"9.{number}.0")),
            headers={**bearer(token), "Content-Type": FORM_TYPE},
        )
        assert response.status_code == 201, response.text
        assert run(app, "backup", tmp_path / f"{number}.db").exit_code == 0
        for method, end, body in (
            ("POST", f"/9.{number}.0/yank", {"reason": "Bad."}),
            ("POST", f"/9.{number}.0/deprecate", {"message": "Old."}),
            ("PATCH", "", {"description": "Time.", "listed": False}),
        ):
            path = f"/api/widgets/acme/clock{end}"
            change = app.test_client().open(path, method=method, json=body, headers=bearer(token))
            assert change.status_code == 200, change.text
        entries = json.loads(run(app, "log", "acme/clock", "--json").stdout)[-5:]
        assert [(entry["actor"], entry["action"]) for entry in entries] == [
            (f"ci-{number}", action)
            for action in ("publish", "yank", "deprecate", "describe", "unlist")
        ]
        for command in ("rotate", "revoke"):
            assert run(app, "token", command, f"ci-{number}").exit_code == 0
        restored = run(app, "restore", tmp_path / f"{number}.db", "--yes")
        assert restored.exit_code == 0, restored.stderr
        actions = [e["action"] for e in json.loads(run(app, "log", "--json").stdout)]
        assert actions[-3:] == ["rotate token", "revoke token", "restore"]
        session = app.test_client().get("/api/session", headers=bearer(token))
        assert session.status_code == 401
        app.extensions["database"].on_wait = None


@slow_if_emulated
def test_a_change_of_thousands_of_versions_is_one_transaction(
    apps: dict[Node, Flask], tmp_path: Path
) -> None:
    first, second, _ = apps.values()
    file = tmp_path / "many.jsonl"
    numbers = [version(f"1.{number}.0") for number in range(2_000)]
    file.write_text(json.dumps(document("acme/many", *numbers)))
    assert run(first, "import", file).exit_code == 0
    result = run(first, "yank", "acme/many@*")
    assert result.stderr.count("Yanked acme/many@") == 2_000
    wait_until(lambda: have_equal_revisions(apps))
    detail = second.test_client().get("/api/v1/widgets/acme/many").json
    assert {each["yanked"] for each in detail["versions"]} == {True}
    assert run(first, "delete", "acme/many", "--yes").exit_code == 0
    wait_until_equal(apps)


def test_a_failed_statement_undoes_the_transaction_and_raises_the_error_of_sqlite(
    apps: dict[Node, Flask],
) -> None:
    app = next(iter(apps.values()))
    before = exported(app)

    def change(transaction: Transaction) -> None:
        transaction.execute("UPDATE widget SET description = 'half done'")
        transaction.execute("UPDATE widget SET listed = 2")

    with pytest.raises(sqlite3.IntegrityError, match="CHECK constraint failed: listed"):
        app.extensions["database"].transact(change)
    assert exported(app) == before


@slow_if_emulated
def test_a_widget_that_is_too_large_is_refused_and_named(apps: dict[Node, Flask]) -> None:
    app = next(iter(apps.values()))
    versions = [version(f"1.{number}.0") for number in range(600)]
    line = json.dumps(document("acme/large", *versions))
    assert run(app, "import", "-", stdin=line).exit_code == 0
    message = error_message(run(app, "describe", "acme/large", "--description", "天" * 10_000))
    assert message.startswith("acme/large is too large (600 versions, 18")
    assert run(app, "describe", "acme/large", "--description", "天").exit_code == 0
    assert run(app, "delete", "acme/large", "--yes").exit_code == 0


def test_derived_rows_are_repaired(apps: dict[Node, Flask]) -> None:
    app = next(iter(apps.values()))
    app.extensions["database"].transact(running("UPDATE listing SET downloads = 123456"))
    assert "its listing for search differs from the widget" in run(app, "check").stdout
    assert run(app, "check", "--repair").exit_code == 0
    wait_until_equal(apps)


def test_a_transaction_that_another_node_outran_runs_again_on_what_that_one_wrote(
    apps: dict[Node, Flask],
) -> None:
    first, second, _ = (app.extensions["database"] for app in apps.values())
    seen: list[str] = []

    def append(transaction: Transaction) -> None:
        ((icon,),) = transaction.read("SELECT icon FROM widget WHERE name = 'clock'")
        seen.append(icon)
        if len(seen) == 1:
            # Another node writes between the read and the write of this one.
            sql = "UPDATE widget SET icon = 'mdi:other' WHERE name = 'clock'"
            second.transact(lambda other: other.execute(sql))
        sql = "UPDATE widget SET icon = :icon WHERE name = 'clock'"
        transaction.execute(sql, {"icon": f"{icon}-2"})

    first.transact(append)
    assert seen[1:] == ["mdi:other"]
    ((icon,),) = first.fetch("SELECT icon FROM widget WHERE name = 'clock'", {})
    assert icon == "mdi:other-2"
    restored = "UPDATE widget SET icon = :icon WHERE name = 'clock'"
    first.transact(running(restored, {"icon": seen[0]}))


@pytest.mark.torture
def test_without_a_majority_reads_go_on_and_installs_are_refused_in_time(
    nodes: Nodes, apps: dict[Node, Flask], tmp_path: Path
) -> None:
    wait_until_equal(apps)
    last, *others = nodes
    app = apps[last]
    before = downloads(app)
    for node in others:
        node.end()
    # A write that the leader may have had is refused at once. The first that was surely not done
    # waits for a new leader; once that was in vain, the next ones do not wait as long.
    wait_until(lambda: refused_after(app) > LONGEST / 2)
    assert max(refused_after(app) for _ in range(3)) < LONGEST / 2
    assert health(app) == (503, "read-only")
    assert downloads(app) == before
    assert run(app, "import", "--dry-run", DEMO).exit_code == 0
    assert run(app, "backup", tmp_path / "backup.db").exit_code == 0
    message = error_message(run(app, "unlist", "-q", "acme/clock"))
    assert message.startswith("Cannot write to the cluster: http://127.0.0.1:")
    nodes.restart()
    app.extensions["database"].on_wait = None
    wait_until(lambda: install(app) == 200)
    assert health(app) == (200, "ok")


@pytest.mark.torture
def test_a_service_whose_node_is_stopped_only_reads_until_it_runs_again(
    nodes: Nodes, apps: dict[Node, Flask]
) -> None:
    wait_until_equal(apps)
    follower = nodes.followers()[0]
    app = apps[follower]
    assert health(app) == (200, "ok")
    before = downloads(app)
    follower.end()
    assert install(app) == 503
    assert health(app) == (503, "read-only")
    assert downloads(app) == before
    nodes.restart()
    wait_until(lambda: health(app) == (200, "ok"))
    wait_until(lambda: install(app) == 200)
    assert downloads(app) == before + 1


@slow_if_emulated
def test_a_bundle_that_is_not_on_every_machine_is_reported(
    nodes: Nodes, apps: dict[Node, Flask], tmp_path: Path
) -> None:
    first, second, _ = apps.values()
    (tmp_path / "bundles").mkdir()
    elsewhere = create_app({**nodes.settings(nodes[1]), "BUNDLES": str(tmp_path / "bundles")})
    put(first, document("acme/held", bundled("1.0.0", b"held")))
    hold(first, b"held")
    wait_until_equal(apps)
    assert [health(app) for app in (first, second)] == [(200, "ok")] * 2
    assert health(elsewhere) == (503, "incomplete")
    elsewhere.extensions["database"].close()


@slow_if_emulated
def test_restore_and_unpack_replace_the_catalog_of_all_nodes(
    apps: dict[Node, Flask], tmp_path: Path
) -> None:
    # An import on a node that lacks an install would take its count for that of the file.
    wait_until_equal(apps)
    first, second, third = apps.values()
    held = b"export default 'held'"
    backup, pack = tmp_path / "backup.db", tmp_path / "all.pack"
    other = create_app({"DATABASE": create_demo(tmp_path / "other.db")})
    put(other, document("only/one", bundled("1.0.0", held)))
    hold(other, held)
    assert run(other, "pack", pack).exit_code == 0
    # A pack keeps install counts that are higher, such as those of other tests.
    assert run(first, "import", "--set-counts", DEMO).exit_code == 0
    assert run(first, "backup", backup).exit_code == 0
    # As if the clock of the machine that restored the catalog last was ahead.
    first.extensions["database"].node.execute([(ADVANCE_CLOCK, {"ns": 2 * 10**18})], 5)
    wait_until_equal(apps)
    assert run(second, "unpack", pack, "--yes").exit_code == 0
    assert exported(second) == exported(other)
    wait_until(lambda: run(third, "export").stdout_bytes == exported(other))
    path = "/api/v1/widgets/only/one/1.0.0/bundle.js"
    with third.test_client().get(path) as response:
        assert response.data == held
    assert run(third, "restore", backup, "--yes").exit_code == 0
    wait_until_equal(apps)
    assert third.test_client().get("/api/v1/widgets/only/one").status_code == 404
    other.extensions["database"].close()


@slow_if_emulated
def test_a_catalog_that_is_too_large_to_load_is_refused(
    apps: dict[Node, Flask], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = next(iter(apps.values()))
    assert run(app, "backup", tmp_path / "backup.db").exit_code == 0
    monkeypatch.setattr("catalog.store.connection.cluster.cluster.MAX_LOADED", 10_000)
    message = error_message(run(app, "restore", tmp_path / "backup.db", "--yes"))
    assert "a cluster loads at most 10000. Start one new node" in message


@slow_if_emulated
def test_every_command_succeeds(
    apps: dict[Node, Flask], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    app = next(iter(apps.values()))
    run_line(app, "backup original.db")
    names = {"scope": "acme", "name": "clock", "version": "3.0.0", "sdkVersion": "*"}
    Path("clock.json").write_text(json.dumps(names), encoding="utf-8")
    Path("clock.js").write_text("export default 1", encoding="utf-8")
    Path("installed.txt").write_text("acme/clock@2.0.0\n", encoding="utf-8")
    later = version("2.0.0", yanked=True, deprecationMessage="Old.")
    Path("more.jsonl").write_text(json.dumps(document("acme/clock", version(), later)))
    assert run_line(app, "import more.jsonl --prune --yes").exit_code == 0
    assert run_line(app, "backup older.db").exit_code == 0
    assert run_line(app, "backup --dir backups").exit_code == 0
    assert run_line(app, "pack older.pack").exit_code == 0
    for name, line in (LINES | {"cluster": "cluster status"}).items():
        result = run_line(app, line)
        assert result.exit_code == 0, (name, result.output)
        if name == "delete":
            run_line(app, "restore older.db --yes")
    assert run_line(app, "restore original.db --yes").exit_code == 0


@slow_if_emulated
def test_cluster_status_shows_the_state_of_each_node(nodes: Nodes, apps: dict[Node, Flask]) -> None:
    wait_until_equal(apps)
    leader, follower = nodes.leader(), nodes.followers()[0]
    app = apps[leader]
    result = run(app, "cluster", "status", "--json")
    assert (result.exit_code, result.stderr) == (0, "3 nodes, all in order.\n")
    assert json.loads(result.stdout) == [
        {
            "id": node.directory.name.removeprefix("node"),
            "address": f"127.0.0.1:{node.raft_port}",
            "role": "leader" if node is leader else "follower",
            "reachable": True,
        }
        for node in nodes
    ]
    follower.end()
    result = run(app, "cluster", "status")
    assert (result.exit_code, result.stderr) == (1, "Error: 1 of 3 nodes cannot be reached.\n")
    assert "False" in result.stdout


BREAK_DERIVED = "UPDATE widget SET folded_name = 'x', folded_text = 'x' WHERE name = 'clock'"


@slow_if_emulated
def test_check_repairs_the_derived_rows_of_all_nodes(apps: dict[Node, Flask]) -> None:
    wait_until_equal(apps)
    first, second, _ = apps.values()
    # As a command has it, to wait longer.
    first.extensions["database"].on_wait = lambda: None
    first.extensions["database"].transact(running(BREAK_DERIVED))
    wait_until(lambda: have_equal_revisions(apps))
    problem = "acme/clock: an import would store different values for folded_name, folded_text."
    assert problem in run(second, "check").stdout
    result = run(second, "check", "--repair")
    assert result.stderr.startswith("Rebuilt the derived rows.\n")
    assert problem not in result.stdout
    wait_until(lambda: problem not in run(first, "check").stdout)
    wait_until_equal(apps)


def test_cluster_status_without_a_cluster_is_an_error(app_with: Callable[..., Flask]) -> None:
    message = "CATALOG_RQLITE is not set: this catalog is a single file, not a cluster."
    assert error_message(run(app_with(), "cluster", "status")) == message


def test_a_file_that_is_not_that_of_the_node_is_not_served(nodes: Nodes) -> None:
    own, other = nodes[0], nodes[1]
    app = create_app(nodes.settings(own) | {"DATABASE": str(other.database)})
    assert error_message(run(app, "serve")) == (
        f"{other.database} is not the file of {own.url}. Set CATALOG_DATABASE to {own.database}."
    )


@slow_if_emulated
def test_nodes_that_do_not_check_foreign_keys_are_not_served(tmp_path: Path) -> None:
    require_rqlite()
    with closing(Nodes(tmp_path, 1, "-fk=false")) as nodes:
        app = nodes.app(nodes[0])
        assert error_message(run(app, "serve")) == (
            f"{nodes[0].url} does not check foreign keys. Start rqlite with the -fk option."
        )


@pytest.fixture
def secured(tmp_path: Path) -> Iterator[tuple[Node, dict[str, Any]]]:
    """A node with TLS and a password, and the settings of its service."""
    require_rqlite()
    make_certificate(tmp_path)
    names = ("fullchain.pem", "privkey.pem", "users.json")
    certificate, key, users = (tmp_path / name for name in names)
    entry = {"username": "catalog", "password": "s:ecret/", "perms": ["all"]}
    users.write_text(json.dumps([entry]))
    options = ["-http-cert", str(certificate), "-http-key", str(key), "-auth", str(users)]
    user = tmp_path / "user"
    user.touch(mode=0o600)
    user.write_text("catalog:s:ecret/\n")
    with closing(Nodes(tmp_path, 1, *options, user="catalog:s:ecret/")) as nodes:
        files = {"RQLITE_AUTH": str(user), "RQLITE_CA": str(certificate)}
        yield nodes[0], nodes.settings(nodes[0]) | files


@slow_if_emulated
def test_a_node_with_tls_and_a_password_is_used_and_the_password_is_never_shown(
    secured: tuple[Node, dict[str, Any]],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    node, settings = secured
    app = create_app(settings)
    assert run(app, "init", "--demo").exit_code == 0
    assert install(app) == 200
    assert run(app, "cluster", "status").exit_code == 0
    Path(settings["RQLITE_AUTH"]).write_text("catalog:x:ecret/\n")
    wrong = create_app(settings)
    message = error_message(run(wrong, "unlist", "acme/clock"))
    assert message == f"{node.url} rejected the user name or password in CATALOG_RQLITE_AUTH."
    assert install(wrong) == 503
    monkeypatch.setattr("catalog.store.connection.cluster.cluster.RETRY_TIME", 0)
    distrusted = create_app(settings | {"RQLITE_CA": ""})
    message = error_message(run(distrusted, "unlist", "-q", "acme/clock"))
    assert message == f"Cannot write to the cluster: {node.url} cannot be reached."
    assert "ecret" not in message + caplog.text


@slow_if_emulated
def test_another_schema_version_is_refused_until_the_cluster_is_migrated(
    tmp_path: Path,
) -> None:
    require_rqlite()
    with closing(Nodes(tmp_path, 1)) as nodes:
        app = nodes.app(nodes[0])
        assert run(app, "init", "--demo").exit_code == 0
        before = exported(app)
        app.extensions["database"].node.execute([("PRAGMA user_version = 2", {})], 5)
        app.extensions["database"].close()
        message = error_message(run(app, "serve"))
        assert message == (
            f"{nodes[0].database} has schema version 2, but this release needs "
            f"{SCHEMA_VERSION}. Stop all services in "
            "the cluster, run widget-catalog migrate once, and start them again."
        )
        assert "has schema version 2" in error_message(run(app, "list"))
        assert run(app, "migrate").exit_code == 0
        assert exported(app) == before
        assert run(app, "check").stdout.count("\n") == 1


@slow_if_emulated
def test_the_tests_of_reads_publish_and_changes_pass_on_a_node() -> None:
    require_rqlite()
    names = ("api/test_search", "commands/test_publish", "api/test_changes")
    # These tests are about the lock of a file.
    options = ("-q", "-n0", "-k", "not concurrent_processes and not write_lock")
    result = subprocess.run(
        [sys.executable, "-m", "pytest", *options, *(f"tests/{name}.py" for name in names)],
        cwd=ROOT,
        env={**os.environ, "TEST_ON_RQLITE": "1"},
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stdout[-5000:]
    assert " passed" in result.stdout


def exchange(app: Flask, id_token: str) -> tuple[int, Any]:
    response = app.test_client().post("/api/session", json={"idToken": id_token})
    return response.status_code, response.json


def test_an_id_token_is_accepted_once_on_all_nodes_and_its_token_works_on_each(
    apps: dict[Node, Flask],
) -> None:
    services = [*apps.values()]
    with closing(Issuer()) as issuer:
        add = f"trust add ci --issuer {issuer.url} --claim repository=acme/clock --scope acme"
        assert run_line(services[0], add).exit_code == 0
        wait_until_equal(apps)
        for app in services:
            app.config["PUBLIC_URL"] = AUDIENCE
            # Between two requests a minute passes, so that each may fetch the keys.
            app.extensions["issuer_keys"] = IssuerKeys(partial(next, count(1000, 60)))
        for number, app in enumerate(services):
            # Each node finds the new key of the issuer.
            issuer.keys = {f"key {number}": make_key(number=1 + number % 2)}
            id_token = issuer.sign()
            status, session = exchange(app, id_token)
            assert status == 200, session
            for other in services:
                assert exchange(other, id_token) == (
                    403,
                    {"error": "The id token was already used; it is accepted only once."},
                )
            wait_until_equal(apps)
            for other in services:
                response = other.test_client().get("/api/session", headers=bearer(session["token"]))
                assert (response.status_code, response.json["trust"]) == (200, "ci")
        assert run_line(services[1], "trust remove ci").exit_code == 0
        wait_until_equal(apps)
        for app in services:
            response = app.test_client().get("/api/session", headers=bearer(session["token"]))
            assert response.json == {"error": "The trust ci was removed."}
            app.extensions["database"].on_wait = None


def test_of_simultaneous_uses_of_an_id_token_one_is_accepted(apps: dict[Node, Flask]) -> None:
    services = [*apps.values()]
    with closing(Issuer()) as issuer:
        add = f"trust add race --issuer {issuer.url} --claim repository=acme/clock --scope acme"
        assert run_line(services[0], add).exit_code == 0
        wait_until_equal(apps)
        for app in services:
            app.config["PUBLIC_URL"] = AUDIENCE
        for _ in range(5):
            id_token = issuer.sign()
            with ThreadPoolExecutor(len(services)) as pool:
                results = [*pool.map(exchange, services, [id_token] * len(services))]
            assert sorted(status for status, _ in results) == [200, 403, 403]
        assert run_line(services[0], "trust remove race").exit_code == 0
        services[0].extensions["database"].on_wait = None
