"""flask pack and flask unpack: a whole catalog with its bundles in one file, and back."""

import hashlib
import io
import json
import random
import subprocess
import sys
import tarfile
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from builders import bundled, document, version
from click.testing import Result
from conftest import DEMO, ROOT, Server, hold
from flask import Flask

from app import create_app
from catalog.store import mirror_writes, writes

AppWith = Callable[..., Flask]
Parts = dict[str, bytes]
TICK, TOCK = b"export default 'tick'\n", b"export default 'tock'\n" * 100_000
HASHES = [hashlib.sha256(content).hexdigest() for content in (TICK, TOCK)]
ODD = {"displayName": "Météo 天気 \U0001f552", "description": "<b>\n\u2028", "downloadCount": 12}
DOCUMENTS = [
    document(
        "acme/clock", bundled("1.0.0", TICK), bundled("2.0.0+a", TOCK), version("3.0.0"), **ODD
    ),
    document("acme/same", bundled("1.0.0", TICK), isOfficial=True),
    document("beta/hidden", bundled("0.1.0", TOCK), listed=False, downloadCount=0),
    document("beta/none"),
]
FIXED = {"createdAt": "2025-01-02T03:04:05.000Z"}
for each in DOCUMENTS:
    each["widget"] |= FIXED
MIRRORED = [
    mirror_writes.MirroredWidget("acme", "clock", "https://up.example", '"e1"', 10),
    mirror_writes.MirroredWidget("acme", "same", "https://up.example", None, None),
]


@pytest.fixture
def app(app_with: AppWith) -> Flask:
    """A catalog with every kind of thing that a pack holds."""
    made = app_with(*DOCUMENTS)
    hold(made, TICK, TOCK)
    made.extensions["database"].write(mirror_writes.put_mirrored(MIRRORED))
    return made


@pytest.fixture
def elsewhere(tmp_path: Path) -> Flask:
    """A service on another directory, with nothing in it."""
    (tmp_path / "elsewhere").mkdir()
    return create_app({"DATABASE": tmp_path / "elsewhere" / "catalog.db"})


def run(app: Flask, *arguments: object) -> Result:
    result = app.test_cli_runner().invoke(args=[str(each) for each in arguments])
    app.extensions["database"].close()
    return result


def packed(app: Flask, path: Path) -> bytes:
    result = run(app, "pack", path)
    assert result.exit_code == 0, result.output
    return path.read_bytes()


def read(pack: bytes) -> Parts:
    with tarfile.open(fileobj=io.BytesIO(pack)) as archive:
        return {each.name: archive.extractfile(each).read() for each in archive}  # type: ignore[union-attr]


def written(parts: Parts, *, sums: bool = False) -> bytes:
    """A pack of the parts; with sums, its SHA256SUMS says what they are."""
    if sums:
        rest = {name: content for name, content in parts.items() if name != "SHA256SUMS"}
        lines = (f"{hashlib.sha256(rest[name]).hexdigest()}  {name}\n" for name in rest)
        parts = {"SHA256SUMS": "".join(lines).encode(), **rest}
    output = io.BytesIO()
    with tarfile.open(fileobj=output, mode="w") as archive:
        for name, content in parts.items():
            part = tarfile.TarInfo(name)
            part.size = len(content)
            archive.addfile(part, io.BytesIO(content))
    return output.getvalue()


def files(app: Flask) -> dict[str, bytes]:
    """Every file beside the database, by its name."""
    app.extensions["database"].close()
    top = Path(app.config["DATABASE"]).parent
    return {
        str(path.relative_to(top)): path.read_bytes() for path in top.rglob("*") if path.is_file()
    }


def answers(app: Flask) -> dict[str, Any]:
    """All that the service says of a catalog: pages, details, registries, bundles, the export."""
    client = app.test_client()
    paths = [f"/api/v1/widgets/search?limit=3&page={page}" for page in range(1, 15)]
    paths += ["/api/v1/widgets/search?q=clock&compatSdk=1.0.0", "/api/stats"]
    rows = app.extensions["database"].reader().execute("SELECT scope, name FROM widget")
    for scope, name in rows.fetchall():
        paths += [f"/api/v1/widgets/{scope}/{name}", f"/api/widgets/{scope}/registry.json"]
    rows = app.extensions["database"].reader().execute("SELECT bundle_path FROM version")
    paths += [path for (path,) in rows.fetchall() if path]
    said: dict[str, Any] = {"export": run(app, "export").stdout}
    for path in paths:
        with client.get(path) as response:
            said[path] = (response.status_code, response.data)
    return said


