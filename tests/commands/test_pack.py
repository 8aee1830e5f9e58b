"""widget-catalog pack and widget-catalog unpack: a whole catalog with its bundles in one file."""

import hashlib
import io
import json
import random
import tarfile
import tracemalloc
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from builders import bundled, document, version
from conftest import (
    Server,
    create_catalog,
    exported,
    hold,
    run,
    run_at_terminal,
    running,
    start_command,
)
from flask import Flask
from publishers import FORM_TYPE, bearer, create_token, form
from publishers import manifest as publication

from app import create_app
from catalog.store.write import mirrored as mirror_writes

AppWith = Callable[..., Flask]
Members = dict[str, bytes]
TICK, TOCK = b"export default 'tick'\n", b"export default 'tock'\n" * 100_000
# A bundle that is in no pack.
OLD = b"export default 'old'\n"
HASHES = [hashlib.sha256(content).hexdigest() for content in (TICK, TOCK)]
ODD_FIELDS = {
    "displayName": "Météo 天気 \U0001f552",
    "description": "<b>\n\u2028",
    "downloadCount": 12,
}
DOCUMENTS = [
    document(
        "acme/clock",
        bundled("1.0.0", TICK),
        bundled("2.0.0+a", TOCK),
        version("3.0.0"),
        **ODD_FIELDS,
    ),
    document("acme/same", bundled("1.0.0", TICK), isOfficial=True),
    document("beta/hidden", bundled("0.1.0", TOCK), listed=False, downloadCount=0),
    document("beta/none"),
]
for each in DOCUMENTS:
    each["widget"]["createdAt"] = "2025-01-02T03:04:05.000Z"
ELSEWHERE = "Warning: acme/clock@3.0.0 has no stored bundle, and needs a network.\n"
MIRRORED = [
    mirror_writes.MirroredWidget("acme", "clock", "https://up.example", '"e1"', 10),
    mirror_writes.MirroredWidget("acme", "same", "https://up.example", None, None),
]


def record(app: Flask, widgets: list[mirror_writes.MirroredWidget]) -> None:
    """Record where widgets were copied from."""
    put = partial(mirror_writes.put_mirrored, widgets=widgets)
    app.extensions["database"].transact(put)


@pytest.fixture
def app(app_with: AppWith) -> Flask:
    """A catalog with everything that a pack can contain."""
    app = app_with(*DOCUMENTS)
    fill(app)
    return app


def fill(app: Flask) -> None:
    """Add the bundles and what a mirror has stored."""
    record(app, MIRRORED)
    hold(app, TICK, TOCK)


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Members:
    """The members of a pack of that catalog."""
    folder = tmp_path_factory.mktemp("packed")
    app = create_app({"DATABASE": create_catalog(folder / "catalog.db", *DOCUMENTS)})
    fill(app)
    content = pack(app, folder / "all.pack")
    app.extensions["database"].close()
    return read_members(content)


@pytest.fixture
def other(tmp_path: Path) -> Iterator[Flask]:
    """An app without a database yet, in a directory of its own."""
    (tmp_path / "other").mkdir()
    app = create_app({"DATABASE": tmp_path / "other" / "catalog.db"})
    yield app
    app.extensions["database"].close()


def pack(app: Flask, path: Path) -> bytes:
    result = run(app, "pack", path)
    assert result.exit_code == 0, result.output
    return path.read_bytes()


def read_members(content: bytes) -> Members:
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        return {each.name: archive.extractfile(each).read() for each in archive}


def build_pack(members: Members, *, update_sums: bool = False) -> bytes:
    """Return a pack of these members; update_sums makes its SHA256SUMS match them."""
    if update_sums:
        rest = {name: content for name, content in members.items() if name != "SHA256SUMS"}
        lines = (f"{hashlib.sha256(rest[name]).hexdigest()}  {name}\n" for name in rest)
        members = {"SHA256SUMS": "".join(lines).encode(), **rest}
    output = io.BytesIO()
    with tarfile.open(fileobj=output, mode="w") as archive:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return output.getvalue()


def read_files(app: Flask) -> dict[str, bytes]:
    """Return the content of every file beside the database, by its name."""
    app.extensions["database"].close()
    top = Path(app.config["DATABASE"]).parent
    return {
        str(path.relative_to(top)): path.read_bytes() for path in top.rglob("*") if path.is_file()
    }


