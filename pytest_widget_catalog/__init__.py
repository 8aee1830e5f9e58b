"""pytest fixtures that serve a Widget Catalog to the tests of a project.

The service runs in processes of its own: none of its modules is imported into the tests.
"""

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from pytest_widget_catalog.catalog import CatalogFactory, RequestRecord, Source, WidgetCatalog
from pytest_widget_catalog.process import WidgetCatalogError

__all__ = ["RequestRecord", "WidgetCatalog", "WidgetCatalogError"]


@pytest.fixture(scope="session")
def _widget_catalog_factory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CatalogFactory]:
    factory = CatalogFactory(tmp_path_factory.mktemp("widget-catalog"))
    yield factory
    factory.close()


@pytest.fixture
def widget_catalog(_widget_catalog_factory: CatalogFactory) -> Iterator[WidgetCatalog]:
    """An empty Widget Catalog, served on a port of its own."""
    catalog = _widget_catalog_factory.serve("empty")
    yield catalog
    catalog.close()


@pytest.fixture
def widget_catalog_demo(_widget_catalog_factory: CatalogFactory) -> Iterator[WidgetCatalog]:
    """A Widget Catalog with the demo catalog, served on a port of its own."""
    catalog = _widget_catalog_factory.serve("demo")
    yield catalog
    catalog.close()


@pytest.fixture
def widget_catalog_file(_widget_catalog_factory: CatalogFactory) -> Iterator[Path]:
    """The path of an SQLite file with the demo catalog, which nothing serves."""
    path = _widget_catalog_factory.create_file("demo")
    yield path
    shutil.rmtree(path.parent, ignore_errors=True)


@pytest.fixture
def widget_catalog_from(
    _widget_catalog_factory: CatalogFactory,
) -> Iterator[Callable[[Source], WidgetCatalog]]:
    """A function that serves a Widget Catalog with this content.

    The content is the path of a catalog file or of an SQLite file; or widget documents.
    """
    with ExitStack() as stack:

        def serve(source: Source) -> WidgetCatalog:
            catalog = _widget_catalog_factory.serve_content(source)
            stack.callback(catalog.close)
            return catalog

        yield serve
