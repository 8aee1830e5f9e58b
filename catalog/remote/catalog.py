"""The changes of a catalog that the commands can make through a service."""

from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from itertools import count
from typing import cast
from urllib.parse import quote

from urllib3 import encode_multipart_formdata

from .. import V1_PREFIX
from ..changes import (
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
from ..documents import Json
from ..manifests import build_document, check_keys
from ..validators import check_identifier, check_new_name, check_version
from .service import Body, Service, json_body

DRY_RUN = {"dryRun": "true"}
# The internal paths of widgets.
WIDGETS = "/api/widgets/"


class RemoteCatalog:
    """The catalog of a service, for the commands that can be used with --server."""

    # A publisher has no access to the disk of the service, so it is sent the bundle.
    stores_by_default = True

    def __init__(self, service: Service) -> None:
        self.service = service
        self.bundles_name = service.url

    def publish(self, new: NewVersion, *, dry_run: bool) -> Published:
        """Add a version, and send its bundle, readme and picture as far as they are given."""
        target = _manifest_target(new)
        if not new.bundle.size:
            raise ChangeError(f"{new.bundle.label} is empty.")
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
        options = DRY_RUN if dry_run else {}
        result = self.service.request("PUT", f"{WIDGETS}{_path(target)}", body, options)
        return cast(Published, result)

    def set_yanked(
        self, targets: Sequence[WidgetName], yanked: bool, reason: str | None, *, dry_run: bool
    ) -> list[Moderated]:
        """Yank the versions or make them available again; None keeps the stored reason."""
        body = {"reason": reason} if yanked and reason is not None else {}
        return self._change(targets, "yank" if yanked else "unyank", body, dry_run)

    def set_deprecation(
        self, targets: Sequence[WidgetName], message: str | None, *, dry_run: bool
    ) -> list[Moderated]:
        """Set the warning of the versions; None removes it."""
        if message is None:
            return self._change(targets, "undeprecate", {}, dry_run)
        return self._change(targets, "deprecate", {"message": message}, dry_run)

    def _change(
        self, targets: Sequence[WidgetName], action: str, body: Json, dry_run: bool
    ) -> list[Moderated]:
        """Send a request for each widget, which changes all its versions or none.

        If there are several, a dry run of all of them comes first, so that a mistake in one of them
        leaves all as they are.
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
            result = self.service.request("POST", path, json_body(body), options)
            results.append(cast(Moderated, result))
        return results

    def edit_widget(self, widget: WidgetName, changes: Json) -> Edited:
        """Set properties of the widget, by their keys in the API."""
        path = f"{WIDGETS}{_path(widget)}"
        return cast(Edited, self.service.request("PATCH", path, json_body(changes)))

    def set_picture(self, widget: WidgetName, content: bytes) -> Edited:
        """Set the picture of the widget."""
        body = Body(content, "application/octet-stream")
        path = f"{WIDGETS}{_path(widget)}/picture"
        return cast(Edited, self.service.request("PUT", path, body))

    def read_log(
        self, widget: WidgetName | None, since: str | None, limit: int | None
    ) -> list[Json]:
        """Return the recorded changes, the newest first."""
        options: dict[str, object] = {"since": since, "widget": widget and str(widget)}
        parameters = {key: value for key, value in options.items() if value is not None}
        entries: list[Json] = []
        while page := self.service.request("GET", "/api/audit", None, parameters)["entries"]:
            if entries and page[0]["id"] >= entries[-1]["id"]:
                raise ValueError("The pages repeat themselves.")
            entries += page
            if limit and len(entries) >= limit:
                break
            parameters["before"] = page[-1]["id"]
        return entries[:limit]

    def read_list(
        self, scope: str | None = None, unlisted: bool = False, sort: str = "name"
    ) -> list[Json]:
        """Return all listed widgets, perhaps of a scope, in the order of the service."""
        if unlisted:
            raise ChangeError("The service shows no unlisted widgets; leave out --unlisted.")
        query: dict[str, object] = {"scope": scope or "", "sort": sort, "limit": 100}
        found: dict[tuple[str, str], Json] = {}
        for page in count(1):
            result = self.service.get(f"{V1_PREFIX}search", {**query, "page": page})
            widgets = {(each["scope"], each["name"]): each for each in result["widgets"]}
            has_new = not widgets.keys() <= found.keys()
            found |= widgets
            if not has_new or len(found) >= result["total"]:
                break
        return [_listed_widget(each) for each in found.values()]

    def read_document(self, widget: WidgetName) -> Json:
        """Return the document of a listed widget; raise MissingWidgetError if there is none."""
        path = f"{V1_PREFIX}{_path(widget.widget)}"
        try:
            detail = self.service.get(path)
        except MissingError:
            raise MissingWidgetError(widget.widget) from None
        document = {"widget": {**detail["widget"], "listed": True}, "versions": detail["versions"]}
        # A service before release 1.1 says nothing about its widgets.
        with suppress(MissingError):
            document["about"] = self.service.get(f"{path}/about")
        return document

    def read_installs(self, widget: WidgetName, days: int) -> Json | None:
        """Return the installs of a listed widget, in the last days and by version.

        None if the service does not count them so, as before release 1.1.
        """
        try:
            return self.service.get(f"{V1_PREFIX}{_path(widget.widget)}/installs", {"days": days})
        except MissingError:
            return None

    def read_origin(self, widget: WidgetName) -> dict[str, str]:
        """Return nothing: a service does not say from where its copies are."""
        return {}

    def find_updates(self, sdk: str, installed: Sequence[object]) -> list[Json]:
        """Return the updates of installed versions."""
        parameters = {"compatSdk": sdk, "installed": list(map(str, installed))}
        items: list[Json] = self.service.get(f"{V1_PREFIX}updates", parameters)["updates"]
        return items


def _listed_widget(summary: Json) -> Json:
    """Return a search result as `widget-catalog list --json` prints it."""
    latest = summary["latestVersion"] or {"version": None, "deprecationMessage": None}
    states = {
        "latestVersion": latest["version"],
        "deprecationMessage": latest["deprecationMessage"],
    }
    return {**summary, "listed": True, **states}


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
        # This raises, with all other problems.
        build_document(new, new.url_template, None)
        raise


def _path(target: WidgetName) -> str:
    """Return scope, name and version as a part of a path."""
    return "/".join(quote(part, safe="") for part in target if part is not None)
