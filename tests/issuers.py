"""Issuers of id tokens on loopback, with real keys, and what they offer to jobs."""

import base64
import json
import ssl
import threading
import time
import uuid
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import jwt
from builders import Json
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

DISCOVERY = "/.well-known/openid-configuration"
AUDIENCE = "https://widgets.example"
CLAIMS = {"sub": "repo:acme/clock:ref:refs/heads/main", "repository": "acme/clock"}


@cache
def make_key(kind: str = "RSA", number: int = 1, bits: int = 2048) -> Any:
    """Return a private key; to make one takes long, so all tests share them."""
    if kind in ("EC", "P-384"):
        return ec.generate_private_key(ec.SECP256R1() if kind == "EC" else ec.SECP384R1())
    return rsa.generate_private_key(65537, bits)


def public_jwk(key: Any, key_id: str, **more: object) -> Json:
    """Return the public key as a member of a key set."""
    algorithm: Any = RSAAlgorithm if isinstance(key, rsa.RSAPrivateKey) else ECAlgorithm
    return {**json.loads(algorithm.to_jwk(key.public_key())), "kid": key_id, **more}


def encode_segment(value: object) -> str:
    """Return a part of a token."""
    content = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


class Issuer:
    """An issuer that serves its documents until it is closed."""

    def __init__(self, path: str = "", tls: ssl.SSLContext | None = None) -> None:
        self.keys: dict[str, Any] = {"one": make_key()}
        # The path and the headers of each request.
        self.requests: list[str] = []
        self.headers: dict[str, str] = {}
        # What to respond to a path instead: status, headers and body.
        self.faults: dict[str, tuple[int, dict[str, str], bytes]] = {}
        # Members of the key set beside the public keys.
        self.extra_keys: list[Json] = []
        issuer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                issuer.requests.append(self.path)
                status, headers, body = issuer.respond(self.path)
                self.send_response(status)
                for name, value in {**headers, "Content-Length": str(len(body))}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *arguments: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        if tls:
            self.server.socket = tls.wrap_socket(self.server.socket, server_side=True)
        scheme = "https" if tls else "http"
        self.url = f"{scheme}://127.0.0.1:{self.server.server_port}{path}"
        self.path = path
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.01,))
        self.thread.start()

    def respond(self, path: str) -> tuple[int, dict[str, str], bytes]:
        """Return status, headers and body."""
        if path in self.faults:
            return self.faults[path]
        if path == self.path + DISCOVERY:
            document = {"issuer": self.url, "jwks_uri": f"{self.url}/keys"}
            return 200, {}, json.dumps(document).encode()
        if path == f"{self.path}/keys":
            return 200, self.headers, self.jwks().encode()
        return 404, {}, b""

    def jwks(self) -> str:
        """Return the key set."""
        keys = [public_jwk(key, key_id) for key_id, key in self.keys.items()]
        return json.dumps({"keys": [*self.extra_keys, *keys]})

    def sign(
        self, claims: Json | None = None, header: Json | None = None, key: str = "", **more: object
    ) -> str:
        """Return an id token with these claims, which no other one has."""
        key_id = key or next(iter(self.keys))
        private = self.keys[key_id]
        now = int(time.time())
        times = {"iat": now, "nbf": now, "exp": now + 300, "jti": str(uuid.uuid4())}
        names = {"iss": self.url, "aud": AUDIENCE}
        values = {**times, **names, **CLAIMS, **(claims or {}), **more}
        present = {name: value for name, value in values.items() if value is not None}
        algorithm = "RS256" if isinstance(private, rsa.RSAPrivateKey) else "ES256"
        return jwt.encode(present, private, algorithm, headers={"kid": key_id, **(header or {})})

    def close(self) -> None:
        """Stop serving."""
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


class Actions:
    """What GitHub, Gitea and Forgejo Actions offer to a job: a URL that responds with id tokens."""

    def __init__(self, issuer: Issuer) -> None:
        self.requests: list[tuple[str, str | None]] = []
        self.status, self.body = 200, b""
        actions = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                actions.requests.append((self.path, self.headers["Authorization"]))
                (audience,) = parse_qs(urlsplit(self.path).query)["audience"]
                document = {"count": 1, "value": issuer.sign(aud=audience)}
                body = actions.body or json.dumps(document).encode()
                self.send_response(actions.status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *arguments: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/token?api-version=2"
        # The environment of a job.
        self.variables = {
            "ACTIONS_ID_TOKEN_REQUEST_URL": self.url,
            "ACTIONS_ID_TOKEN_REQUEST_TOKEN": "runner secret",
        }
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.01,))
        self.thread.start()

    def close(self) -> None:
        """Stop serving."""
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()
