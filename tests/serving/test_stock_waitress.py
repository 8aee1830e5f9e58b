"""The application is plain WSGI: waitress serves it without the server of this project."""

import http.client
import json
import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from builders import document
from conftest import ROOT, Limits, create_catalog
from prepared_processes import start_python
from publishers import FORM_TYPE, bearer, create_token, form, manifest

from catalog.store.connection.database import Database

SEARCH = "/api/v1/widgets/search"
NOTES = "/api/v1/widgets/ops/notes"
PUBLICATION = "/api/widgets/acme/clock/1.0.0"
# A line for each search that is rendered.
LOG_SEARCHES = """
import catalog.api.v1.lists
find_widgets = catalog.api.v1.lists.find_widgets
def find_and_log(*arguments):
    with open({log!r}, "a") as log:
        log.write("search\\n")
    return find_widgets(*arguments)
catalog.api.v1.lists.find_widgets = find_and_log
"""


class Waitress:
    """A process of waitress-serve with the application, and a token for the scope acme."""

    def __init__(self, folder: Path) -> None:
        path = create_catalog(folder / "catalog.db", document("ops/notes"))
        database = Database(path)
        self.token = create_token(database)
        database.close()
        self._log = folder / "searches"
        limits = Limits(folder)
        settings = limits.run(LOG_SEARCHES.format(log=str(self._log)))
        self.process = start_python(
            ["-m", "waitress", "--listen=127.0.0.1:0", "--call", "app:create_app"],
            {**os.environ, **settings, "CATALOG_DATABASE": str(path)},
            cwd=ROOT,
        )
        assert self.process.stderr is not None
        self._port = int(self.process.stderr.readline().rsplit(":", 1)[1])

    def request(
        self, method: str, path: str, body: bytes | None = None, **headers: str
    ) -> tuple[http.client.HTTPResponse, bytes]:
        """Send one request. In names of headers, _ stands for -."""
        fields = {name.replace("_", "-"): value for name, value in headers.items()}
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=60)
        with closing(connection):
            connection.request(method, path, body, fields)
            response = connection.getresponse()
            return response, response.read()

    def rendered_searches(self) -> int:
        return len(self._log.read_text().splitlines())


@pytest.fixture(scope="module")
def waitress(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Waitress]:
    running = Waitress(tmp_path_factory.mktemp("waitress"))
    yield running
    running.process.terminate()
    running.process.communicate(timeout=60)


def test_searches_are_cached_and_have_cors_and_etag(waitress: Waitress) -> None:
    first, body = waitress.request("GET", f"{SEARCH}?q=notes")
    rendered = waitress.rendered_searches()
    second, cached = waitress.request("GET", f"{SEARCH}?q=notes")
    assert (first.status, second.status, cached) == (200, 200, body)
    assert [widget["name"] for widget in json.loads(body)["widgets"]] == ["notes"]
    assert waitress.rendered_searches() == rendered
    assert second.headers["Access-Control-Allow-Origin"] == "*"
    etag = second.headers["ETag"]
    unchanged, nothing = waitress.request("GET", f"{SEARCH}?q=notes", If_None_Match=etag)
    assert (unchanged.status, nothing) == (304, b"")


def test_installs_are_counted(waitress: Waitress) -> None:
    assert waitress.request("POST", NOTES)[0].status == 200
    _, body = waitress.request("GET", NOTES)
    assert json.loads(body)["widget"]["downloadCount"] == 1


def test_pages_and_their_files_are_served(waitress: Waitress) -> None:
    response, body = waitress.request("GET", "/widgets/ops/notes")
    assert response.status == 200
    assert response.headers["Content-Type"] == "text/html; charset=utf-8"
    style = body.decode().partition('href="/static/')[2].partition('"')[0]
    assert waitress.request("GET", f"/static/{style}")[0].status == 200


def test_a_large_body_is_413_on_the_public_api(waitress: Waitress) -> None:
    response, body = waitress.request("POST", NOTES, b"x" * 100_000)
    assert response.status == 413
    assert "needs no body" in json.loads(body)["error"]


def test_a_bundle_is_published_with_a_token_only(waitress: Waitress) -> None:
    bundle = b"export default 1\n" * 50_000
    body = form(manifest(), bundle)
    fields = {"Content_Type": FORM_TYPE}
    assert waitress.request("PUT", PUBLICATION, body, **fields)[0].status == 401
    response, _ = waitress.request("PUT", PUBLICATION, body, **fields, **bearer(waitress.token))
    assert response.status == 201
    _, served = waitress.request("GET", f"{PUBLICATION.replace('api', 'api/v1')}/bundle.js")
    assert served == bundle
    # The cached list of all widgets is rendered again.
    _, listed = waitress.request("GET", SEARCH)
    assert {widget["name"] for widget in json.loads(listed)["widgets"]} == {"clock", "notes"}
