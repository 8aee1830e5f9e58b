"""The changes of a catalog that the commands can make through a service."""

import json
import secrets
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import TypeVar
from urllib.parse import quote

from catalog.documents import WIDGET_FIELDS, Json, Row
from catalog.remote.responses import (
    parse_changed,
    parse_changes,
    parse_entries,
    parse_published,
    parse_session,
    parse_yanked,
)
from catalog.remote.service import Body, OnProgress, RemoteError, Service, json_body
from catalog.semver_ranges import MAX_SAFE_INTEGER
from catalog.store.write.lookup import ChangeError, WidgetName, check_version_or_range
from catalog.store.write.manifests import BundleSummary, build_document, check_keys
from catalog.store.write.moderation import LatestChange, VersionChange
from catalog.store.write.publishing import PublishResult, Upload
from catalog.store.write.tokens import PUBLISH, missing_right
from catalog.validators import check_identifier, check_version

# The keys of the API, by the columns that the commands change.
COLUMN_KEYS = {field.column: field.key for field in WIDGET_FIELDS}
DRY_RUN = {"dryRun": "true"}

Result = TypeVar("Result")


class RemoteCatalog:
    """The catalog of a service, with the same methods as the one in a database."""

    # A publisher has no access to the disk of the service, so it is sent the bundle.
    stores_by_default = True

    def __init__(
        self,
        service: Service,
        progress_bar: Callable[[str], AbstractContextManager[OnProgress]],
    ) -> None:
        self.service = service
        self._progress_bar = progress_bar
        self.bundles_name = service.url

    def publish(self, upload: Upload, *, dry_run: bool) -> PublishResult:
        """Add a version, and send its bundle if its content is given."""
        target = _manifest_target(upload)
        path = _version_path(target)
        if not upload.bundle.size:
            raise ChangeError(f"{upload.bundle.label} is empty.")
        manifest = {
            **upload.manifest,
            "bundleSize": upload.bundle.size,
            "sha256Hash": upload.bundle.sha256,
        }
        if upload.url_template:
            manifest["bundleUrl"] = upload.url_template
        options = DRY_RUN if dry_run else {}
        parse = partial(parse_published, target)
        if upload.content is None:
            return self.service.request("PUT", path, parse, json_body(manifest), options)
        self._check_upload(target, upload.bundle)
        with self._progress_bar("Uploading") as on_progress:
            body = _encode_form(manifest, b"".join(upload.content), on_progress)
            return self.service.request("PUT", path, parse, body, options)

    def _check_upload(self, target: WidgetName, bundle: BundleSummary) -> None:
        """Raise RemoteError if the service would refuse the bundle, before it is sent."""
        token, scopes, permissions, _, limit = self.service.request(
            "GET", "/api/session", parse_session
        )
        if missing := missing_right(token, permissions, scopes, PUBLISH, target.scope):
            raise RemoteError(missing)
        if bundle.size > limit:
            raise RemoteError(
                f"{bundle.label} has {bundle.size} bytes; {self.service.url} accepts {limit}."
            )

    def set_yanked(
        self, targets: Sequence[WidgetName], yanked: bool, reason: str | None, *, dry_run: bool
    ) -> tuple[list[VersionChange], list[LatestChange]]:
        """Yank the versions or make them available again; None as the reason keeps the stored one.

        Return what changed in the versions, and in the latest versions of their widgets.
        """
        body = {"reason": reason} if yanked and reason is not None else {}
        action = "yank" if yanked else "unyank"
        results = self._change(targets, action, body, parse_yanked, dry_run)
        changes = [change for changes, _ in results for change in changes]
        return changes, [latest for _, latest in results]

    def set_deprecation(
        self, targets: Sequence[WidgetName], message: str | None, *, dry_run: bool
    ) -> list[VersionChange]:
        """Set the warning of the versions; None removes it."""
        action, body = (
            ("undeprecate", {}) if message is None else ("deprecate", {"message": message})
        )
        results = self._change(targets, action, body, parse_changes, dry_run)
        return [change for changes in results for change in changes]

    def _change(
        self,
        targets: Sequence[WidgetName],
        action: str,
        body: Json,
        parse: Callable[[WidgetName, Json], Result],
        dry_run: bool,
    ) -> list[Result]:
        """Send a request for each widget, which changes all its versions or none.

        If there are several, a dry run of all of them comes first, so that a mistake in one of them
        leaves all as they are.
        """
        widgets: defaultdict[WidgetName, list[str]] = defaultdict(list)
        for target in targets:
            widgets[target._replace(version=None)].append(check_version_or_range(target.version))
        if len(widgets) > 1 and not dry_run:
            self._change(targets, action, body, parse, dry_run=True)
        results: dict[WidgetName, Result] = {}
        for widget, versions in widgets.items():
            path = f"{_version_path(widget._replace(version=','.join(versions)))}/{action}"
            options = DRY_RUN if dry_run else {}
            try:
                results[widget] = self.service.request(
                    "POST", path, partial(parse, widget), json_body(body), options
                )
            except RemoteError as error:
                if dry_run or not results:
                    raise
                done = ", ".join(map(str, results))
                raise RemoteError(f"{error} Changed before that: {done}.") from error
        return list(results.values())

    def edit_widget(self, widget: WidgetName, changes: Row) -> bool:
        """Set columns of the widget; return whether one of them was different."""
        body = json_body({COLUMN_KEYS[column]: value for column, value in changes.items()})
        return self.service.request("PATCH", _widget_path(widget), parse_changed, body)

    def read_log(
        self, widget: WidgetName | None, since: str | None, limit: int | None
    ) -> list[Json]:
        """Return the recorded changes, the newest first."""
        options: dict[str, object] = {"since": since, "widget": widget}
        parameters = {key: value for key, value in options.items() if value is not None}
        entries: list[Json] = []
        before = MAX_SAFE_INTEGER
        while page := self.service.request(
            "GET", "/api/audit", partial(parse_entries, before), None, parameters
        ):
            entries += page
            if limit and len(entries) >= limit:
                break
            parameters["before"] = before = page[-1]["id"]
        return entries[:limit]


def _manifest_target(upload: Upload) -> WidgetName:
    """Return the version that the manifest names; raise DocumentError if it names none."""
    manifest = check_keys(upload.manifest)
    try:
        return WidgetName(
            check_identifier(manifest.get("scope")),
            check_identifier(manifest.get("name")),
            check_version(manifest.get("version")),
        )
    except ValueError:
        # This raises, with all other problems.
        build_document(manifest, upload.bundle, upload.url_template, None)
        raise


def _widget_path(target: WidgetName) -> str:
    return f"/api/widgets/{quote(target.scope, safe='')}/{quote(target.name, safe='')}"


def _version_path(target: WidgetName) -> str:
    return f"{_widget_path(target)}/{quote(target.version or '', safe='')}"


def _encode_form(manifest: Json, bundle: bytes, on_progress: OnProgress) -> Body:
    boundary = secrets.token_hex(16)
    parts = {
        "manifest": ("application/json", json.dumps(manifest).encode()),
        "bundle": ("text/javascript", bundle),
    }
    lines: list[bytes] = []
    for name, (kind, content) in parts.items():
        head = f'Content-Disposition: form-data; name="{name}"; filename="{name}"'
        lines += [f"--{boundary}".encode(), head.encode(), f"Content-Type: {kind}".encode()]
        lines += [b"", content]
    lines += [f"--{boundary}--".encode(), b""]
    return Body(b"\r\n".join(lines), f"multipart/form-data; boundary={boundary}", on_progress)