def responses(app: Flask) -> dict[str, Any]:
    """Return the export, and every page, detail, registry and stored bundle of a catalog."""
    client = app.test_client()
    paths = [f"/api/v1/widgets/search?limit=3&page={page}" for page in range(1, 15)]
    paths += ["/api/v1/widgets/search?q=clock&compatSdk=1.0.0", "/api/stats"]
    for line in exported(app).splitlines():
        widget = json.loads(line)["widget"]
        detail = f"/api/v1/widgets/{widget['scope']}/{widget['name']}"
        paths += [detail, f"/api/widgets/{widget['scope']}/registry.json"]
        urls = [urlsplit(each["bundleUrl"]) for each in client.get(detail).json.get("versions", [])]
        paths += [url.path for url in urls if url.netloc == "localhost"]
    result: dict[str, Any] = {"export": exported(app)}
    for path in paths:
        with client.get(path) as response:
            result[path] = (response.status_code, response.data)
    return result


def test_unpacked_catalog_gives_the_same_responses(
    app: Flask, other: Flask, tmp_path: Path
) -> None:
    pack(app, tmp_path / "all.pack")
    result = run(other, "unpack", tmp_path / "all.pack")
    path = other.config["DATABASE"]
    assert (result.exit_code, result.stdout) == (0, "")
    unpacked = f"Unpacked 4 widgets and 5 versions into {path}, with 2 bundles and pictures.\n"
    assert result.stderr == f"{ELSEWHERE}{unpacked}"
    assert responses(other) == responses(app)
    assert "/api/v1/widgets/acme/clock/2.0.0%2Ba/bundle.js" in responses(other)
    assert run(other, "check").exit_code == 0


def app_with_history(app_with: AppWith) -> Flask:
    """Return the catalog of the fixture, created in another order and with reverted changes."""
    app = app_with()
    hold(app, TOCK, TICK)
    for each in reversed(DOCUMENTS):
        widget, versions = each["widget"], each["versions"]
        before = {**widget, "displayName": "Before", "downloadCount": 3, "listed": True}
        after = {"downloadCount": None, **widget}
        for fields in (before, after):
            path = Path(app.config["DATABASE"]).with_name("input.jsonl")
            path.write_text(json.dumps({"widget": fields, "versions": versions[::-1]}), "utf-8")
            assert run(app, "import", "--set-counts", path).exit_code == 0
    for line in ("yank acme/clock@1.0.0", "unyank acme/clock@1.0.0"):
        assert run(app, *line.split()).exit_code == 0
    hold(app, TOCK, TICK)
    old = [each._replace(etag='"old"', upstream_count=1) for each in MIRRORED]
    record(app, [*reversed(old), *MIRRORED])
    return app


