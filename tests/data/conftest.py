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
    cuts: list[int] = field(default_factory=list)
    requests: int = 0


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """A server on the loopback interface; each number in ``cuts`` is the number of bytes that a response sends."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    state = Site()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            state.requests += 1
            content = state.files.get(self.path)
            if content is None:
                self.send_error(404)
                return
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content[: state.cuts.pop(0) if state.cuts else None])

        def log_message(self, format: str, *args: Any) -> None:
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    state.address = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield state
    server.shutdown()
    thread.join()
    server.server_close()
