"""Hostile, broken and slow servers: one line that names the URL, soon, and no file that is taken for complete."""

import gzip
import hashlib
import io
import os
import signal
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from headtohead.data import download, fetch, fetched_sha256
from headtohead.errors import HeadToHeadError
from made import error_line, free_port, kind_table, serving

ROWS = b"".join(b"I see %d cats\tveo %d gatos\n" % (n, n) for n in range(40))
LIMIT = 1_000_000
OFFLINE = "; without a network, set data.file to a file of your own"

Answer = Callable[[BaseHTTPRequestHandler], None]


def packed() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("a.tsv", ROWS)
    return buffer.getvalue()


def response(body: bytes, *headers: str, status: str = "200 OK", endless: bytes = b"") -> Answer:
    """Send a response with these headers only, then ``endless`` again and again until the client closes."""
    head = "\r\n".join([f"HTTP/1.1 {status}", *headers, "", ""]).encode()

    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.wfile.write(head + body)
        while endless:
            handler.wfile.write(endless)

    return answer


def length(number: object) -> str:
    return f"Content-Length: {number}"


BLOCK = b"a\tb\n" * 16_000
CASES = [
    (
        "size",
        "stated",
        "x.tsv",
        response(ROWS, length(10**12)),
        "it has more than 1 MB; if you trust the file",
    ),
    ("size", "endless", "x.tsv", response(b"", endless=BLOCK), "it has more than 1 MB"),
    (
        "length",
        "short",
        "x.tsv",
        response(ROWS, length(len(ROWS) + 7)),
        f"{len(ROWS)} of {len(ROWS) + 7} bytes were received; run the command again",
    ),
    ("slow", "silent", "x.tsv", lambda handler: time.sleep(1.5), "timed out" + OFFLINE),
    (
        "redirect",
        "file",
        "x.tsv",
        response(b"", "Location: file:///etc/passwd", status="302 Found"),
        "edirection to url 'file:///etc/passwd' is not",
    ),
    ("answer", "error", "x.tsv", response(b"", status="503 Later\x1b[2J"), "503: Later"),
    (
        "content",
        "page",
        "x.zip",
        response(b"\n<!DOCTYPE html>login"),
        "it is empty or an HTML page; check the URL",
    ),
    (
        "content",
        "bomb",
        "x.tsv",
        response(gzip.compress(bytes(10**7)), "Content-Encoding: gzip"),
        "it unpacks from 0.00975 MB to more than 1 MB; if you trust the file, set H2H_MAX_DATA_BYTES to a",
    ),
]


@dataclass
class Server:
    """A local server; ``answer`` can be changed between requests."""

    address: str = ""
    answer: Answer = field(default_factory=lambda: response(ROWS))
    requests: int = 0


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    state = Server()

    def answer(handler: BaseHTTPRequestHandler) -> None:
        state.requests += 1
        state.answer(handler)

    with serving(answer) as state.address:
        yield state


def complete(folder: Path) -> list[Path]:
    """Return the files of the cache that are no locks and no incomplete parts."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return [path for path in files if path.suffix != ".lock" and not path.name.startswith("part-")]


@pytest.fixture(scope="module", autouse=True)
def imported(h2h_here: Callable, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Import everything that the command needs before a test measures its duration."""
    assert h2h_here(tmp_path_factory.mktemp("first"), "data", "fetch", "copy").returncode == 0