@pytest.mark.parametrize("format_", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_a_pack_that_another_program_wrote_is_unpacked(
    packed: Members, other: Flask, tmp_path: Path, format_: int
) -> None:
    with tarfile.open(tmp_path / "all.pack", "w", format=format_) as archive:
        for name, content in packed.items():
            member = tarfile.TarInfo(name)
            # As the program tar writes files of a user.
            member.size, member.uname, member.mtime = len(content), "ann", 1_700_000_000
            archive.addfile(member, io.BytesIO(content))
    assert run(other, "unpack", tmp_path / "all.pack").exit_code == 0
    assert read_members(pack(other, tmp_path / "again.pack")) == packed


def test_pack_does_not_depend_on_the_history_of_the_catalog(
    app: Flask, app_with: AppWith, other: Flask, tmp_path: Path
) -> None:
    first = pack(app, tmp_path / "one.pack")
    assert pack(app_with_history(app_with), tmp_path / "history.pack") == first
    run(other, "unpack", tmp_path / "one.pack")
    assert pack(other, tmp_path / "again.pack") == first
    other.test_client().post("/api/v1/widgets/acme/clock")
    assert pack(other, tmp_path / "counted.pack") != first


def test_pack_is_a_tar_archive_with_sha256_sums(app: Flask, tmp_path: Path) -> None:
    members = read_members(pack(app, tmp_path / "all.pack"))
    bundles = [f"bundles/{sha256}" for sha256 in sorted(HASHES)]
    files = ["catalog.jsonl", "mirrored.jsonl", "deleted.jsonl"]
    assert list(members) == ["SHA256SUMS", *files, *bundles]
    lines = members.pop("SHA256SUMS").decode().splitlines()
    sums = {name: sum_ for sum_, name in (line.split("  ") for line in lines)}
    assert sums == {name: hashlib.sha256(content).hexdigest() for name, content in members.items()}
    assert members["catalog.jsonl"] == exported(app)
    mirrored = [json.loads(line) for line in members["mirrored.jsonl"].splitlines()]
    assert [tuple(widget.values()) for widget in mirrored] == MIRRORED


def test_a_selection_has_what_a_mirror_knows_of_its_widgets_only(
    app: Flask, tmp_path: Path
) -> None:
    assert run(app, "pack", tmp_path / "some.pack", "--widget", "acme/same").exit_code == 0
    lines = read_members((tmp_path / "some.pack").read_bytes())["mirrored.jsonl"].splitlines()
    assert [json.loads(line)["name"] for line in lines] == ["same"]


def test_version_of_another_size_is_not_served_from_the_pack(
    packed: Members, other: Flask, tmp_path: Path
) -> None:
    size = b'"bundleSize": %d,'
    lines = packed["catalog.jsonl"].replace(size % len(TICK), size % (len(TICK) + 1))
    content = build_pack({**packed, "catalog.jsonl": lines}, update_sums=True)
    (tmp_path / "all.pack").write_bytes(content)
    result = run(other, "unpack", tmp_path / "all.pack")
    assert result.exit_code == 0
    assert "Warning: acme/same@1.0.0 has no stored bundle, and needs a network.\n" in result.stderr


def test_pack_contains_no_unused_bundle(app: Flask, tmp_path: Path) -> None:
    first = pack(app, tmp_path / "one.pack")
    hold(app, b"stray")
    assert pack(app, tmp_path / "two.pack") == first


DAMAGED = {
    "missing": (lambda path: path.unlink(), "it is not in "),
    "other bytes": (lambda path: path.write_bytes(b"noise"), "its SHA-256 is "),
}


@pytest.mark.parametrize(("damage", "reason"), DAMAGED.values(), ids=DAMAGED)
def test_damaged_bundle_is_an_error_and_the_existing_pack_is_kept(
    app: Flask, tmp_path: Path, damage: Callable[[Path], object], reason: str
) -> None:
    before = pack(app, tmp_path / "all.pack")
    damage(app.extensions["bundles"].path(HASHES[0]))
    result = run(app, "pack", tmp_path / "all.pack")
    message = f"{ELSEWHERE}Error: The bundle {HASHES[0]} cannot be packed: {reason}"
    assert (result.exit_code, result.stderr[: len(message)]) == (1, message)
    assert (tmp_path / "all.pack").read_bytes() == before


def test_pack_can_be_piped_into_unpack(app: Flask, other: Flask, tmp_path: Path) -> None:
    writer = start_command(app.config["DATABASE"], "pack", "-", "-q")
    reader = start_command(other.config["DATABASE"], "unpack", "-", "-q", stdin=writer.stdout)
    with writer, reader:
        assert (reader.wait(20), writer.wait(20)) == (0, 0)
    assert responses(other) == responses(app)


def test_pack_carries_what_was_deleted(app: Flask, other: Flask, tmp_path: Path) -> None:
    for name in ("acme/clock@2.0.0+a", "beta/hidden"):
        assert run(app, "delete", name, "--yes").exit_code == 0
    first = pack(app, tmp_path / "all.pack")
    deleted = [json.loads(line) for line in read_members(first)["deleted.jsonl"].splitlines()]
    assert deleted == [
        {"scope": "acme", "name": "clock", "version": "2.0.0+a", "sha256Hash": HASHES[1]},
        {"scope": "beta", "name": "hidden", "version": "0.1.0", "sha256Hash": HASHES[1]},
    ]
    assert run(other, "unpack", tmp_path / "all.pack").exit_code == 0
    (tmp_path / "other.js").write_bytes(b"other bytes")
    fields = {"version": "0.1.0", "displayName": "Hidden", "sdkVersion": "*"}
    manifest = json.dumps({"scope": "beta", "name": "hidden", **fields})
    (tmp_path / "manifest.json").write_text(manifest)
    result = run(other, "publish", tmp_path / "manifest.json", tmp_path / "other.js", "--store")
    assert (
        result.exit_code,
        "was published with a different bundle and deleted" in result.stderr,
    ) == (
        1,
        True,
    )
    assert pack(other, tmp_path / "again.pack") == first


def test_pack_carries_what_is_gone_from_the_upstream(
    app: Flask, other: Flask, tmp_path: Path
) -> None:
    app.extensions["database"].transact(running("UPDATE mirrored SET gone = 1"))
    first = pack(app, tmp_path / "all.pack")
    assert read_members(first)["mirrored.jsonl"].count(b'"gone":true') == len(MIRRORED)
    assert run(other, "unpack", tmp_path / "all.pack").exit_code == 0
    assert pack(other, tmp_path / "again.pack") == first


def test_what_was_deleted_here_stays_deleted_after_unpack(
    app: Flask, other: Flask, tmp_path: Path
) -> None:
    pack(app, tmp_path / "all.pack")
    assert run(other, "unpack", tmp_path / "all.pack").exit_code == 0
    assert run(other, "delete", "acme/same@1.0.0", "--yes").exit_code == 0
    assert run(other, "unpack", tmp_path / "all.pack", "--yes").exit_code == 0
    members = read_members(pack(other, tmp_path / "again.pack"))
    assert json.loads(members["deleted.jsonl"])["name"] == "same"


def test_unpack_keeps_the_higher_install_count_of_each_widget(
    app: Flask, other: Flask, tmp_path: Path
) -> None:
    pack(app, tmp_path / "old.pack")
    assert run(other, "unpack", tmp_path / "old.pack").exit_code == 0
    for name in ["acme/clock"] * 3 + ["acme/same"]:
        assert other.test_client().post(f"/api/v1/widgets/{name}").status_code == 200
    for name in ["acme/clock", "beta/hidden", "beta/hidden"]:
        assert app.test_client().post(f"/api/v1/widgets/{name}").status_code == 200
    pack(app, tmp_path / "new.pack")
    assert run(other, "unpack", tmp_path / "new.pack", "--yes").exit_code == 0
    widgets = [json.loads(line)["widget"] for line in exported(other).splitlines()]
    counts = {each["name"]: each["downloadCount"] for each in widgets}
    assert counts == {"clock": 15, "same": 1, "hidden": 2, "none": None}
    found = other.test_client().get("/api/v1/widgets/search").json["widgets"]
    assert [each["downloadCount"] for each in found] == [15, 1, None]
    assert run(other, "check").exit_code == 0


def test_publishing_does_not_wait_for_a_pack(app: Flask) -> None:
    headers = bearer(create_token(app))
    # The bundles do not fit into the pipe, so it is still being written.
    with start_command(app.config["DATABASE"], "pack", "-", "-q", text=False) as writer:
        assert writer.stdout is not None
        begin = writer.stdout.read(10_000)
        response = app.test_client().put(
            "/api/widgets/acme/dial/4.0.0",
            data=form(publication("acme/dial", "4.0.0")),
            content_type=FORM_TYPE,
            headers=headers,
        )
        assert (response.status_code, writer.poll()) == (201, None)
        members = read_members(begin + writer.stdout.read())
    assert writer.returncode == 0
    assert len(members) == 6


def test_existing_catalog_is_replaced_only_with_yes(
    app: Flask, app_with: AppWith, tmp_path: Path
) -> None:
    existing = app_with(document("other/thing", bundled("1.0.0", b"thing")))
    hold(existing, b"thing")
    pack(app, tmp_path / "all.pack")
    before = responses(existing)
    result = run(existing, "unpack", tmp_path / "all.pack")
    assert result.exit_code == 1
    assert "Standard input is not a terminal; use --yes to confirm." in result.stderr
    assert responses(existing) == before
    assert run(existing, "unpack", tmp_path / "all.pack", "--yes").exit_code == 0
    assert responses(existing) == responses(app)


def test_what_is_not_in_the_pack_is_named(app: Flask, app_with: AppWith, tmp_path: Path) -> None:
    pack(app, tmp_path / "all.pack")
    existing = app_with(*DOCUMENTS, document("local/own", version("1.0.0")))
    newer = {**DOCUMENTS[1], "versions": [version("1.1.0")]}
    assert run(existing, "import", "-", stdin=json.dumps(newer)).exit_code == 0
    before = responses(existing)
    named = [
        "1 widget is not in the pack: local/own.",
        "1 version is not in the pack: acme/same@1.1.0.",
    ]
    refused = run(existing, "unpack", tmp_path / "all.pack")
    assert (refused.exit_code, refused.stderr.splitlines()) == (
        1,
        [
            *named,
            f"Error: Replace all of {existing.config['DATABASE']} with {tmp_path}/all.pack, which "
            "removes 1 widget and 1 version? Standard input is not a terminal; use --yes to "
            "confirm.",
        ],
    )
    assert responses(existing) == before
    result = run(existing, "unpack", tmp_path / "all.pack", "--yes")
    assert (result.exit_code, result.stderr.splitlines()[:2]) == (0, named)


def test_every_widget_that_is_not_in_the_pack_is_named(
    app: Flask, app_with: AppWith, tmp_path: Path
) -> None:
    pack(app, tmp_path / "all.pack")
    names = [f"local/w{number:02}" for number in range(25)]
    existing = app_with(*map(document, names))
    result = run(existing, "unpack", tmp_path / "all.pack", "--yes")
    assert f"25 widgets are not in the pack: {', '.join(names)}.\n" in result.stderr


def test_the_question_is_not_overwritten_by_a_progress_bar(
    app: Flask, app_with: AppWith, tmp_path: Path
) -> None:
    pack(app, tmp_path / "all.pack")
    database = app_with(document("local/own")).config["DATABASE"]
    shown = run_at_terminal(database, "unpack", tmp_path / "all.pack", "--yes", columns=200)
    bar, question, *_ = shown.split("1 widget is not in the pack: local/own.\n")
    assert bar.endswith("\n")
    assert "Unpacking  [" in bar
    assert "Unpacking  [" not in question


def test_a_catalog_that_is_newer_than_the_pack_is_named_with_both_times(
    app: Flask, app_with: AppWith, tmp_path: Path
) -> None:
    pack(app, tmp_path / "all.pack")
    times = {"publishedAt": "2026-11-15T10:00:00.000Z"}
    existing = app_with(*DOCUMENTS, document("local/own", version("1.0.0", **times)))
    newest = max(
        *(each["widget"]["createdAt"] for each in DOCUMENTS),
        *(each["publishedAt"] for widget in DOCUMENTS for each in widget["versions"]),
    )
    warning = (
        f"Warning: {existing.config['DATABASE']} is newer than the pack. Newest widget or "
        f"version in the catalog: 2026-11-15T10:00:00.000Z; in the pack: {newest}.\n"
    )
    refused = run(existing, "unpack", tmp_path / "all.pack")
    assert (refused.exit_code, refused.stderr.startswith(f"{warning}1 widget is not in ")) == (
        1,
        True,
    )
    assert b'"local"' in exported(existing)
    # The other way round, nothing is lost that the pack does not have.
    pack(existing, tmp_path / "newer.pack")
    assert "is newer" not in run(app, "unpack", tmp_path / "newer.pack", "--yes").stderr
    assert warning in run(existing, "unpack", tmp_path / "all.pack", "--yes").stderr
    assert b'"local"' not in exported(existing)


def test_only_the_bundles_that_the_catalog_names_are_unpacked(app: Flask, tmp_path: Path) -> None:
    pack(app, tmp_path / "all.pack")
    # A newer catalog: one of the two bundles is no longer used, and a third is used.
    for name in ("acme/clock@1.0.0", "acme/same@1.0.0"):
        assert run(app, "delete", name, "--yes").exit_code == 0
    added = document("local/own", bundled("1.0.0", b"own"))
    assert run(app, "import", "-", stdin=json.dumps(added)).exit_code == 0
    hold(app, b"own")
    before = responses(app)
    directory = app.extensions["bundles"].directory
    for path in directory.iterdir():
        path.unlink()
    result = run(app, "unpack", "--bundles-only", tmp_path / "all.pack")
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == (
        f"Warning: the bundle of local/own@1.0.0 is not in {directory}.\n"
        f"Unpacked 1 bundle that {app.config['DATABASE']} names; "
        "1 other in the pack is not used.\n"
    )
    assert sorted(path.name for path in directory.iterdir()) == [HASHES[1], f"{HASHES[1]}.gz"]
    (directory / hashlib.sha256(b"own").hexdigest()).write_bytes(b"ow")
    cut = run(app, "unpack", "--bundles-only", tmp_path / "all.pack")
    assert cut.stderr == result.stderr
    hold(app, b"own")
    assert responses(app) == before


def test_an_invalid_pack_stores_no_bundle(app: Flask, packed: Members, tmp_path: Path) -> None:
    directory = app.extensions["bundles"].directory
    for path in directory.iterdir():
        path.unlink()
    # In the other one, the bundles are valid, and what is wrong comes after them.
    packs = {
        INCOMPLETE: build_pack(packed)[:-20000],
        "The pack has an unexpected member, 'more'.": build_pack({**packed, "more": b"x"}),
    }
    for message, content in packs.items():
        (tmp_path / "invalid.pack").write_bytes(content)
        result = run(app, "unpack", "--bundles-only", tmp_path / "invalid.pack")
        assert (result.exit_code, message in result.stderr) == (1, True)
        assert list(directory.iterdir()) == []


def test_running_service_shows_an_unpacked_catalog(
    app: Flask, app_with: AppWith, tmp_path: Path
) -> None:
    pack(app, tmp_path / "all.pack")
    existing = app_with(document("other/thing"))
    server = Server(existing.config["DATABASE"])
    try:
        assert server.request("GET", "/api/v1/widgets/other/thing")[0].status == 200
        assert run(existing, "unpack", tmp_path / "all.pack", "--yes").exit_code == 0
        assert server.request("GET", "/api/v1/widgets/other/thing")[0].status == 404
        response, body = server.request("GET", "/api/v1/widgets/acme/same/1.0.0/bundle.js")
        assert (response.status, body) == (200, TICK)
    finally:
        server.stop()


BUNDLE = f"bundles/{HASHES[0]}"
# A function that makes an invalid pack of the members of a valid one.
BuildInvalid = Callable[[Members], bytes]


def without(name: str) -> BuildInvalid:
    return lambda members: build_pack({key: members[key] for key in members if key != name})


def replacing(name: str, content: bytes, *, update_sums: bool = False) -> BuildInvalid:
    return lambda members: build_pack({**members, name: content}, update_sums=update_sums)


def renaming(name: str, new: str, *, update_sums: bool = False) -> BuildInvalid:
    return lambda members: build_pack(
        {new if key == name else key: members[key] for key in members}, update_sums=update_sums
    )


SPARSE_HEADERS = {"GNU.sparse.size": "1000000000", "GNU.sparse.map": "0,1"}


def with_special_file(kind: bytes, **headers: str) -> BuildInvalid:
    """A pack in which a bundle is a link, a device or the like."""

    def build(members: Members) -> bytes:
        output = io.BytesIO()
        with tarfile.open(fileobj=output, mode="w") as archive:
            for name, content in members.items():
                member = tarfile.TarInfo(name)
                if name == BUNDLE:
                    member.type, member.linkname, member.pax_headers = kind, "/etc/passwd", headers
                else:
                    member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
        return output.getvalue()

    return build


def mirrored_line(**fields: object) -> bytes:
    """Return a line of mirrored.jsonl."""
    defaults = {"scope": "acme", "name": "clock", "source": "https://up.example", "etag": None}
    return json.dumps({**defaults, "upstreamCount": None, **fields}).encode()


def deleted_line(**fields: object) -> bytes:
    """Return a line of deleted.jsonl."""
    defaults = {"scope": "acme", "name": "clock", "version": "1.0.0", "sha256Hash": "0" * 64}
    return json.dumps({**defaults, **fields}).encode()


def header(kind: bytes, size: int) -> bytes:
    member = tarfile.TarInfo("extended")
    member.type, member.size = kind, size
    return member.tobuf(tarfile.GNU_FORMAT)


def extended_header(kind: bytes, content: bytes) -> bytes:
    """Return a header that extends the next one, such as PAX and GNU tar write."""
    return header(kind, len(content)) + content + bytes(-len(content) % 512)


def with_header_field(content: bytes, place: int, field: bytes) -> bytes:
    """Return the archive with other bytes in its first header, and the right checksum."""
    block = bytearray(content[:512])
    block[place : place + len(field)] = field
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block) + content[512:]


