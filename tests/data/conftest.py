"""Small corpora, and a local server that can interrupt downloads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from headtohead.plugins.dataset import Corpus, Pair

MakeCorpus = Callable[..., Corpus]


@pytest.fixture
def make_corpus() -> MakeCorpus:
    """Build a corpus of (source, target), (source, target, group) or (source, target, group, split)."""

    def make(*rows: tuple[str, ...]) -> Corpus:
        pairs = [Pair(row[0], row[1], *(row[2:] or (row[0],))) for row in rows]
        return Corpus(pairs, "CC0", "nobody", ("English", "French"))

    return make


@dataclass
class Site:
    """Files of a local server by path, and its faults."""

    address: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    cuts: list[int] = field(default_factory=list)
    ranges: bool = True
    requested_ranges: list[str | None] = field(default_factory=list)
    sent: int = 0


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """A server on the loopback interface with ranges, entity tags and cut connections.

    Each number in ``cuts`` is the number of bytes that a response sends before the connection is
    closed; ``requested_ranges`` collects the Range header of each request.
    """
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    state = Site()
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(state))
    state.address = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield state
    server.shutdown()
    thread.join()
    server.server_close()


def _handler(state: Site) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            content = state.files.get(self.path)
            state.requested_ranges.append(self.headers.get("Range"))
            if content is None:
                self.send_error(404)
                return
            tag = state.tags.get(self.path, '"1"')
            start = self.start(len(content), tag)
            if start > len(content) or (start and start == len(content)):
                self.send_error(416)
                return
            self.send_response(206 if start else 200)
            if start:
                self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
            self.send_header("ETag", tag)
            self.send_header("Content-Length", str(len(content) - start))
            self.end_headers()
            body = content[start:][: state.cuts.pop(0) if state.cuts else None]
            state.sent += len(body)
            self.wfile.write(body)

        def start(self, length: int, tag: str) -> int:
            requested = self.headers.get("Range")
            if not requested or not state.ranges or self.headers.get("If-Range") != tag:
                return 0
            return int(requested.removeprefix("bytes=").removesuffix("-"))

        def log_message(self, format: str, *args: Any) -> None:
            """Log nothing."""

    return Handler
