"""What all connections share."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from .access_log import AccessLog
from .dispatch import Dispatcher
from .http_parser import Parser
from .proxies import Proxies
from .tasks import Response
from .uploads import Uploads


@dataclass
class Context:
    """What all connections share."""

    dispatcher: Dispatcher
    uploads: Uploads
    proxies: Proxies
    access_log: AccessLog
    request_timeout: int
    idle_timeout: int
    max_body: int
    # Only with CATALOG_METRICS: called with endpoint, method, status and seconds.
    count_request: Callable[[str | None, str, int, float], None] | None = None
    # Whether unsent bodies were added since their sum was computed.
    has_new_bodies: bool = False
    # Whether the service is stopping, so that each response is the last of its connection.
    is_stopping: bool = False

    def log(self, request: Parser, response: Response, address: str, size: int) -> None:
        """Count the response, and write its line to the access log; size is what was sent."""
        status = int(response.status[:3])
        seconds = time.perf_counter() - request.started_at if request.started_at else 0
        if self.count_request:
            self.count_request(response.endpoint, request.command, status, seconds)
        self.access_log.add(
            response.client or address,
            request.command,
            request.request_uri or request.first_line.decode("latin-1"),
            status,
            size,
            seconds,
            dict(response.headers).get("X-Request-Id", "") if status >= 500 else "",
        )