def before_pack(content: bytes) -> tuple[BuildInvalid, str]:
    """Return a pack with something before it, and its error."""
    message = "The pack contains 'extended', which is not a regular file."
    return lambda members: content + build_pack(members), message


INCOMPLETE = "The pack is incomplete: it ends in the middle of "
INVALID_PACKS: dict[str, tuple[BuildInvalid, str]] = {
    "not an archive": (
        lambda members: b"not an archive\n" * 1000,
        "This is not a complete pack: there is no header at byte 0.",
    ),
    "empty file": (lambda members: b"", INCOMPLETE),
    "another archive": (
        lambda members: build_pack({"README": b"x"}),
        "The pack has 'README' where SHA256SUMS should be.",
    ),
    "truncated in a header": (lambda members: build_pack(members)[:100], INCOMPLETE),
    "truncated in the catalog": (lambda members: build_pack(members)[:2600], INCOMPLETE),
    "truncated in a bundle": (lambda members: build_pack(members)[:-20000], INCOMPLETE),
    "no catalog": (without("catalog.jsonl"), "The pack has 'mirrored.jsonl' where catalog.jsonl"),
    "missing bundle": (without(BUNDLE), "The pack "),
    "no bundles": (
        lambda members: build_pack(dict(list(members.items())[:4])),
        f"The pack ends where bundles/{min(HASHES)} should be.",
    ),
    "additional member": (replacing("more", b"x"), "The pack has an unexpected member, 'more'."),
    "other bundle": (
        replacing(BUNDLE, b"export default 'evil'\n"),
        f"The bundle {HASHES[0]} in the pack is invalid: its SHA-256 is ",
    ),
    "other catalog": (
        replacing("catalog.jsonl", b"\n"),
        "catalog.jsonl in the pack does not match SHA256SUMS.",
    ),
    "other mirrored.jsonl": (
        replacing("mirrored.jsonl", b"\n"),
        "mirrored.jsonl in the pack does not match SHA256SUMS.",
    ),
    "other bundle with its hash": (
        replacing(BUNDLE, b"export default 'evil'\n", update_sums=True),
        "SHA256SUMS in the pack is not in the format that this release writes.",
    ),
    "path with ..": (
        renaming(BUNDLE, "../../evil", update_sums=True),
        "SHA256SUMS in the pack is not ",
    ),
    "absolute path": (renaming(BUNDLE, "/tmp/evil"), "The pack has '/tmp/evil' where "),  # noqa: S108
    "bad document": (
        replacing("catalog.jsonl", b'{"widget": {}}\n', update_sums=True),
        "catalog.jsonl line 1: scope is missing.\n",
    ),
    "hash that is not a text": (
        replacing("deleted.jsonl", deleted_line(sha256Hash=None), update_sums=True),
        "deleted.jsonl in the pack cannot be read: ",
    ),
    **{
        f"mirrored.jsonl of {line[:2]!r}": (
            replacing("mirrored.jsonl", line, update_sums=True),
            "mirrored.jsonl in the pack cannot be read: ",
        )
        for line in (mirrored_line(source={}), b"[]", b"{}")
    },
    # What a mirror could not use, so that each of its runs would fail.
    **{
        f"mirrored.jsonl with {name} {value!r:.20}": (
            replacing("mirrored.jsonl", mirrored_line(**{name: value}), update_sums=True),
            f"mirrored.jsonl in the pack cannot be read: {name} must be ",
        )
        for name, value in (
            *(
                ("source", each)
                for each in ("", "up.example", "file:///etc", "https://u:p@up.example")
            ),
            *(("etag", each) for each in ("", '"a"\r\nX: y', "é", '"' * 100_000, 1)),
            *(("upstreamCount", each) for each in (-1, "1", True)),
            *(("scope", "a/b"), ("gone", 1)),
        )
    },
    **{
        f"deleted.jsonl with {name}": (
            replacing("deleted.jsonl", deleted_line(**{name: "x"}), update_sums=True),
            f"deleted.jsonl in the pack cannot be read: {name} must be ",
        )
        for name in ("version", "sha256Hash")
    },
    **{
        f"special file {kind!r}": (with_special_file(kind), f"The pack contains '{BUNDLE}', which ")
        for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.DIRTYPE)
    },
    "sparse file": (
        with_special_file(tarfile.REGTYPE, **SPARSE_HEADERS),
        "The pack contains '././@PaxHeader', which is not a regular file.",
    ),
    "thousands of extended headers": before_pack(
        extended_header(tarfile.XHDTYPE, b"11 path=xy\n") * 5000
    ),
    "global header": before_pack(extended_header(tarfile.XGLTYPE, b"11 path=xy\n")),
    "long name": before_pack(extended_header(tarfile.GNUTYPE_LONGNAME, b"x" * 500)),
    "negative size": before_pack(header(tarfile.REGTYPE, -512)),
    "size of 8 GiB": before_pack(header(tarfile.REGTYPE, 2**33)),
    "file of an old format": before_pack(header(tarfile.AREGTYPE, 0)),
    "name with a prefix": (
        lambda members: with_header_field(build_pack(members), 345, b"prefix"),
        "The pack contains 'SHA256SUMS', which is not a regular file.",
    ),
    "header of another format": (
        lambda members: with_header_field(build_pack(members), 257, bytes(8)),
        "The pack contains 'SHA256SUMS', which is not a regular file.",
    ),
    "name that ends early": (
        lambda members: with_header_field(build_pack(members), 11, b"evil"),
        "The pack has 'SHA256SUMS\\u0000evil' where SHA256SUMS should be.",
    ),
    "damaged header": (
        lambda members: b"X" + build_pack(members)[1:],
        "This is not a complete pack: there is no header at byte 0.",
    ),
    "bytes after the end": (
        lambda members: build_pack(members) + b"more",
        "The pack has unexpected data after its end, at byte ",
    ),
    "endless zeros after the end": (
        lambda members: build_pack(members) + bytes(1024 * 1024),
        "The pack has unexpected data after its end, at byte ",
    ),
    "no end": (
        lambda members: build_pack(members).rstrip(b"\0") + bytes(200),
        INCOMPLETE,
    ),
}


