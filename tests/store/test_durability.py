"""What is acknowledged survives a loss of power: the order of the calls that write to the disk.

strace records them in a real process. A file is synced before it gets its name, then the directory
with the name, then the commit that names it, then the response is sent.
"""

import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from builders import document
from conftest import Server, create_catalog, create_demo, run_here, run_on
from programs import find_program
from publishers import FORM_TYPE, bearer, create_token, form, manifest
from upstreams import FakeUpstream

from catalog.store.connection.database import Database

RENAMES = "?rename,?renameat,?renameat2"
CALLS = f"trace=fsync,fdatasync,sendto,sendmsg,{RENAMES}"
SYNC = re.compile(r"\d+ +f(?:data)?sync\(\d+<(.*?)>")
RENAME = re.compile(r'\d+ +rename\w*\(.*?"(.*?)".*"(.*?)"')
SEND = re.compile(r'\d+ +send.*"HTTP/1\.1 (\d+)')
COMMIT = "sync catalog.db-wal"


class Trace:
    """The calls of a process, which is started with the command run_by."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._file = folder, folder / "trace"
        strace = find_program("strace")
        probe = [strace, "-o", os.devnull, "true"]
        result = subprocess.run(probe, capture_output=True, text=True, check=False)
        if result.returncode:
            skip_or_fail = pytest.fail if os.environ.get("REQUIRE_STRACE") else pytest.skip
            skip_or_fail(f"strace may not trace here: {result.stderr.splitlines()[-1]}")
        # With -D the process is a child of the test, which can stop it.
        options = ["-D", "-f", "-qq", "-y", "-s", "20", "-e", CALLS, "-e", "signal=none"]
        self.run_by = [strace, *options, "-o", str(self._file), "--"]

    def calls(self) -> list[str]:
        """Return the calls in order; paths are relative, and a repeated call is there once."""
        found: list[str] = []
        for line in self._file.read_text(encoding="utf-8", errors="replace").splitlines():
            if match := SYNC.match(line):
                call = f"sync {self._short(match[1])}"
            elif match := RENAME.match(line):
                call = f"rename {self._short(match[1])} {self._short(match[2])}"
            elif match := SEND.match(line):
                call = f"send {match[1]}"
            else:
                continue
            if found[-1:] != [call]:
                found.append(call)
        return found

    def bundle_calls(self) -> list[str]:
        """Return the calls from the first one for a bundle on: for bundles, commits, responses."""
        calls = [each for each in self.calls() if re.search("bundles|catalog.db-wal|send", each)]
        begin = next(index for index, each in enumerate(calls) if "HASH" in each)
        return calls[begin:]

    def _short(self, path: str) -> str:
        relative = os.path.relpath(path, self._folder)
        named = re.sub(r"[0-9a-f]{64}(\.\w{8}(?=\.gz))?", "HASH", relative)
        return re.sub(r"\.widget-catalog-\w{8}", "SCRATCH", named)


@pytest.fixture
def trace(tmp_path: Path) -> Trace:
    return Trace(tmp_path)


@pytest.mark.parametrize("command", [["export", "files/new.jsonl"], ["backup", "--dir", "files"]])
def test_new_file_is_synced_before_it_gets_its_name_and_the_directory_after(
    trace: Trace, tmp_path: Path, command: list[str]
) -> None:
    database = create_catalog(tmp_path / "catalog.db", document())
    (tmp_path / "files").mkdir()
    *options, target = command
    result = run_here(database, "-m", "flask", *options, tmp_path / target, run_by=trace.run_by)
    assert result.returncode == 0, result.stderr
    (new,) = (tmp_path / "files").iterdir()
    # SQLite syncs the files of a backup more often.
    *calls, renamed, synced = [each for each in trace.calls() if "files" in each]
    assert (renamed, synced) == (f"rename files/SCRATCH/new files/{new.name}", "sync files")
    # A backup is moved from a directory of its own to that of the dated file.
    moved = ["rename files/SCRATCH/SCRATCH/new files/SCRATCH/new", "sync files/SCRATCH"]
    if calls[-2:] == moved:
        assert calls[-3] == "sync files/SCRATCH/SCRATCH/new"
    else:
        assert calls[-1] == "sync files/SCRATCH/new"


def test_bundle_is_synced_before_its_version_is_committed_and_that_before_the_response(
    trace: Trace, tmp_path: Path
) -> None:
    path = create_catalog(tmp_path / "catalog.db", document("acme/notes"))
    token = create_token(database := Database(path))
    database.close()
    with Server(path, trace.run_by) as server:
        response, _ = server.request(
            "PUT",
            "/api/widgets/acme/clock/1.0.0",
            form(manifest()),
            Content_Type=FORM_TYPE,
            **bearer(token),
        )
        assert response.status == 201
        assert server.request("POST", "/api/v1/widgets/acme/notes")[0].status == 200
        assert server.stop() == 0
    publication = [
        "sync catalog.db-bundles/HASH.partial",
        "rename catalog.db-bundles/HASH.partial catalog.db-bundles/HASH",
        "sync catalog.db-bundles",
        COMMIT,
        "send 201",
    ]
    install = [COMMIT, "send 200"]
    assert trace.bundle_calls()[:7] == [*publication, *install]


# A call for one of many bundles stands for all of them.
RECEIVED = [
    "sync catalog.db-bundles/SCRATCH/HASH.partial",
    "rename catalog.db-bundles/SCRATCH/HASH.partial catalog.db-bundles/SCRATCH/HASH",
    "rename catalog.db-bundles/SCRATCH/HASH catalog.db-bundles/HASH",
]
COMPRESSED = [
    "sync catalog.db-bundles/SCRATCH/HASH.gz.partial",
    "rename catalog.db-bundles/SCRATCH/HASH.gz.partial catalog.db-bundles/SCRATCH/HASH.gz",
    "rename catalog.db-bundles/SCRATCH/HASH.gz catalog.db-bundles/HASH.gz",
]


def sorted_calls(calls: list[str]) -> tuple[list[str], list[str]]:
    """Return each call once: those for compressed forms of bundles, and the others."""
    once = dict.fromkeys(calls)
    return [call for call in once if ".gz" in call], [call for call in once if ".gz" not in call]


def mirror(folder: Path, upstream: FakeUpstream) -> tuple[Path, list[object]]:
    """Return an empty catalog, and the command that mirrors a widget and its bundle."""
    upstream.put(document("acme/clock", upstream.with_bundle("1.0.0", b"export default 1\n" * 100)))
    return create_catalog(folder / "catalog.db"), ["mirror", upstream.url, "--bundles"]


def unpack(folder: Path, upstream: FakeUpstream) -> tuple[Path, list[object]]:
    """Return an empty catalog, and the command that replaces it with a pack."""
    (folder / "other").mkdir()
    pack = folder / "other" / "catalog.pack"
    assert run_on(create_demo(folder / "other" / "demo.db"), "pack", pack).exit_code == 0
    return create_catalog(folder / "catalog.db"), ["unpack", "--yes", pack]


@pytest.mark.parametrize("prepare", [mirror, unpack])
def test_received_bundles_are_synced_before_their_versions_are_committed(
    trace: Trace,
    tmp_path: Path,
    upstream: FakeUpstream,
    prepare: Callable[[Path, FakeUpstream], tuple[Path, list[object]]],
) -> None:
    database, command = prepare(tmp_path, upstream)
    result = run_here(database, "-m", "flask", *command, run_by=trace.run_by)
    assert result.returncode == 0, result.stderr
    calls = trace.bundle_calls()
    assert sorted_calls(calls[: calls.index(COMMIT) + 1]) == (
        COMPRESSED,
        [*RECEIVED, "sync catalog.db-bundles", COMMIT],
    )


def test_bundles_that_are_unpacked_alone_are_synced(trace: Trace, tmp_path: Path) -> None:
    database, pack = create_demo(tmp_path / "catalog.db"), tmp_path / "catalog.pack"
    assert run_on(database, "pack", pack).exit_code == 0
    for bundle in (tmp_path / "catalog.db-bundles").iterdir():
        bundle.unlink()
    command = ["unpack", "--bundles-only", pack]
    result = run_here(database, "-m", "flask", *command, run_by=trace.run_by)
    assert result.returncode == 0, result.stderr
    expected = COMPRESSED, [*RECEIVED, "sync catalog.db-bundles"]
    assert sorted_calls(trace.bundle_calls()) == expected
