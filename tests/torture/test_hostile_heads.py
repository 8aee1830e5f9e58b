"""Request heads made to be expensive: none of them costs much CPU time."""

from collections.abc import Callable
from pathlib import Path

from builders import bundled, document
from conftest import Server, hold, putting
from hostile_heads import exchange, hostile_requests

from app import create_app
from catalog.domain.documents import check_document

CONTENT = b"export default () => 'tick'\n"
CPU_LIMIT = 0.5  # seconds


def test_no_head_is_expensive(tmp_path: Path, figures: Callable[..., None]) -> None:
    app = create_app({"DATABASE": tmp_path / "catalog.db"})
    clock = check_document(document("acme/clock", bundled("1.0.0", CONTENT)))
    app.extensions["database"].create(putting([clock]))
    hold(app, CONTENT)
    app.extensions["database"].close()
    server = Server(app.config["DATABASE"], CATALOG_TRUSTED_PROXY="127.0.0.1")
    for path in ("/", "/docs", "/api/v1/widgets/search"):
        assert server.request("GET", path)[0].status == 200
    costs: dict[str, float] = {}
    statuses: dict[str, int] = {}
    for name, sent in hostile_requests():
        response, costs[name] = exchange(server, sent)
        statuses[name] = int(response[9:12] or 0)
    assert server.request("GET", "/api/health")[0].status == 200
    assert (server.stop(), server.errors) == (0, "")
    costliest = max(costs, key=costs.__getitem__)
    figures(
        "heads of 16 kB made of runs of each kind of byte in each position",
        "each is refused or served, and none costs much CPU time",
        requests=len(costs),
        refused=sum(400 <= status < 500 for status in statuses.values()),
        failed=sum(status >= 500 for status in statuses.values()),
        largest_cpu_ms=round(costs[costliest] * 1000, 1),
    )
    assert {name: status for name, status in statuses.items() if status >= 500} == {}
    assert costs[costliest] < CPU_LIMIT, costliest