@pytest.mark.parametrize("exists", [False, True], ids=["no catalog", "a catalog"])
@pytest.mark.parametrize(("build", "message"), INVALID_PACKS.values(), ids=INVALID_PACKS)
def test_invalid_pack_changes_nothing(
    packed: Members,
    other: Flask,
    tmp_path: Path,
    exists: bool,
    build: BuildInvalid,
    message: str,
) -> None:
    invalid = tmp_path / "invalid.pack"
    invalid.write_bytes(build(dict(packed)))
    if exists:
        create_catalog(Path(other.config["DATABASE"]), document("lab/old", bundled("1.0.0", OLD)))
        hold(other, OLD, TICK)
    before = read_files(other)
    result = run(other, "unpack", invalid, "--yes")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith(f"Error: {invalid}: {message}")
    assert read_files(other) == before


@pytest.mark.parametrize("kind", [tarfile.GNUTYPE_LONGNAME, tarfile.XHDTYPE, tarfile.XGLTYPE])
def test_large_extended_header_is_not_read_into_memory(
    other: Flask, tmp_path: Path, kind: bytes
) -> None:
    with (tmp_path / "huge.pack").open("wb") as file:
        file.write(header(kind, 2**30))
        file.truncate(2**30 + 10240)
    tracemalloc.start()
    try:
        result = run(other, "unpack", tmp_path / "huge.pack")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert "The pack contains 'extended', which is not a regular file." in result.stderr
    assert peak < 50_000_000


def test_pack_truncated_anywhere_changes_nothing(app: Flask, other: Flask, tmp_path: Path) -> None:
    whole = pack(app, tmp_path / "all.pack")
    end = len(whole.rstrip(b"\0"))
    generator = random.Random(6)  # noqa: S311
    for length in sorted({*generator.sample(range(end), 20), *range(512, 4096, 512)}):
        (tmp_path / "truncated.pack").write_bytes(whole[:length])
        result = run(other, "unpack", tmp_path / "truncated.pack")
        assert (result.exit_code, result.stderr[:7]) == (1, "Error: ")
        assert read_files(other) == {}