@pytest.fixture
def fetched(tmp_path: Path, h2h_here: Callable) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Call ``h2h data fetch`` with a URL in the folder of the test."""
    fetch = partial(h2h_here, tmp_path, "data", "fetch", "tatoeba", "--set", H2H_CACHE="cache")
    return lambda url, **environment: fetch(f"url='{url}'", **environment)


@kind_table("file, answer, message", CASES)
def test_a_hostile_server_is_one_line_and_a_good_answer_works(
    file: str,
    answer: Answer,
    message: str,
    tmp_path: Path,
    server: Server,
    fetched: Callable,
    monkeypatch: Any,
) -> None:
    monkeypatch.setattr(download, "TIMEOUT_SECONDS", 0.5)
    url = f"{server.address}/{file}"
    server.answer = answer
    started = time.monotonic()
    line = error_line(fetched(url, H2H_MAX_DATA_BYTES=str(LIMIT)))
    assert time.monotonic() - started < 10
    assert message in line
    assert line.startswith(f"download of {url} failed: ")
    assert not complete(tmp_path / "cache")
    body = packed() if file == "x.zip" else ROWS
    server.answer = response(body, length(len(body)))
    assert fetched(url, H2H_MAX_DATA_BYTES=str(LIMIT)).stdout.startswith("tatoeba: 40 pairs")
    assert not [path for path in tmp_path.rglob("*") if path.name.startswith("part-")]


@pytest.mark.parametrize(
    "url", ["http://[::1/x.tsv", f"http://host/{'x' * 3000}.tsv", "file:///etc/passwd"]
)
def test_a_malformed_url_is_refused(tmp_path: Path, fetched: Callable, url: str) -> None:
    assert len(error_line(fetched(url))) < 400
    assert not complete(tmp_path)


@pytest.mark.parametrize("name", ["%2e%2e%2f%2e%2e%2fx.tsv", "a%00b.tsv", "x" * 1500])
def test_names_of_a_url_stay_inside_the_cache(tmp_path: Path, server: Server, name: str) -> None:
    path = download.fetch(f"{server.address}/{name}", tmp_path / "cache")
    assert path.parent == tmp_path / "cache"
    assert path.read_bytes() == ROWS
    assert [folder.name for folder in tmp_path.iterdir()] == ["cache"]


SUM = hashlib.sha256(ROWS).hexdigest()


def test_a_file_is_downloaded_once_and_its_checksum_is_verified(
    tmp_path: Path, server: Server
) -> None:
    url = f"{server.address}/a.bin"
    assert fetched_sha256(url, tmp_path) is None
    path = fetch(url, tmp_path, sha256=SUM.upper())
    assert path.read_bytes() == ROWS
    assert fetched_sha256(url, tmp_path) == SUM
    assert fetch(url, tmp_path) == path
    assert server.requests == 1
    with pytest.raises(
        HeadToHeadError, match=rf"has sha256 {SUM}, expected 00; correct data.sha256, or repl"
    ):
        fetch(url, tmp_path, sha256="00")
    path.write_bytes(ROWS[:-1] + b"!")
    assert fetched_sha256(url, tmp_path) is None
    assert fetch(url, tmp_path).read_bytes() == ROWS
    assert server.requests == 2


def test_concurrent_calls_download_once(tmp_path: Path, server: Server) -> None:
    url = f"{server.address}/a.bin"
    threads = [threading.Thread(target=fetch, args=(url, tmp_path)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert server.requests == 1
    assert fetched_sha256(url, tmp_path) == SUM


def test_without_a_network_or_a_folder_the_remedy_is_named(tmp_path: Path, server: Server) -> None:
    url = f"http://127.0.0.1:{free_port()}/a"
    with pytest.raises(
        HeadToHeadError, match=f"^download of {url} failed: .*Connection refused.*{OFFLINE}$"
    ):
        fetch(url, tmp_path)
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(
        HeadToHeadError, match=r"cannot write to '.*file/below' \(Not a directory\); set H2H_"
    ):
        fetch(f"{server.address}/a.bin", tmp_path / "file" / "below")


def start(folder: Path, url: str, *, prefix: str = "") -> subprocess.Popen[str]:
    command = f"{prefix} exec {sys.executable} -m headtohead.cli data fetch tatoeba --set url={url}"
    environment = os.environ | {"H2H_CACHE": str(folder / "cache"), "no_proxy": "127.0.0.1"}
    return subprocess.Popen(
        ["bash", "-c", command], cwd=folder, env=environment, stderr=subprocess.PIPE, text=True
    )


@pytest.mark.slow
def test_a_killed_download_leaves_nothing_that_is_taken_for_complete(
    tmp_path: Path, server: Server, fetched: Callable
) -> None:
    url = f"{server.address}/x.tsv"
    sent, go_on = threading.Event(), threading.Event()

    def answer(handler: BaseHTTPRequestHandler) -> None:
        response(ROWS * 100)(handler)
        sent.set()
        go_on.wait(30)

    server.answer = answer
    with start(tmp_path, url) as process:
        assert sent.wait(60)
        process.send_signal(signal.SIGKILL)
        process.wait()
    go_on.set()
    assert not complete(tmp_path / "cache")
    server.answer = response(ROWS)
    assert fetched(url).stdout.startswith("tatoeba: 40 pairs")


@pytest.mark.slow
def test_a_full_disk_is_one_line(tmp_path: Path, server: Server, fetched: Callable) -> None:
    rows = ROWS * 100
    url = f"{server.address}/x.tsv"
    server.answer = response(rows, length(len(rows)))
    process = start(tmp_path, url, prefix="ulimit -f 50;")
    (line,) = process.communicate(timeout=60)[1].splitlines()
    folder = tmp_path / "cache" / "downloads"
    assert line == (
        f"h2h: cannot write to '{folder}' (File too large); set H2H_CACHE to a writable folder with free space"
    )
    assert process.returncode == 2
    assert not complete(tmp_path / "cache")
    assert fetched(url).stdout.startswith("tatoeba: 4000 pairs")
