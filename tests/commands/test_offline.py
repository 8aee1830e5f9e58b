"""pack, unpack and check --offline name the versions that need a network."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from builders import bundled, document, version
from conftest import hold, run
from flask import Flask

AppWith = Callable[..., Flask]
WARNING = "Warning: {} has no stored bundle, and needs a network.\n"
NAMES = ["acme/clock@1.0.0", "lab/tide@9.0.0", "lab/tide@10.0.0"]


@pytest.fixture
def app(app_with: AppWith) -> Flask:
    app = app_with(
        document("acme/clock", bundled("2.0.0", b"held"), version("1.0.0", yanked=True)),
        document("lab/tide", version("10.0.0"), version("9.0.0")),
        document("lab/unlisted", version(), listed=False),
        document("ops/load", bundled("3.0.0", b"also held")),
    )
    hold(app, b"held", b"also held")
    return app


def test_pack_and_unpack_name_versions_without_a_bundle(
    app: Flask, app_with: AppWith, tmp_path: Path
) -> None:
    warning = "".join(map(WARNING.format, NAMES))
    packed = run(app, "pack", tmp_path / "all.pack")
    assert packed.stderr == f"{warning}Packed 4 widgets and 2 bundles.\n"
    unpacked = run(app_with(), "unpack", tmp_path / "all.pack", "--yes")
    assert unpacked.stderr.startswith(f"{warning}Unpacked 4 widgets and 6 versions")


@pytest.mark.parametrize(
    ("option", "warning"),
    [
        ("--scope=ops", ""),
        ("--widget=acme/clock", WARNING.format("acme/clock@1.0.0")),
    ],
)
def test_selection_is_all_that_matters_to_a_pack(
    app: Flask, tmp_path: Path, option: str, warning: str
) -> None:
    result = run(app, "pack", tmp_path / "some.pack", option)
    assert result.stderr == f"{warning}Packed 1 widget and 1 bundle.\n"


def test_at_most_20_versions_are_named(app_with: AppWith, tmp_path: Path) -> None:
    app = app_with(document("acme/clock", *(version(f"1.0.{n}") for n in range(25))))
    lines = run(app, "pack", tmp_path / "all.pack").stderr.splitlines()
    assert lines[19:21] == [WARNING.format("acme/clock@1.0.19")[:-1], "There are 5 more."]


def test_check_reports_them_for_a_machine_that_is_offline(app: Flask) -> None:
    assert run(app, "check").exit_code == 0
    result = run(app, "check", "--offline", "--json")
    assert result.exit_code == 1
    reason = "its bundleUrl points elsewhere, so it needs a network."
    assert json.loads(result.stdout)["problems"] == [f"{name}: {reason}" for name in NAMES]