def mirrored(app: Flask) -> list[tuple[object, ...]]:
    columns = "scope, name, source, etag, upstream_count"
    sql = f"SELECT {columns} FROM mirrored JOIN widget ON id = widget_id ORDER BY scope, name"
    return [tuple(row) for row in app.extensions["database"].reader().execute(sql)]


def test_unpacked_catalog_answers_as_the_packed_one(
    app: Flask, elsewhere: Flask, tmp_path: Path
) -> None:
    packed(app, tmp_path / "all.pack")
    result = run(elsewhere, "unpack", tmp_path / "all.pack")
    database = elsewhere.extensions["database"]
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == (
        f"Unpacked 4 widgets and 5 versions into {database.name}, with 2 bundles.\n"
    )
    assert answers(elsewhere) == answers(app)
    assert "/api/v1/widgets/acme/clock/2.0.0%2Ba/bundle.js" in answers(elsewhere)
    assert mirrored(elsewhere) == mirrored(app) == MIRRORED
    assert run(elsewhere, "check").exit_code == 0


def test_demo_catalog_comes_through_a_pack(
    app_with: AppWith, elsewhere: Flask, tmp_path: Path
) -> None:
    demo = app_with(*(json.loads(line) for line in DEMO.read_text(encoding="utf-8").splitlines()))
    packed(demo, tmp_path / "demo.pack")
    assert run(elsewhere, "unpack", tmp_path / "demo.pack").exit_code == 0
    assert answers(elsewhere) == answers(demo)
    assert not elsewhere.extensions["bundles"].directory.exists()


def with_a_past(app_with: AppWith) -> Flask:
    """The catalog of the fixture, come about in another order with much that was undone."""
    app = app_with(document("zeta/gone", bundled("1.0.0", b"gone")))
    hold(app, b"gone", TOCK, TICK)
    database = app.extensions["database"]
    for each in reversed(DOCUMENTS):
        widget, versions = each["widget"], each["versions"]
        before = {**widget, "displayName": "Before", "downloadCount": 3, "listed": True}
        after = {"downloadCount": None, **widget}
        for given in (before, after):
            path = Path(app.config["DATABASE"]).with_name("given.jsonl")
            path.write_text(json.dumps({"widget": given, "versions": versions[::-1]}), "utf-8")
            assert run(app, "import", path).exit_code == 0
    for line in ("yank acme/clock@1.0.0", "unyank acme/clock@1.0.0", "delete zeta/gone --yes"):
        assert run(app, *line.split()).exit_code == 0
    hold(app, TOCK, TICK)
    wrong = [each._replace(etag='"old"', upstream_count=1) for each in MIRRORED]
    database.write(mirror_writes.put_mirrored([*reversed(wrong), *MIRRORED]))
    return app


def test_same_catalog_gives_the_same_bytes_whatever_its_history(
    app: Flask, app_with: AppWith, elsewhere: Flask, tmp_path: Path
) -> None:
    pack = packed(app, tmp_path / "one.pack")
    other = with_a_past(app_with)
    assert packed(other, tmp_path / "other.pack") == pack
    run(elsewhere, "unpack", tmp_path / "one.pack")
    assert packed(elsewhere, tmp_path / "again.pack") == pack
    database = elsewhere.extensions["database"]
    database.write(writes.count_install("acme", "clock"))
    assert packed(elsewhere, tmp_path / "counted.pack") != pack


def test_pack_is_an_archive_that_common_tools_check(app: Flask, tmp_path: Path) -> None:
    parts = read(packed(app, tmp_path / "all.pack"))
    bundles = [f"bundles/{sha256}" for sha256 in sorted(HASHES)]
    assert list(parts) == ["SHA256SUMS", "catalog.jsonl", "mirrored.jsonl", *bundles]
    sums = dict(
        reversed(line.split("  ")) for line in parts.pop("SHA256SUMS").decode().splitlines()
    )
    assert sums == {name: hashlib.sha256(content).hexdigest() for name, content in parts.items()}
    assert parts["catalog.jsonl"].decode() == run(app, "export").stdout


def test_pack_holds_no_bundle_that_no_version_is_loaded_with(app: Flask, tmp_path: Path) -> None:
    pack = packed(app, tmp_path / "one.pack")
    hold(app, b"stray")
    assert packed(app, tmp_path / "two.pack") == pack


