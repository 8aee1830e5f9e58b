"""Answers of our service, kept for the limit to give."""

import base64
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import mean

from bench.limit import family
from bench.load import LoadError
from bench.processes import Server, fetch
from bench.workload import Request, Row

SAMPLE = 40
# What the server or flask-cors adds to each answer by itself, here as there.
ADDED = {"date", "server", "connection", "content-length", "access-control-allow-origin"}


def with_etag(row: Row, server: Server) -> Row:
    """The row with the ETag that this server gives now, where it is about that."""
    if not row.revalidates:
        return row
    _, headers, _ = fetch(server.url, *row.requests[0])
    (etag,) = [value for name, value in headers if name.lower() == "etag"]
    return replace(row, headers={"If-None-Match": etag})


def record(rows: Sequence[Row], server: Server, directory: Path) -> None:
    """Write a file for each row with one answer for each path family that it asks."""
    directory.mkdir(parents=True, exist_ok=True)
    for row in rows:
        asked: dict[str, list[Request]] = {}
        for request in row.requests:
            asked.setdefault(family(*request), []).append(request)
        answers = {
            name: _typical(with_etag(row, server), requests, server)
            for name, requests in asked.items()
        }
        (directory / f"{row.key}.json").write_text(json.dumps(answers))


def _typical(row: Row, requests: Sequence[Request], server: Server) -> dict[str, object]:
    """The answer nearest to the mean length of a sample: bytes are what a constant costs."""
    step = max(1, len(requests) // SAMPLE)
    given = [fetch(server.url, *request, row.headers) for request in requests[::step][:SAMPLE]]
    expected = 304 if row.revalidates else 200
    if any(status != expected for status, _, _ in given):
        raise LoadError(f"{row.title}: not every answer is a {expected}.")
    length = mean(len(body) for _, _, body in given)
    status, headers, body = min(given, key=lambda answer: abs(len(answer[2]) - length))
    return {
        "status": status,
        "headers": [each for each in headers if each[0].lower() not in ADDED],
        "body": base64.b64encode(body).decode(),
    }
