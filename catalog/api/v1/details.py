"""The routes that read one widget or version, and the routes that count installs."""

import json

from flask import Response, abort, current_app, request

from ... import CORS_HEADERS
from ...domain.messages import quoted
from ...domain.pictures import picture_url
from ...store.connection.sqlite import Connection, today
from ...store.read.about import find_about
from ...store.read.candidates import AVAILABLE, Candidates, parse_candidates
from ...store.read.detail import (
    LATEST,
    find_detail,
    find_version,
    revalidate_content,
    revalidate_detail,
)
from ...store.read.installs import find_installs, parse_days
from ...store.write.installs import count_install
from ..response_cache import RenderResult, render_for_cache, request_url
from .blueprint import READ_HEADERS, no_widget, v1


@v1.get("/<scope>/<name>")
def detail(scope: str, name: str) -> Response:
    candidates = requested_candidates()

    def render(connection: Connection) -> RenderResult:
        result = find_detail(connection, scope, name, candidates)
        if result is None:
            abort(404, no_widget(scope, name))
        return result

    return render_for_cache(
        lambda connection, revision: revalidate_detail(connection, scope, name, revision),
        render,
        READ_HEADERS,
    )


def requested_candidates() -> Candidates:
    """Return the candidates that the query string describes; raise ParameterError if invalid."""
    # Do not parse an empty query string: parsing takes time, and most query strings are empty.
    return parse_candidates(request.args.to_dict()) if request.query_string else AVAILABLE


@v1.post("/<scope>/<name>")
def install(scope: str, name: str) -> Response:
    if not count_install(current_app.extensions["database"], scope, name, today()):
        abort(404, no_widget(scope, name))
    return counted()


@v1.post("/<scope>/<name>/<version_number:version>")
def install_version(scope: str, name: str, version: str) -> Response:
    if not count_install(current_app.extensions["database"], scope, name, today(), version):
        abort(404, f"There is no version {quoted(f'{scope}/{name}@{version}')}.")
    return counted()


def counted() -> Response:
    return Response('{"success":true}\n', headers=CORS_HEADERS, mimetype="application/json")


@v1.get("/<scope>/<name>/installs")
def installs(scope: str, name: str) -> Response:
    days = parse_days(request.args.to_dict())

    def render(connection: Connection) -> RenderResult:
        day = today()
        body = find_installs(connection, scope, name, days, day)
        if body is None:
            abort(404, no_widget(scope, name))
        return day, body

    # The response is rendered again after every commit, and on the next day.
    return render_for_cache(lambda connection, day: None, render, READ_HEADERS)


@v1.get("/<scope>/<name>/about")
def about(scope: str, name: str) -> Response:
    def render(connection: Connection) -> RenderResult:
        found = find_about(connection, current_app.extensions["bundles"], scope, name)
        if found is None:
            abort(404, no_widget(scope, name))
        revision, about_widget = found
        if about_widget["picture"]:
            sha256 = about_widget["picture"]["sha256Hash"]
            url = picture_url(request_url(), scope, name, sha256)
            about_widget["picture"] = {"url": url, **about_widget["picture"]}
        text = json.dumps(about_widget, ensure_ascii=False, separators=(",", ":"))
        return revision, f"{text}\n".encode()

    return render_for_cache(revalidate_content, render, READ_HEADERS)


@v1.get("/<scope>/<name>/<version>")
def one_version(scope: str, name: str, version: str) -> Response:
    candidates = requested_candidates()

    def render(connection: Connection) -> RenderResult:
        result = find_version(connection, scope, name, version, candidates)
        if result is None:
            abort(404, no_widget(scope, name))
        revision, body = result
        if body is None:
            abort(404, no_version(scope, name, version, candidates))
        return revision, body

    return render_for_cache(revalidate_content, render, READ_HEADERS)


def no_version(scope: str, name: str, version: str, candidates: Candidates) -> str:
    if version == LATEST:
        return candidates.explain_none(f"{scope}/{name}")
    return f"There is no version {quoted(f'{scope}/{name}@{version}')}."