def test_pack_is_for_its_owner_alone(app: Flask, tmp_path: Path) -> None:
    packed(app, tmp_path / "all.pack")
    assert (tmp_path / "all.pack").stat().st_mode & 0o777 == 0o600


def test_pack_says_what_is_in_it(app: Flask, tmp_path: Path) -> None:
    result = run(app, "pack", tmp_path / "all.pack")
    assert (result.stdout, result.stderr) == ("", "Packed 4 widgets and 2 bundles.\n")


SPOILT = {
    "missing": (lambda path: path.unlink(), "it is not in "),
    "other bytes": (lambda path: path.write_bytes(b"noise"), "its SHA-256 is "),
}


@pytest.mark.parametrize(("spoil", "reason"), SPOILT.values(), ids=SPOILT)
def test_spoilt_bundle_is_not_packed_and_the_last_pack_stays(
    app: Flask, tmp_path: Path, spoil: Callable[[Path], object], reason: str
) -> None:
    before = packed(app, tmp_path / "all.pack")
    spoil(app.extensions["bundles"].path(HASHES[0]))
    result = run(app, "pack", tmp_path / "all.pack")
    sentence = f"Error: The bundle {HASHES[0]} cannot be packed: {reason}"
    assert (result.exit_code, result.stderr[: len(sentence)]) == (1, sentence)
    assert (tmp_path / "all.pack").read_bytes() == before


def test_pack_goes_through_a_pipe(app: Flask, elsewhere: Flask, tmp_path: Path) -> None:
    def flask(served: Flask, *line: str, **keywords: Any) -> "subprocess.Popen[bytes]":
        settings = {"CATALOG_DATABASE": str(served.config["DATABASE"]), "PATH": ""}
        return subprocess.Popen(
            [sys.executable, "-m", "flask", *line], cwd=ROOT, env=settings, **keywords
        )

    with (
        flask(app, "pack", "-", "-q", stdout=subprocess.PIPE) as writing,
        flask(elsewhere, "unpack", "-", "-q", stdin=writing.stdout) as reading,
    ):
        assert (reading.wait(20), writing.wait(20)) == (0, 0)
    assert answers(elsewhere) == answers(app)


def test_catalog_that_is_there_is_replaced_only_with_yes(
    app: Flask, app_with: AppWith, tmp_path: Path
) -> None:
    other = app_with(document("other/thing", bundled("1.0.0", b"thing")))
    hold(other, b"thing")
    packed(app, tmp_path / "all.pack")
    before = answers(other)
    result = run(other, "unpack", tmp_path / "all.pack")
    assert result.exit_code == 1
    assert "Standard input is not a terminal; use --yes to confirm." in result.stderr
    assert answers(other) == before
    assert run(other, "unpack", tmp_path / "all.pack", "--yes").exit_code == 0
    assert answers(other) == answers(app)


def test_running_service_shows_an_unpacked_catalog_at_once(
    app: Flask, app_with: AppWith, tmp_path: Path
) -> None:
    packed(app, tmp_path / "all.pack")
    other = app_with(document("other/thing"))
    server = Server(other.config["DATABASE"])
    try:
        assert server.request("GET", "/api/v1/widgets/other/thing")[0].status == 200
        assert run(other, "unpack", tmp_path / "all.pack", "--yes").exit_code == 0
        assert server.request("GET", "/api/v1/widgets/other/thing")[0].status == 404
        response, body = server.request("GET", "/api/v1/widgets/acme/same/1.0.0/bundle.js")
        assert (response.status, body) == (200, TICK)
    finally:
        server.stop()


BUNDLE = f"bundles/{HASHES[0]}"


def without(name: str) -> Callable[[Parts], bytes]:
    return lambda parts: written({key: parts[key] for key in parts if key != name})


def replaced(name: str, content: bytes, *, sums: bool = False) -> Callable[[Parts], bytes]:
    return lambda parts: written({**parts, name: content}, sums=sums)


def renamed(name: str, new: str, *, sums: bool = False) -> Callable[[Parts], bytes]:
    return lambda parts: written(
        {new if key == name else key: parts[key] for key in parts}, sums=sums
    )


HOLES = {"GNU.sparse.size": "1000000000", "GNU.sparse.map": "0,1"}


