"""widget-catalog pack and export with --scope, --widget and --sdk."""

import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
from builders import bundled, document, version
from conftest import error_message, hold, run
from flask import Flask
from mirrors import exported

SELECTIONS = {
    "": ["acme/clock", "acme/notes", "lab/tide"],
    "--scope acme": ["acme/clock", "acme/notes"],
    "--widget lab/tide --scope lab": ["lab/tide"],
    # The version for 1.x of acme/notes is yanked.
    "--sdk 1.4": ["acme/clock"],
    "--sdk 1.4 --sdk 2.0.0 --scope acme": ["acme/clock", "acme/notes"],
    "--widget acme/clock,lab/tide": ["acme/clock", "lab/tide"],
    "--sdk 1.4,3.0.0 --scope lab,acme": ["acme/clock", "lab/tide"],
}


@pytest.fixture
def app(app_with: Callable[..., Flask]) -> Flask:
    old = version("0.9.0", sdkVersion="^1.0.0", yanked=True)
    app = app_with(
        document("acme/clock", bundled("1.0.0", b"clock", sdkVersion=">=1.4.0 <2.0.0")),
        document("acme/notes", bundled("1.0.0", b"notes", sdkVersion="2.x"), old, isOfficial=True),
        document("lab/tide", bundled("1.0.0", b"tide", sdkVersion="^3.0.0"), listed=False),
    )
    hold(app, b"clock", b"notes", b"tide")
    return app


@pytest.mark.parametrize(("options", "selected"), SELECTIONS.items(), ids=SELECTIONS)
def test_export_and_pack_have_the_selected_widgets_only(
    app: Flask,
    app_with: Callable[..., Flask],
    tmp_path: Path,
    options: str,
    selected: list[str],
) -> None:
    file, other = tmp_path / "some.jsonl", app_with()
    result = run(app, "export", file, *options.split())
    assert result.stderr.startswith(f"Exported {len(selected)} widget")
    assert run(other, "import", file).exit_code == 0
    assert list(exported(other)) == selected
    pack = tmp_path / "some.pack"
    packed = f"{len(selected)} widget{'s' * (len(selected) > 1)}"
    result = run(app, "pack", pack, *options.split())
    assert result.stderr.splitlines()[-1].startswith(f"Packed {packed} and {len(selected)} bundle")
    with tarfile.open(pack) as archive:
        assert len([name for name in archive.getnames() if "bundles/" in name]) == len(selected)
    assert run(other, "unpack", pack, "--yes").exit_code == 0
    assert exported(other) == {path: exported(app)[path] for path in selected}


def test_deleted_versions_are_packed_with_their_widgets_only(app: Flask, tmp_path: Path) -> None:
    run(app, "delete", "acme/notes@0.9.0", "--yes")
    for scope, lines in (("acme", 1), ("lab", 0)):
        run(app, "pack", tmp_path / "some.pack", "--scope", scope)
        with tarfile.open(tmp_path / "some.pack") as archive:
            member = archive.extractfile("deleted.jsonl")
            assert member is not None
            assert len(member.read().splitlines()) == lines


@pytest.mark.parametrize("command", ["export", "pack"])
def test_name_that_matches_nothing_gets_a_warning(app: Flask, tmp_path: Path, command: str) -> None:
    file = tmp_path / "some"
    result = run(app, command, file, "--scope=acme", "--scope=none", "--widget=acme/watch")
    assert result.exit_code == 0
    assert result.stderr.splitlines()[:2] == [
        "Warning: --scope none matches no widget.",
        "Warning: --widget acme/watch matches no widget.",
    ]


@pytest.mark.parametrize("command", ["export", "pack"])
def test_empty_selection_writes_no_file(app: Flask, tmp_path: Path, command: str) -> None:
    result = run(app, command, tmp_path / "some", "--sdk=1.4", "--scope=lab", "--quiet")
    assert error_message(result) == "No widget is selected."
    assert not (tmp_path / "some").exists()
