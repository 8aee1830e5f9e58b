"""An upstream catalog over real HTTP, in threads of the test process, that can misbehave."""

import hashlib
import json
import ssl
import subprocess
import sys
import threading
from collections import defaultdict, deque
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlsplit

import pytest
from builders import Json, document, version
from programs import find_program

SEARCH = "/api/v1/widgets/search"
CHANGES = "/api/v1/widgets/changes"
Fault = Callable[["Handler"], None]


class FakeUpstream:
    """A catalog of documents, with faults. All of it may be changed while it serves."""

    def __init__(self, *documents: Json) -> None:
        # In the order of the list.
        self.documents: dict[str, Json] = {}
        self.bundles: dict[str, bytes] = {}
        # By path; each is used for one request.
        self.faults: defaultdict[str, deque[Fault]] = defaultdict(deque)
        # Path and headers of each request.
        self.requests: list[tuple[str, dict[str, str]]] = []
        self.connections = 0
        self.on_request: Callable[[str], None] = lambda path: None
        self.has_etags = True
        # The value of Authorization that every request must have, if it is given.
        self.authorization: str | None = None
        # Ends the responses that are still being sent.
        self.stopping = threading.Event()
        self.server = _Server(("127.0.0.1", 0), Handler)
        self.server.upstream = self  # type: ignore[attr-defined]
        self.port = self.server.server_port
        self.url = f"http://127.0.0.1:{self.port}"
        threading.Thread(target=self.server.serve_forever, args=(0.01,)).start()
        self.put(*documents)

    def encrypt(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Serve over TLS from now on, with a certificate that this process trusts."""
        certificate, context = _create_certificate(directory)
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        self.server.socket = context.wrap_socket(
            self.server.socket, server_side=True, do_handshake_on_connect=False
        )
        self.url = self.url.replace("http:", "https:")

    def put(self, *documents: Json) -> None:
        """Add documents, or replace them in their places."""
        for each in documents:
            widget = each["widget"]
            self.documents[f"{widget['scope']}/{widget['name']}"] = each

    def fail(self, path: str, *faults: Fault) -> None:
        """Use these faults for the next requests of a path, one each."""
        self.faults[path].extend(faults)

    def with_bundle(self, number: str, content: bytes, **fields: Any) -> Json:
        """Return a version whose bundle is served here."""
        self.bundles[f"/bundles/{number}.js"] = content
        return version(
            number,
            bundleUrl=f"{self.url}/bundles/{number}.js",
            bundleSize=fields.pop("bundleSize", len(content)),
            sha256Hash=fields.pop("sha256Hash", hashlib.sha256(content).hexdigest()),
            **fields,
        )

    def request_headers(self, path: str) -> list[dict[str, str]]:
        """Return the headers of each request for a path."""
        return [headers for requested, headers in self.requests if requested == path]

    def paths(self) -> list[str]:
        """Return the requested paths, in order and without their queries."""
        return [urlsplit(path).path for path, _ in self.requests]

    def close(self) -> None:
        self.stopping.set()
        self.server.shutdown()
        self.server.server_close()


def _create_certificate(directory: Path) -> tuple[Path, ssl.SSLContext]:
    openssl = find_program("openssl")
    key, certificate = directory / "key.pem", directory / "certificate.pem"
    kind = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
    name = ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run(
        [openssl, "req", "-x509", *kind, *name, "-keyout", key, "-out", certificate],
        check=True,
        capture_output=True,
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    return certificate, context


class _Server(ThreadingHTTPServer):
    def handle_error(self, request: Any, client_address: Any) -> None:
        # Clients may be killed, close their connections or refuse the certificate.
        if not isinstance(sys.exc_info()[1], (ConnectionError, ssl.SSLError)):
            super().handle_error(request, client_address)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 10
    disable_nagle_algorithm = True
    max_body: int | None = None

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
        if upstream.authorization not in (None, self.headers["Authorization"]):
            self.send(401, b"No.", WWW_Authenticate='Basic realm="catalog"')
        elif faults:
            faults.popleft()(self)
        else:
            self.respond()

    def respond(self) -> None:
        path = urlsplit(self.path).path
        if path == SEARCH:
            self.send_json(self.search())
        elif path in self.upstream.bundles:
            self.send(200, self.upstream.bundles[path])
        else:
            widget = self.upstream.documents.get(unquote(path.removeprefix("/api/v1/widgets/")))
            self.send_json(widget) if widget else self.send(404, b'{"error": "No."}')

    def search(self) -> Json:
        query = {key: values[0] for key, values in parse_qs(urlsplit(self.path).query).items()}
        scope, page, limit = query.get("scope"), int(query["page"]), int(query["limit"])
        listed = [
            each
            for each in list(self.upstream.documents.values())
            if scope in (None, each["widget"]["scope"])
            and ("official" not in query or each["widget"].get("isOfficial"))
        ]
        start = (page - 1) * limit
        widgets = [each["widget"] for each in listed[start : start + limit]]
        if sdk := query.get("compatSdk"):
            # This upstream knows caret ranges only.
            for number, each in enumerate(listed[start : start + limit]):
                fit = [one for one in each["versions"] if one["sdkVersion"][1:2] == sdk[0]]
                latest = fit[0]["version"] if fit else None
                widgets[number] = {**widgets[number], "latestCompatibleVersion": latest}
        return {"widgets": widgets, "total": len(listed), "page": page, "limit": limit}

    def send_json(self, value: Json) -> None:
        body = json.dumps(value).encode()
        etag = f'"{hashlib.sha256(body).hexdigest()}"'
        if not self.upstream.has_etags:
            self.send(200, body)
        elif self.headers["If-None-Match"] == etag:
            self.send(304, b"", ETag=etag)
        else:
            self.send(200, body, ETag=etag)

    def send(self, status: int, body: bytes, **headers: str) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body[: self.max_body])

    def log_message(self, *arguments: object) -> None:
        pass


def status(code: int, **headers: str) -> Fault:
    """Respond with this status; write _ for each - in a header's name."""
    return lambda handler: handler.send(code, b'{"error": "Not now."}', **headers)


def redirect(location: str) -> Fault:
    """Redirect to another URL."""
    return status(302, Location=location)


def body(content: bytes, **headers: str) -> Fault:
    """Respond with these bytes."""
    return lambda handler: handler.send(200, content, **headers)


def hang_up(handler: Handler) -> None:
    """Close the connection without a response."""
    handler.close_connection = True


def truncate(length: int) -> Fault:
    """Close the connection after this many bytes of the correct body."""

    def fault(handler: Handler) -> None:
        handler.max_body = length
        handler.respond()
        handler.close_connection = True

    return fault


def trickle(beginning: bytes, more: bytes, wait: float = 0.01) -> Fault:
    """Respond with the beginning, then with more bytes again and again, without end."""

    def fault(handler: Handler) -> None:
        handler.close_connection = True
        try:
            handler.wfile.write(beginning)
            while not handler.upstream.stopping.wait(wait):
                handler.wfile.write(more)
        except OSError:
            # The client has closed the connection.
            pass

    return fault


def endless(code: int = 200) -> Fault:
    """Respond with a body that has no end."""
    return trickle(f"HTTP/1.1 {code} Any\r\n\r\n".encode(), b" " * 65536, wait=0)


def silent(handler: Handler) -> None:
    """Keep the connection open without a response."""
    handler.upstream.stopping.wait(10)
    handler.close_connection = True


def detail(path: str) -> str:
    """Return the URL path of a widget's detail."""
    return "/api/v1/widgets/" + "/".join(quote(part, safe="") for part in path.split("/"))


def numbered(count: int, **fields: Any) -> list[Json]:
    """Return documents of acme/w0000 and so on, each with one version."""
    return [
        document(f"acme/w{number:04}", version(), createdAt="2025-01-01T00:00:00Z", **fields)
        for number in range(count)
    ]
