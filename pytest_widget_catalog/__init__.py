"""pytest fixtures that serve a Widget Catalog to a project's tests.

The service runs in its own processes: the tests import none of its modules.
"""

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from .catalog import Catalogs, RequestRecord, Source, WidgetCatalog, WidgetCatalogError

__all__ = ["RequestRecord", "WidgetCatalog", "WidgetCatalogError"]


@pytest.fixture(scope="session")
def _widget_catalogs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Catalogs]:
    catalogs = Catalogs(tmp_path_factory.mktemp("widget-catalog"))
    yield catalogs
    catalogs.close()


@pytest.fixture
def widget_catalog(_widget_catalogs: Catalogs) -> Iterator[WidgetCatalog]:
    """An empty Widget Catalog."""
    with _widget_catalogs.serve(start="empty") as catalog:
        yield catalog


@pytest.fixture
def widget_catalog_demo(_widget_catalogs: Catalogs) -> Iterator[WidgetCatalog]:
    """A Widget Catalog with the demo widgets."""
    with _widget_catalogs.serve(start="demo") as catalog:
        yield catalog


@pytest.fixture
def widget_catalog_file(_widget_catalogs: Catalogs) -> Iterator[Path]:
    """The path of an SQLite file with the demo catalog; no service uses this file."""
    path = _widget_catalogs.save(start="demo")
    yield path
    shutil.rmtree(path.parent)


@pytest.fixture
def widget_catalog_from(
    _widget_catalogs: Catalogs,
) -> Iterator[Callable[[Source], WidgetCatalog]]:
    """A function that serves a Widget Catalog with the given content.

    The content is the path of a JSON Lines or SQLite file, or a list of widget documents.
    """
    with ExitStack() as stack:
        yield lambda source: stack.enter_context(_widget_catalogs.serve_content(source))
