"""Fetches widgets from an upstream in parallel: their documents, "about" objects and pictures."""

import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, nullcontext
from itertools import islice
from threading import Lock
from typing import NamedTuple, TypeVar
from urllib.parse import quote

from .. import V1_PREFIX
from ..domain.changes import WidgetName
from ..domain.documents import Document, DocumentError, Row, check_about, check_document
from ..domain.messages import NotAllowedError, quoted
from ..domain.pictures import describe_picture
from ..domain.validators import check_identifier
from ..store.bundles.bundles import Bundles
from ..store.write.about import NewFile, picture_file
from .upstream import Upstream, UpstreamError, read_etag, read_json

# The number of concurrent requests.
WORKERS = 4
# The number of results that one transaction writes; a crash loses at most this many.
BATCH_SIZE = 64
# A batch is written after this many seconds, even if it is not full.
MAX_BATCH_SECONDS = 2

Item = TypeVar("Item")
Result = TypeVar("Result")


def in_batches(
    function: Callable[[Item], Result], items: Iterable[Item]
) -> Iterator[list[tuple[Item, Result]]]:
    """Call the function for all items in a thread pool; yield batches of results as they arrive."""
    waiting = enumerate(items)
    running: dict[Future[Result], tuple[int, Item]] = {}
    done: list[tuple[int, Item, Result]] = []
    with _thread_pool() as threads:
        batch_end = time.monotonic() + MAX_BATCH_SECONDS
        while True:
            for number, item in islice(waiting, 2 * WORKERS - len(running)):
                running[threads.submit(function, item)] = number, item
            if not running:
                break
            left = max(batch_end - time.monotonic(), 0)
            for future in wait(running, left, return_when=FIRST_COMPLETED).done:
                done.append((*running.pop(future), future.result()))
            if len(done) >= BATCH_SIZE or time.monotonic() >= batch_end:
                yield _without_numbers(done)
                done, batch_end = [], time.monotonic() + MAX_BATCH_SECONDS
    yield _without_numbers(done)


def _without_numbers(done: list[tuple[int, Item, Result]]) -> list[tuple[Item, Result]]:
    """Return the results in the order of their items."""
    return [(item, result) for _, item, result in sorted(done, key=lambda each: each[0])]


@contextmanager
def _thread_pool() -> Iterator[ThreadPoolExecutor]:
    """Yield a thread pool; tasks that have not started when the with block ends are cancelled."""
    threads = ThreadPoolExecutor(WORKERS)
    try:
        yield threads
    finally:
        # An interrupted command must end immediately, not when the pending responses arrive.
        is_interrupted = isinstance(sys.exception(), KeyboardInterrupt)
        threads.shutdown(wait=not is_interrupted, cancel_futures=True)


class Fetched(NamedTuple):
    """The result of the requests for a widget; document is set only if it is new or changed."""

    document: Document | None = None
    etag: str | None = None
    # The about columns; None if they were not requested or the upstream does not support them.
    about: Row | None = None
    # The picture file, if it is new.
    files: tuple[NewFile, ...] = ()
    is_not_found: bool = False
    failure: str | None = None
    # True if the request for the document did not get a usable response.
    is_unavailable: bool = False


class Fetcher:
    """Fetches widgets from an upstream. Thread-safe."""

    def __init__(
        self, upstream: Upstream, bundles: Bundles, *, lists_changes: bool, with_pictures: bool
    ) -> None:
        self._upstream, self._bundles = upstream, bundles
        self._lists_changes, self._with_pictures = lists_changes, with_pictures
        # None until the first request; false if the upstream does not support about, as in 1.0.0.
        self._has_about: bool | None = None
        self._first_request = Lock()

    def fetch(self, key: WidgetName, etag: str | None, *, with_about: bool) -> Fetched:
        """Fetch a widget's document unless its ETag still matches, and fetch its about columns.

        The about columns of an up-to-date widget are fetched only if with_about is true.
        """
        try:
            path = _detail_path(key)
        except ValueError as rule:
            return Fetched(failure=f"scope and name must be {rule}")
        try:
            response = self._upstream.get(path, etag)
        except UpstreamError as error:
            return Fetched(failure=str(error), is_unavailable=True)
        if response.status == 404:
            return Fetched(is_not_found=True)
        if response.status == 304:
            return self.fetch_about(key) if with_about else Fetched()
        try:
            document = check_document(read_json(response))
        except UpstreamError as error:
            return Fetched(failure=str(error))
        except DocumentError as error:
            more = f" (and {len(error.problems) - 1} more)" if len(error.problems) > 1 else ""
            return Fetched(failure=f"{error.problems[0]}{more}")
        if document.path != str(key):
            return Fetched(failure=f"the response is about another widget: {quoted(document.path)}")
        # If the request for about failed, do not store an ETag: the next run fetches both again.
        about = self.fetch_about(key)
        return about._replace(
            document=document, etag=None if about.failure else read_etag(response)
        )

    def fetch_about(self, key: WidgetName) -> Fetched:
        """Fetch the about columns of a widget that has just been found."""
        try:
            with nullcontext() if self._has_about else self._first_request:
                return Fetched() if self._has_about is False else self._fetch_about(key)
        except NotAllowedError as allowed:
            return Fetched(failure=f"about: its picture must be {allowed}")
        except UpstreamError as error:
            return Fetched(failure=f"about: {error}")

    def _fetch_about(self, key: WidgetName) -> Fetched:
        path, problems = _detail_path(key), list[str]()
        response = self._upstream.get(f"{path}/about")
        if response.status == 404:
            # Most upstreams that list changes also serve /about, so the widget itself may be gone.
            if self._lists_changes and self._upstream.get(path).status == 404:
                return Fetched(is_not_found=True)
            self._has_about = False
            return Fetched()
        about = check_about(read_json(response), problems)
        self._has_about = True
        if about is None or problems:
            raise UpstreamError(problems[0] if problems else "the response is not an object")
        picture = json.loads(about["picture"] or "{}")
        # A stored file with this hash may be a bundle, so has_picture() examines its content.
        if not picture or self._bundles.has_picture(picture):
            return Fetched(about=about)
        if not self._with_pictures:
            return Fetched(about={**about, "picture": None})
        url = f"{self._upstream.base_url}{path}/picture?sha256={picture['sha256Hash']}"
        contents: list[bytes] = []
        self._upstream.download(url, picture["size"], lambda data: contents.append(b"".join(data)))
        if describe_picture(contents[-1]) != picture:
            raise UpstreamError("its picture does not match the upstream's description")
        return Fetched(about=about, files=(picture_file(contents[-1]),))


def _detail_path(key: WidgetName) -> str:
    return V1_PREFIX + "/".join(quote(check_identifier(part), safe="") for part in key[:2])