def special(kind: bytes, **headers: str) -> Callable[[Parts], bytes]:
    """A pack in which a bundle is a link, a device or the like."""

    def make(parts: Parts) -> bytes:
        output = io.BytesIO()
        with tarfile.open(fileobj=output, mode="w") as archive:
            for name, content in parts.items():
                part = tarfile.TarInfo(name)
                if name == BUNDLE:
                    part.type, part.linkname, part.pax_headers = kind, "/etc/passwd", headers
                else:
                    part.size = len(content)
                archive.addfile(part, io.BytesIO(content))
        return output.getvalue()

    return make


def line(**fields: object) -> bytes:
    known = {"scope": "acme", "name": "clock", "source": "https://up.example", "etag": None}
    return json.dumps({**known, "upstreamCount": None, **fields}).encode()


def ended(marker: bytes) -> Callable[[Parts], bytes]:
    """A pack with this for an end marker and what follows it."""

    def make(parts: Parts) -> bytes:
        content = written(parts).rstrip(b"\0")
        return content + bytes(-len(content) % 512) + marker

    return make


def header(kind: bytes, size: int) -> bytes:
    part = tarfile.TarInfo("extended")
    part.type, part.size = kind, size
    return part.tobuf(tarfile.GNU_FORMAT)


def extended(kind: bytes, content: bytes) -> bytes:
    """What tells more of the next part, in the ways of several programs."""
    return header(kind, len(content)) + content + bytes(-len(content) % 512)


NOT_WHOLE = "This is not a complete pack: "
NO_LINE = "mirrored.jsonl in the pack cannot be read: "
BAD_PACKS: dict[str, tuple[Callable[[Parts], bytes], str]] = {
    "no archive": (lambda parts: b"not an archive\n" * 1000, "This is not a complete pack: "),
    "nothing": (lambda parts: b"", "This is not a complete pack: "),
    "another archive": (
        lambda parts: written({"README": b"x"}),
        "The pack has 'README' where SHA256SUMS should be.",
    ),
    "cut in the catalog": (lambda parts: written(parts)[:1600], "This is not a complete pack: "),
    "cut in a bundle": (lambda parts: written(parts)[:-20000], "This is not a complete pack: "),
    "no catalog": (without("catalog.jsonl"), "The pack has 'mirrored.jsonl' where catalog.jsonl"),
    "a bundle too few": (without(BUNDLE), "The pack "),
    "no bundle": (
        lambda parts: written(dict(list(parts.items())[:3])),
        f"The pack ends where bundles/{min(HASHES)} should be.",
    ),
    "a part too many": (replaced("more", b"x"), "The pack has an unexpected member, 'more'."),
    "other bundle": (
        replaced(BUNDLE, b"export default 'evil'\n"),
        f"The bundle {HASHES[0]} in the pack is invalid: its SHA-256 is ",
    ),
    "other catalog": (
        replaced("catalog.jsonl", b"\n"),
        "catalog.jsonl in the pack does not match SHA256SUMS.",
    ),
    "other origins": (
        replaced("mirrored.jsonl", b"\n"),
        "mirrored.jsonl in the pack does not match SHA256SUMS.",
    ),
    "hash of other bytes": (
        replaced(BUNDLE, b"export default 'evil'\n", sums=True),
        "SHA256SUMS in the pack does not have the format that this release writes.",
    ),
    "path upwards": (renamed(BUNDLE, "../../evil", sums=True), "SHA256SUMS in the pack does not "),
    "absolute path": (renamed(BUNDLE, "/tmp/evil"), "The pack has '/tmp/evil' where "),  # noqa: S108
    "bundle that no version names": (
        lambda parts: written({**parts, "catalog.jsonl": b""}, sums=True),
        "The pack contains the bundle ",
    ),
    "bad document": (
        replaced("catalog.jsonl", b'{"widget": {}}\n', sums=True),
        "catalog.jsonl line 1: scope is missing\n",
    ),
    "origin that is no address": (
        replaced("mirrored.jsonl", line(source="file:///etc/passwd"), sums=True),
        f"{NO_LINE}an absolute http or https URL.",
    ),
    "origin of no object": (replaced("mirrored.jsonl", b"[]", sums=True), NO_LINE),
    "origin without a key": (replaced("mirrored.jsonl", b"{}", sums=True), NO_LINE),
    "symbolic link": (special(tarfile.SYMTYPE), f"The pack contains '{BUNDLE}', which is not "),
    "hard link": (special(tarfile.LNKTYPE), f"The pack contains '{BUNDLE}', which is not "),
    "device": (
        special(tarfile.CHRTYPE),
        f"The pack contains '{BUNDLE}', which is not a regular file.",
    ),
    "file with holes": (
        special(tarfile.REGTYPE, **HOLES),
        "The pack contains '././@PaxHeader', which is not a regular file.",
    ),
    "directory": (special(tarfile.DIRTYPE), f"The pack contains '{BUNDLE}', which is not "),
    "cut before its end marker": (ended(b""), f"{NOT_WHOLE}it ends before its end marker."),
    "cut in its end marker": (ended(bytes(512)), f"{NOT_WHOLE}it ends before its end marker."),
    "something after its end": (
        ended(bytes(10240) + b"x"),
        f"{NOT_WHOLE}it continues after its end marker.",
    ),
    "nothing without end after its end": (
        ended(bytes(3 * 1024 * 1024)),
        f"{NOT_WHOLE}it continues after its end marker.",
    ),
    "thousands of extended headers": (
        lambda parts: extended(tarfile.XHDTYPE, b"11 path=xy\n") * 5000 + written(parts),
        "The pack contains 'extended', which is not a regular file.",
    ),
    "global header": (
        lambda parts: extended(tarfile.XGLTYPE, b"11 path=xy\n") + written(parts),
        "The pack contains 'extended', which is not a regular file.",
    ),
    "long name": (
        lambda parts: extended(tarfile.GNUTYPE_LONGNAME, b"x" * 500) + written(parts),
        "The pack contains 'extended', which is not a regular file.",
    ),
    "negative size": (
        lambda parts: header(tarfile.REGTYPE, -512) + written(parts),
        "The pack contains 'extended', which is not a regular file.",
    ),
}


