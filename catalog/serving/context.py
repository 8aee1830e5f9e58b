"""The context that all connections share."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ..domain.client_addresses import TrustedProxies
from .access_log import AccessLog
from .dispatch import Dispatcher
from .http_parser import HttpRequest
from .uploads import Uploads
from .wsgi import HttpResponse


@dataclass
class Context:
    """The parts of the service and the settings that all connections share."""

    dispatcher: Dispatcher
    uploads: Uploads
    proxies: TrustedProxies
    access_log: AccessLog
    request_timeout: int
    idle_timeout: int
    max_body: int
    # Counts a request by endpoint, method, status and seconds; None without CATALOG_METRICS.
    count_request: Callable[[str | None, str, int, float], None] | None = None
    # True if the service is stopping, so that each response is the last on its connection.
    is_stopping: bool = False
    # True if the service is stopping because of an error.
    has_failed: bool = False
    # Connections that have entered a phase since the event loop last checked, oldest first.
    touched: dict[Any, None] = field(default_factory=dict)

    def log(self, request: HttpRequest, response: HttpResponse, address: str, size: int) -> None:
        """Count and log the response; size is the number of body bytes that were sent."""
        status = int(response.status[:3])
        seconds = time.perf_counter() - request.started_at if request.started_at else 0.0
        if self.count_request:
            self.count_request(response.endpoint, request.method, status, seconds)
        self.access_log.add(request, response, response.client or address, size, seconds)
