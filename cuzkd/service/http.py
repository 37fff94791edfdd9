"""Two pages for machines that speak HTTP: /metrics (Prometheus) and /status (JSON).

Problem: a scrape must be answered whatever the daemon is doing, and must never be what keeps it busy.
Design: the standard library's HTTP server in one thread of its own; pages are functions that give (type,
body) and may be called from there. An address that others can reach shows numbers only: /metrics, not
/status, which names jobs. No header lets pages of other origins read them: a browser on this machine is no operator.
Life of data: a page is made for each request and kept nowhere.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Self

import structlog

from cuzkd.errors import InvalidInput, Unavailable
from cuzkd.service.listen import Address

log = structlog.get_logger()

Page = Callable[[], tuple[str, bytes]]
PUBLIC_PAGES = frozenset({"/metrics"})
CLIENT_TIMEOUT_S = 10.0


class HttpPages:
    """Serves pages at an address from start() to close()."""

    def __init__(self, address: Address, pages: Mapping[str, Page]) -> None:
        if address.path is not None:
            raise InvalidInput(f"metrics address {address.target}: expected HOST:PORT")
        shown = (
            pages if address.local else {name: page for name, page in pages.items() if name in PUBLIC_PAGES}
        )
        try:
            self._server = ThreadingHTTPServer((address.host, address.port), _handler(shown))
        except OSError as error:
            raise Unavailable(f"cannot serve metrics on {address.target}: {error}") from None
        self._server.daemon_threads = True
        self.address = Address(host=address.host, port=self._server.server_address[1])
        self._thread = threading.Thread(target=self._server.serve_forever, name="http", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _handler(pages: Mapping[str, Page]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = CLIENT_TIMEOUT_S
        server_version = "cuzkd"
        sys_version = ""

        def do_GET(self) -> None:
            page = pages.get(self.path.partition("?")[0])
            if page is None:
                self.send_error(404, "not found", f"pages here: {', '.join(pages)}")
                return
            try:
                kind, body = page()
            except Exception as error:
                log.error("page_broken", page=self.path, exc_info=error)
                self.send_error(503, "not now")
                return
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Scrapes are not worth a line."""

    return Handler