@pytest.mark.parametrize("there", ["nothing", "a catalog"])
@pytest.mark.parametrize(("make", "sentence"), BAD_PACKS.values(), ids=BAD_PACKS)
def test_bad_pack_changes_nothing(
    app: Flask,
    elsewhere: Flask,
    tmp_path: Path,
    there: str,
    make: Callable[[Parts], bytes],
    sentence: str,
) -> None:
    pack = tmp_path / "bad.pack"
    pack.write_bytes(make(read(packed(app, tmp_path / "all.pack"))))
    if there == "a catalog":
        assert run(elsewhere, "init", "--demo").exit_code == 0
        hold(elsewhere, TICK)
    before = files(elsewhere)
    result = run(elsewhere, "unpack", pack, "--yes")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith(f"Error: {sentence}")
    assert files(elsewhere) == before


@pytest.mark.parametrize("kind", [tarfile.GNUTYPE_LONGNAME, tarfile.XHDTYPE, tarfile.XGLTYPE])
def test_header_of_a_gigabyte_is_not_read_into_memory(
    elsewhere: Flask, tmp_path: Path, kind: bytes
) -> None:
    with (tmp_path / "huge.pack").open("wb") as pack:
        pack.write(header(kind, 2**30))
        pack.truncate(2**30 + 10240)
    tracemalloc.start()
    try:
        result = run(elsewhere, "unpack", tmp_path / "huge.pack")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert "The pack contains 'extended', which is not a regular file." in result.stderr
    assert peak < 50_000_000


def test_unpacking_a_cut_pack_leaves_no_partial_bundle_beside_one_that_is_here(
    app: Flask, elsewhere: Flask, tmp_path: Path
) -> None:
    (tmp_path / "cut.pack").write_bytes(packed(app, tmp_path / "all.pack")[:-20_000])
    assert run(elsewhere, "init", "--demo").exit_code == 0
    hold(elsewhere, TICK, TOCK)
    before = files(elsewhere)
    assert run(elsewhere, "unpack", tmp_path / "cut.pack", "--yes").exit_code == 1
    assert files(elsewhere) == before


def test_pack_cut_anywhere_changes_nothing(app: Flask, elsewhere: Flask, tmp_path: Path) -> None:
    whole = packed(app, tmp_path / "all.pack")
    end = len(whole.rstrip(b"\0"))
    chance = random.Random(6)  # noqa: S311
    for length in sorted({*chance.sample(range(end), 20), *range(512, 4096, 512)}):
        (tmp_path / "cut.pack").write_bytes(whole[:length])
        result = run(elsewhere, "unpack", tmp_path / "cut.pack")
        assert (result.exit_code, result.stderr[:7]) == (1, "Error: ")
        assert files(elsewhere) == {}


def test_pack_that_cannot_be_read_is_named(elsewhere: Flask, tmp_path: Path) -> None:
    result = run(elsewhere, "unpack", tmp_path / "none.pack")
    assert (result.exit_code, "none.pack" in result.stderr) == (2, True)
