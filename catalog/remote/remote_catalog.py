"""The operations on a catalog that the commands can carry out through a service."""

from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from typing import cast
from urllib.parse import quote

from urllib3 import encode_multipart_formdata

from .. import V1_PREFIX
from ..domain.changes import (
    ChangeError,
    Edited,
    MissingError,
    MissingWidgetError,
    Moderated,
    NewVersion,
    Published,
    WidgetName,
    check_version_or_range,
)
from ..domain.documents import Json
from ..domain.folding import fold
from ..domain.manifests import build_document, check_keys
from ..domain.validators import check_identifier, check_new_name, check_version
from . import response_shapes as shapes
from .service import Body, RemoteError, Service, json_body

DRY_RUN = {"dryRun": "true"}
STORE_AGAIN = {"store": "true"}
# The prefix of the internal paths for widgets.
WIDGETS = "/api/widgets/"
# The maximum number of widgets that a service sends on one page.
PAGE_SIZE = 100
# The maximum number of pages: an endless list must not keep a command busy.
MAX_PAGES = 2000


class RemoteCatalog:
    """The catalog of a service, for the commands that support --server."""

    # The command uploads the bundle to the service unless --bundle-url is given.
    bundle_url = ""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.bundles_name = service.url

    def publish(self, new: NewVersion, *, dry_run: bool) -> Published:
        """Add a version, and send its bundle, readme and picture if they are given."""
        target = _manifest_target(new)
        new.bundle.check_size()
        if new.content is None:
            # The service cannot check a bundle that it does not receive.
            new.bundle.check_content()
        manifest = {
            **new.manifest,
            "bundleSize": new.bundle.size,
            "sha256Hash": new.bundle.sha256,
        }
        if new.url_template:
            manifest["bundleUrl"] = new.url_template
        body = json_body(manifest)
        parts = {}
        if new.content is not None:
            parts["bundle"] = ("bundle", b"".join(new.content), "text/javascript")
        if new.readme is not None:
            parts["readme"] = ("readme", new.readme, "text/markdown")
        if new.picture is not None:
            parts["picture"] = ("picture", new.picture, "application/octet-stream")
        if parts:
            parts["manifest"] = ("manifest", body.content, body.content_type)
            body = Body(*encode_multipart_formdata(parts))
        options = {**(DRY_RUN if dry_run else {}), **(STORE_AGAIN if new.stores_again else {})}
        result = self.service.request(
            "PUT", f"{WIDGETS}{_path(target)}", shapes.PUBLISHED, body, options
        )
        return cast(Published, result)

    def set_yanked(
        self, targets: Sequence[WidgetName], yanked: bool, reason: str | None, *, dry_run: bool
    ) -> list[Moderated]:
        """Yank the versions or make them available again; a reason of None keeps the stored one."""
        body = {"reason": reason} if yanked and reason is not None else {}
        return self._change(targets, "yank" if yanked else "unyank", body, dry_run)

    def set_deprecation(
        self, targets: Sequence[WidgetName], message: str | None, *, dry_run: bool
    ) -> list[Moderated]:
        """Set the deprecation message of the versions; None removes it."""
        if message is None:
            return self._change(targets, "undeprecate", {}, dry_run)
        return self._change(targets, "deprecate", {"message": message}, dry_run)

    def _change(
        self, targets: Sequence[WidgetName], action: str, body: Json, dry_run: bool
    ) -> list[Moderated]:
        """Send a request for each widget; each request changes all given versions or none.

        For several widgets, a dry run of all requests comes first, so that a mistake in one of them
        changes nothing.
        """
        widgets: defaultdict[WidgetName, list[str]] = defaultdict(list)
        for target in targets:
            widgets[target.widget].append(check_version_or_range(target.version))
        if len(widgets) > 1 and not dry_run:
            self._change(targets, action, body, dry_run=True)
        options = DRY_RUN if dry_run else {}
        results: list[Moderated] = []
        for widget, versions in widgets.items():
            path = f"{WIDGETS}{_path(widget._replace(version=','.join(versions)))}/{action}"
            result = self.service.request("POST", path, shapes.MODERATED, json_body(body), options)
            results.append(cast(Moderated, result))
        return results

    def read_session(self) -> Json:
        """Return the token's name, permissions and expiry."""
        return self.service.request("GET", "/api/session", shapes.SESSION)

    def edit_widget(
        self, widget: WidgetName, changes: Json, picture: bytes | None = None
    ) -> Edited:
        """Apply the changes, whose keys are named as in the API, and set the picture if given."""
        body = json_body(changes)
        if picture is not None:
            parts = {
                "changes": ("changes", body.content, body.content_type),
                "picture": ("picture", picture, "application/octet-stream"),
            }
            body = Body(*encode_multipart_formdata(parts))
        path = f"{WIDGETS}{_path(widget)}"
        return cast(Edited, self.service.request("PATCH", path, shapes.EDITED, body))

    def read_log(
        self, widget: WidgetName | None, since: str | None, limit: int | None
    ) -> list[Json]:
        """Return entries from the audit log, newest first."""
        options: dict[str, object] = {"since": since, "widget": widget and str(widget)}
        parameters = {key: value for key, value in options.items() if value is not None}
        entries: list[Json] = []
        for _ in range(MAX_PAGES):
            response = self.service.request(
                "GET", "/api/audit", shapes.AUDIT_PAGE, None, parameters
            )
            page = response["entries"]
            if page and entries and page[0]["id"] >= entries[-1]["id"]:
                raise RemoteError(self.service.describe_unexpected("repeats a page"))
            entries += page
            if not page or (limit and len(entries) >= limit):
                return entries[:limit]
            parameters["before"] = page[-1]["id"]
        raise self._too_many("entries", "--limit or --since")

    def read_list(
        self, scope: str | None = None, sort: str = "name", limit: int | None = None
    ) -> tuple[list[Json], int]:
        """Return the listed widgets in a scope or in all scopes, and how many there are.

        The service sorts the widgets. With a limit, only the necessary pages are read.
        """
        size = min(limit or PAGE_SIZE, PAGE_SIZE)
        query: dict[str, object] = {"scope": scope or "", "sort": sort, "limit": size}
        found: dict[tuple[str, str], Json] = {}
        for page in range(1, MAX_PAGES + 1):
            result = self.service.get(
                f"{V1_PREFIX}search", shapes.SEARCH_PAGE, {**query, "page": page}
            )
            widgets = {(each["scope"], each["name"]): each for each in result["widgets"]}
            has_new = not widgets.keys() <= found.keys()
            found |= widgets
            if not has_new or len(found) >= result["total"]:
                return [*map(_listed_widget, found.values())], len(found)
            if limit and len(found) >= limit:
                return [*map(_listed_widget, found.values())][:limit], result["total"]
        raise self._too_many("widgets", "--scope")

    def read_similar(self, scope: str) -> list[tuple[str, str, str, str]]:
        """Return the most installed widgets in the scope, then in all, for rank_similar()."""
        in_scope, _ = self.read_list(scope, sort="installs", limit=PAGE_SIZE)
        others, _ = self.read_list(sort="installs", limit=PAGE_SIZE)
        names = ((each["scope"], each["name"], each["displayName"]) for each in in_scope + others)
        return [(*each, fold(each[-1])) for each in names]

    def _too_many(self, items: str, option: str) -> ChangeError:
        """Return the error for a list with more than MAX_PAGES pages."""
        return RemoteError(
            f"{self.service.url} has more than {MAX_PAGES} pages of {items}; use {option}."
        )

    def read_document(self, widget: WidgetName) -> Json:
        """Return the document of a listed widget; raise MissingWidgetError if there is none."""
        path = f"{V1_PREFIX}{_path(widget.widget)}"
        try:
            detail = self.service.get(path, shapes.DETAIL)
        except MissingError:
            raise MissingWidgetError(widget.widget) from None
        document = {"widget": {**detail["widget"], "listed": True}, "versions": detail["versions"]}
        # Services before release 1.1 do not have this path.
        with suppress(MissingError):
            document["about"] = self.service.get(f"{path}/about", {})
        return document

    def read_installs(self, widget: WidgetName, days: int) -> Json | None:
        """Return how often a listed widget was installed, by day and by version.

        Return None if the service is older than release 1.1, which introduced these counts.
        """
        try:
            path = f"{V1_PREFIX}{_path(widget.widget)}/installs"
            return self.service.get(path, shapes.INSTALLS, {"days": days})
        except MissingError:
            return None

    def read_origin(self, widget: WidgetName) -> dict[str, str]:
        """Return an empty result: a service does not show the upstream of its copies."""
        return {}

    def find_updates(self, sdk: str, installed: Sequence[object], before: str | None) -> list[Json]:
        """Return the updates for installed versions; if before is given, ignore later versions."""
        parameters = {"compatSdk": sdk, "installed": list(map(str, installed))}
        if before is not None:
            parameters["before"] = before
        response = self.service.get(f"{V1_PREFIX}updates", shapes.UPDATES, parameters)
        items: list[Json] = response["updates"]
        return items


def _listed_widget(summary: Json) -> Json:
    """Return a search result as `widget-catalog list --json` prints it."""
    latest = summary["latestVersion"] or dict.fromkeys(
        ("version", "deprecationMessage", "publishedAt")
    )
    widget = {key: value for key, value in summary.items() if key != "latestVersion"}
    return {
        **widget,
        "listed": True,
        "latestVersion": latest["version"],
        "deprecationMessage": latest["deprecationMessage"],
        "updatedAt": latest["publishedAt"],
    }


def _manifest_target(new: NewVersion) -> WidgetName:
    """Return the version that the manifest names; raise DocumentError if it names none."""
    manifest = check_keys(new.manifest)
    try:
        return WidgetName(
            check_identifier(manifest.get("scope")),
            check_new_name(manifest.get("name")),
            check_version(manifest.get("version")),
        )
    except ValueError:
        # The error that build_document() raises reports all problems with the manifest.
        build_document(new, new.url_template, None)
        raise


def _path(target: WidgetName) -> str:
    """Return the scope, name and version, if any, as segments of a URL path."""
    return "/".join(quote(part, safe="") for part in target if part is not None)
