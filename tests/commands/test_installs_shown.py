"""The installs that show prints."""

from collections.abc import Callable

import pytest
from builders import document, version
from conftest import run
from flask import Flask

from catalog.store.connection.sqlite import today
from catalog.store.write.installs import count_install

AppWith = Callable[..., Flask]


@pytest.fixture
def app(app_with: AppWith) -> Flask:
    """A catalog with installs some days ago; none is at the end of a week."""
    app = app_with(document("acme/bell", version()))
    for ago in (2, 9, 9, 9, 9, 100):
        assert count_install(app.extensions["database"], "acme", "bell", today() - ago, "1.0.0")
    return app


def test_show_prints_the_last_days_and_the_versions(app: Flask) -> None:
    lines = run(app, "show", "acme/bell").stdout.splitlines()
    assert "  installs:    6, 1 in the last 7 days" in lines
    assert [line.split()[2] for line in lines[-2:]] == ["INSTALLS", "6"]
    assert "  installs:    6" in run(app, "show", "acme/bell@1.0.0").stdout.splitlines()
    assert "6, " not in run(app, "show", "acme/bell", "--json").stdout
