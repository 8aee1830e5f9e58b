"""The limit: what the same stack can do when the answer is a constant.

Flask, flask-cors and waitress as the service itself has them, with nothing behind: each path
family answers the bytes and headers that the service once gave. No service on this stack can be
faster. Started as a process of its own: python -m bench.limit DIRECTORY THREADS
"""

import base64
import json
import logging
import sys
from pathlib import Path

from flask import Blueprint, Flask, Response
from flask_cors import CORS
from waitress.server import create_server

# As catalog/v1.py and catalog/server.py have them.
v1 = Blueprint("v1", __name__, url_prefix="/api/v1/widgets")
CORS(v1, send_wildcard=True, methods=["GET", "HEAD", "POST", "OPTIONS"], max_age=7200)
MAX_BODY_BYTES = 64 * 1024
SWITCH_INTERVAL = 0.0005

Answer = tuple[bytes, int, list[tuple[str, str]]]
answers: dict[str, Answer] = {}


def family(method: str, path: str) -> str:
    """Which of the constants answers this request."""
    if method == "POST":
        return "post"
    if path.endswith("/registry.json"):
        return "registry"
    return "search" if path.startswith("/api/v1/widgets/search") else "detail"


@v1.get("/search")
def search() -> Response:
    return Response(*answers["search"])


@v1.get("/<scope>/<name>")
def detail(scope: str, name: str) -> Response:
    return Response(*answers["detail"])


@v1.post("/<scope>/<name>")
def post(scope: str, name: str) -> Response:
    return Response(*answers["post"])


def registry(scope: str) -> Response:
    return Response(*answers["registry"])


def use(file: Path) -> None:
    """Answer from now on what the file holds for each path family."""
    for name, answer in json.loads(file.read_text()).items():
        headers = [(key, value) for key, value in answer["headers"]]
        answers[name] = (base64.b64decode(answer["body"]), answer["status"], headers)


def create_app(directory: Path) -> Flask:
    app = Flask(__name__, static_folder=None)
    app.register_blueprint(v1)
    app.add_url_rule("/api/widgets/<scope>/registry.json", view_func=registry)

    @app.put("/answers/<row>")
    def choose(row: str) -> Response:
        use(directory / f"{row}.json")
        return Response(status=204)

    return app


def main() -> None:
    directory, threads = Path(sys.argv[1]), int(sys.argv[2])
    logging.getLogger("waitress.queue").setLevel(logging.ERROR)
    sys.setswitchinterval(SWITCH_INTERVAL)
    listener = create_server(
        create_app(directory),
        host="127.0.0.1",
        port=0,
        threads=threads,
        max_request_body_size=MAX_BODY_BYTES,
        ident=None,
    )
    address = f"http://127.0.0.1:{listener.effective_port}"
    print(f"Serving the limit on {address}", flush=True)
    listener.run()


if __name__ == "__main__":
    main()
