"""Services with metrics, what docs/operate/metrics.md says of them, and promtool."""

import http.client
import re
import subprocess
import urllib.request
from contextlib import closing
from pathlib import Path

from conftest import ROOT, Server
from programs import find_program
from prometheus_client.parser import text_string_to_metric_families

from catalog.settings import split_address

# The name of a sample and its labels, in order.
Series = tuple[str, tuple[tuple[str, str], ...]]


class MeasuredServer(Server):
    """A service with metrics."""

    def __init__(self, database: Path, **settings: str) -> None:
        super().__init__(database, **{"CATALOG_METRICS": "127.0.0.1:0", **settings})
        self.database = database
        assert self.process.stdout is not None
        self.metrics_url = self.process.stdout.readline().removeprefix("Metrics on ").strip()

    def request(
        self, method: str, path: str, body: bytes | None = None, /, **headers: str
    ) -> tuple[http.client.HTTPResponse, bytes]:
        """Send one request, and return its response when it has been counted."""
        with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)) as connection:
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            content = response.read()
            # A connection has its next response after the last request was counted.
            connection.request("GET", "/api/version")
            connection.getresponse().read()
            return response, content

    def scrape(self) -> dict[Series, float]:
        """Return the value of each series."""
        families = text_string_to_metric_families(get(self.metrics_url)[1])
        return {
            (sample.name, tuple(sorted(sample.labels.items()))): sample.value
            for family in families
            for sample in family.samples
        }

    def value(self, name: str, **labels: str) -> float:
        """Return the value of one series, 0 if there is none yet."""
        return self.scrape().get((name, tuple(sorted(labels.items()))), 0)

    def metrics_address(self) -> tuple[str, int]:
        return split_address(self.metrics_url.removeprefix("http://").removesuffix("/metrics"))


def get(url: str, **headers: str) -> tuple[str, str]:
    """Return the content type and the body of a response."""
    with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=60) as reply:
        return reply.headers["Content-Type"], reply.read().decode()


def documented() -> dict[str, tuple[str, list[str]]]:
    """Return type and labels of each metric in docs/operate/metrics.md."""
    page = (ROOT / "docs/operate/metrics.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \| (.*?) ?\|", page, re.MULTILINE)
    return {name: (kind, re.findall(r"`(\w+)`", labels)) for name, kind, labels in rows}


def run_promtool(*arguments: str | Path, stdin: str = "") -> None:
    """Run promtool; it must find nothing wrong."""
    command = [find_program("promtool"), *arguments]
    result = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result.stdout + result.stderr
