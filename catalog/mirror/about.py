"""Copies what an upstream says about widgets: readmes, links and, with the bundles, pictures."""

import json
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from urllib.parse import quote

from .. import V1_PREFIX
from ..changes import WidgetName
from ..documents import Row, check_about
from ..store.bundles import Bundles
from ..store.connection.database import Database
from ..store.write.about import NewFile, picture_file, store_files
from ..store.write.audit import local_actor
from ..store.write.mirrored import put_upstream_about
from .connections import UpstreamError
from .fetch import batched, thread_pool
from .upstream import Upstream

# The columns of about, and the file of the picture if it is new.
Fetched = tuple[Row, list[NewFile]]


@dataclass
class AboutRun:
    """One refresh of what is said about copies; new pictures are copied only with the bundles."""

    database: Database
    upstream: Upstream
    bundles: Bundles
    downloads: bool

    def refresh(self, keys: Sequence[WidgetName]) -> dict[str, str]:
        """Copy what differs; return the reasons of failures, by widget."""
        failures: dict[str, str] = {}
        with thread_pool() as threads:
            for batch in batched(keys):
                abouts: dict[WidgetName, Row] = {}
                files: list[NewFile] = []
                for key, fetched in zip(batch, threads.map(self.fetch, batch), strict=True):
                    if isinstance(fetched, str):
                        failures[str(key)] = f"about: {fetched}"
                    elif fetched:
                        abouts[key] = fetched[0]
                        files += fetched[1]
                if failures and not abouts:
                    # The rest would fail too, and the next run tries again.
                    break
                with store_files(self.bundles, files) if files else nullcontext():
                    put = partial(put_upstream_about, abouts=abouts)
                    self.database.transact(put, local_actor())
        return failures

    def fetch(self, key: WidgetName) -> Fetched | str | None:
        """Return what the upstream says, or why that failed; None if it has no such path."""
        path = f"{V1_PREFIX}{'/'.join(quote(part, safe='') for part in key[:2])}"
        problems: list[str] = []
        files: list[NewFile] = []
        try:
            response = self.upstream.get(f"{path}/about")
            about = None if response.status == 404 else check_about(response.json(), problems)
            if about is None or problems:
                return problems[0] if problems else None
            picture = json.loads(about["picture"] or "{}")
            if picture and not self.bundles.holds(picture["sha256Hash"], picture["size"]):
                if not self.downloads:
                    return {**about, "picture": None}, []
                url = f"{self.upstream.base_url}{path}/picture?sha256={picture['sha256Hash']}"
                self.upstream.download(
                    url, picture["size"], lambda data: files.append(picture_file(b"".join(data)))
                )
                if files[0][:2] != (picture["sha256Hash"], picture["size"]):
                    return "its picture has other bytes"
        except UpstreamError as error:
            return str(error)
        return about, files
