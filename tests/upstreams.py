"""An upstream that misbehaves as it is told to: a catalog over real HTTP, in threads of its own."""

import hashlib
import json
import ssl
import sys
import threading
from collections import defaultdict, deque
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlsplit

from builders import Json, document, version

SEARCH = "/api/v1/widgets/search"
Fault = Callable[["Handler"], None]


class FakeUpstream:
    """A catalog of documents with faults in it. Everything may be changed while it serves."""

    def __init__(self, *documents: Json) -> None:
        self.documents: dict[str, Json] = {}  # in the order of the list
        self.bundles: dict[str, bytes] = {}
        self.faults: defaultdict[str, deque[Fault]] = defaultdict(deque)  # each for one request
        self.requests: list[tuple[str, dict[str, str]]] = []  # path and headers
        self.connections = 0
        self.on_request: Callable[[str], None] = lambda path: None
        self.has_etags = True
        self.released = threading.Event()  # lets go of the requests that are kept waiting
        self.server = _Server(("127.0.0.1", 0), Handler)
        self.server.upstream = self  # type: ignore[attr-defined]
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, args=(0.01,)).start()
        for each in documents:
            self.put(each)

    def encrypt(self, context: ssl.SSLContext) -> None:
        """Serve over TLS from now on."""
        self.server.socket = context.wrap_socket(
            self.server.socket, server_side=True, do_handshake_on_connect=False
        )
        self.url = self.url.replace("http:", "https:")

    def put(self, given: Json) -> None:
        """Add a document, or change one in its place."""
        widget = given["widget"]
        self.documents[f"{widget['scope']}/{widget['name']}"] = given

    def fail(self, path: str, *faults: Fault) -> None:
        """Have the next requests for a path go wrong, one after the other."""
        self.faults[path].extend(faults)

    def with_bundle(self, number: str, content: bytes, **fields: Any) -> Json:
        """A version whose bundle is served here."""
        self.bundles[f"/bundles/{number}.js"] = content
        return version(
            number,
            bundleUrl=f"{self.url}/bundles/{number}.js",
            bundleSize=fields.pop("bundleSize", len(content)),
            sha256Hash=fields.pop("sha256Hash", hashlib.sha256(content).hexdigest()),
            **fields,
        )

    def asked(self, path: str) -> list[dict[str, str]]:
        """The headers of each request for a path."""
        return [headers for asked, headers in self.requests if asked == path]

    def paths(self) -> list[str]:
        """The paths that were asked for, in order."""
        return [urlsplit(path).path for path, _ in self.requests]

    def close(self) -> None:
        self.released.set()
        self.server.shutdown()
        self.server.server_close()


class _Server(ThreadingHTTPServer):
    def handle_error(self, request: object, client_address: object) -> None:
        if not isinstance(sys.exc_info()[1], ConnectionError):  # who asks may be gone or killed
            super().handle_error(request, client_address)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 10
    disable_nagle_algorithm = True

    def setup(self) -> None:
        super().setup()
        self.upstream.connections += 1

    @property
    def upstream(self) -> FakeUpstream:
        return self.server.upstream  # type: ignore[attr-defined,no-any-return]

    def do_GET(self) -> None:
        upstream = self.upstream
        upstream.requests.append((self.path, dict(self.headers)))
        upstream.on_request(self.path)
        faults = upstream.faults[urlsplit(self.path).path]
        if faults:
            faults.popleft()(self)
        else:
            self.answer()

    def answer(self) -> None:
        path = urlsplit(self.path).path
        if path == SEARCH:
            self.send_json(self.found())
        elif path in self.upstream.bundles:
            self.send_part(self.upstream.bundles[path])
        else:
            given = self.upstream.documents.get(unquote(path.removeprefix("/api/v1/widgets/")))
            self.send_json(given) if given else self.send(404, b'{"error": "No."}')

    def found(self) -> Json:
        asked = {key: values[0] for key, values in parse_qs(urlsplit(self.path).query).items()}
        scope, page, limit = asked.get("scope"), int(asked["page"]), int(asked["limit"])
        listed = [each["widget"] for each in list(self.upstream.documents.values())]
        listed = [each for each in listed if scope in (None, each["scope"])]
        start = (page - 1) * limit
        found = listed[start : start + limit]
        return {"widgets": found, "total": len(listed), "page": page, "limit": limit}

    def send_json(self, value: Json) -> None:
        body = json.dumps(value).encode()
        etag = f'"{hashlib.sha256(body).hexdigest()}"'
        if not self.upstream.has_etags:
            self.send(200, body)
        elif self.headers["If-None-Match"] == etag:
            self.send(304, b"", ETag=etag)
        else:
            self.send(200, body, ETag=etag)

    def send_part(self, content: bytes) -> None:
        start = int((self.headers["Range"] or "bytes=0-")[len("bytes=") : -1])
        if start:
            part = f"bytes {start}-{len(content) - 1}/{len(content)}"
            self.send(206, content[start:], **{"Content-Range": part})
        else:
            self.send(200, content)

    def send(self, status: int, body: bytes, **headers: str) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments: object) -> None:
        pass


def status(code: int, **headers: str) -> Fault:
    """Answers with a status of no use; a header's name has _ for each -."""
    return lambda handler: handler.send(code, b'{"error": "Not now."}', **headers)


def redirect(location: str) -> Fault:
    """Sends elsewhere."""
    return status(302, Location=location)


def body(content: bytes, **headers: str) -> Fault:
    """Answers with these bytes."""
    return lambda handler: handler.send(200, content, **headers)


def hang_up(handler: Handler) -> None:
    """Ends the connection without an answer."""
    handler.close_connection = True


def cut(after: int) -> Fault:
    """Ends the connection after so many bytes of the right answer's body."""

    def fault(handler: Handler) -> None:
        written = handler.wfile

        class Cut:
            def write(self, content: bytes) -> None:
                is_head = content.startswith(b"HTTP/1.1")
                written.write(content if is_head else content[:after])

            def __getattr__(self, name: str) -> Any:
                return getattr(written, name)

        handler.wfile = Cut()  # type: ignore[assignment]
        handler.answer()
        handler.wfile = written
        handler.close_connection = True

    return fault


def endless(code: int = 200) -> Fault:
    """Answers with a body that goes on for as long as anyone reads."""

    def fault(handler: Handler) -> None:
        handler.send_response(code)
        handler.end_headers()
        handler.close_connection = True
        try:
            while not handler.upstream.released.is_set():
                handler.wfile.write(b" " * 65536)
        except OSError:
            pass  # whoever read has had enough

    return fault


def dribble(beginning: bytes, more: bytes) -> Fault:
    """Responds with these bytes, and then without end with a few more now and then."""

    def fault(handler: Handler) -> None:
        handler.close_connection = True
        try:
            handler.wfile.write(beginning)
            while not handler.upstream.released.wait(0.01):
                handler.wfile.write(more)
        except OSError:
            pass  # the client has closed the connection

    return fault


def silent(handler: Handler) -> None:
    """Gives no answer."""
    handler.upstream.released.wait(10)
    handler.close_connection = True


def detail(path: str) -> str:
    """Where the detail of a widget is."""
    return "/api/v1/widgets/" + "/".join(quote(part, safe="") for part in path.split("/"))


def many(count: int, **fields: Any) -> list[Json]:
    """Documents of so many widgets, each with a version."""
    return [
        document(f"acme/w{number:04}", version(), createdAt="2025-01-01T00:00:00Z", **fields)
        for number in range(count)
    ]
