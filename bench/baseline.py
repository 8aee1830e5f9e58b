"""The baseline: constant responses from the same Flask app on the same I/O thread.

It shows the cost of the network, waitress and Flask, which every request incurs. It depends only on
create_app() and the serve command: flask --app bench.baseline serve
"""

from functools import partial

from app import create_app
from flask import Response

from bench.workload import BASELINE_SIZES, constant_path


def respond(body: bytes) -> Response:
    return Response(body, mimetype="application/json")


app = create_app()
for size in BASELINE_SIZES:
    app.add_url_rule(constant_path(size), f"constant {size}", partial(respond, b"x" * size))
