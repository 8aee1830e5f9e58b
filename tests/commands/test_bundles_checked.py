"""widget-catalog check on bundles: one line for each that is missing or has the wrong content."""

import hashlib
from collections.abc import Callable

import pytest
from builders import bundled, document, version
from click.testing import Result
from conftest import hold, running
from flask import Flask

AppWith = Callable[..., Flask]
TICK, TOCK = b"export default 'tick'", b"export default 'tock'"
TICK_HASH, TOCK_HASH = (hashlib.sha256(content).hexdigest() for content in (TICK, TOCK))
NOISE = b"\0" * len(TICK)
NOISE_HASH = hashlib.sha256(NOISE).hexdigest()


@pytest.fixture
def app(app_with: AppWith) -> Flask:
    """Two widgets with the same bundle, one with another, and a version that is not held."""
    app = app_with(
        document("acme/clock", bundled("1.0.0", TICK), bundled("2.0.0", TOCK)),
        document("acme/watch", bundled("1.0.0", TICK), version("2.0.0"), listed=False),
    )
    hold(app, TICK, TOCK)
    return app


def check(app: Flask) -> Result:
    return app.test_cli_runner().invoke(args=["check"])


def test_bundles_with_the_right_content_are_in_order(app: Flask) -> None:
    result = check(app)
    assert (result.exit_code, result.stdout) == (0, "")


def test_bundle_with_the_wrong_content_is_reported_with_its_versions(app: Flask) -> None:
    app.extensions["bundles"].path(TICK_HASH).write_bytes(NOISE)
    result = check(app)
    assert result.exit_code == 1
    directory = app.extensions["bundles"].name
    assert result.stdout.splitlines() == [
        f"Bundle {TICK_HASH} in {directory}: its SHA-256 is {NOISE_HASH}, not {TICK_HASH}.",
        f"acme/clock: version 1.0.0: its bundle {TICK_HASH} has the wrong content.",
        f"acme/watch: version 1.0.0: its bundle {TICK_HASH} has the wrong content.",
    ]


def test_missing_bundle_is_reported_with_its_versions(app: Flask) -> None:
    app.extensions["bundles"].remove(TOCK_HASH)
    result = check(app)
    assert result.exit_code == 1
    directory = app.extensions["bundles"].name
    assert result.stdout == (
        f"acme/clock: version 2.0.0: its bundle {TOCK_HASH} of 21 bytes is not in {directory}.\n"
    )


def test_bundle_without_a_version_is_checked_too(app: Flask) -> None:
    app.extensions["bundles"].path("0" * 64).write_bytes(NOISE)
    assert check(app).stdout.startswith(f"Bundle {'0' * 64} in ")


def test_partial_bundle_is_not_a_problem(app: Flask) -> None:
    path = app.extensions["bundles"].path("0" * 64)
    path.with_suffix(".partial").write_bytes(NOISE)
    assert check(app).exit_code == 0


def test_wrong_bundle_path_is_reported(app: Flask) -> None:
    move = "UPDATE version SET bundle_path = '/x' WHERE sha256_hash = :sha256"
    app.extensions["database"].transact(running(move, {"sha256": TOCK_HASH}))
    assert check(app).stdout == (
        "acme/clock: version 2.0.0: bundle_path is '/x', but the bundle is not served at "
        "that path.\n"
    )
