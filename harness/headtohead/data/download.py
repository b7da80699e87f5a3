"""Downloads into the cache: resumed after an interruption, tested, and stored with their checksum.

The server is not trusted: `_PacedReader` limits the size and the duration of everything that it sends.
"""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import io
import logging
import os
import re
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from filelock import FileLock

from headtohead import files
from headtohead.data.reading import MAGIC, MAX_DATA_BYTES, file_sha256, max_data_bytes, unpack
from headtohead.data.store import unwritable
from headtohead.errors import HeadToHeadError

ATTEMPTS = 3
TIMEOUT_SECONDS = 30.0
"""Maximum duration of a silence, and of an answer that is slower than `MIN_BYTES_PER_SECOND`."""
MIN_BYTES_PER_SECOND = 1000
BLOCK_BYTES = 1 << 16
MAX_HEADER_BYTES = 1 << 20
OFFLINE_ADVICE = "without a network, download it on another machine and set data.file to its path"

log = logging.getLogger(__name__)


def fetch(url: str, folder: Path, *, sha256: str | None = None) -> Path:
    """Return the local copy of a file; download it if there is none.

    An interrupted download stays in a ``.part`` file and is resumed by this or a later call. A
    complete download is decompressed once as a test, and its sha256 is recorded beside it. A copy
    with another sha256 than the recorded one is downloaded again.

    Args:
        url: URL of the file.
        folder: Folder of downloads; created if it does not exist.
        sha256: Expected sha256, in hexadecimal digits.

    Raises:
        HeadToHeadError: If the URL is malformed, the download fails, the file is damaged, is too large or has
            another sha256, or the folder cannot be written.
    """
    _check_url(url)
    local = _Local.of(url, folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{local.file}.lock"):
            recorded = local.intact_sha256()
            if recorded is None:
                recorded = _download(url, local, sha256)
    except OSError as error:
        raise unwritable(folder, error) from error
    if sha256 and recorded != sha256.lower():
        raise HeadToHeadError(
            f"'{local.file}' has sha256 {recorded}, expected {sha256.lower()}; correct data.sha256, or "
            "delete the file to download it again"
        )
    return local.file


def fetched_sha256(url: str, folder: Path) -> str | None:
    """Return the sha256 of the intact local copy, or None if there is none."""
    return _Local.of(url, folder).intact_sha256()


@dataclass(frozen=True)
class _Local:
    """Paths of a download: the file, its incomplete part, and the JSON record of each."""

    file: Path
    part: Path
    record: Path
    progress: Path

    @classmethod
    def of(cls, url: str, folder: Path) -> _Local:
        # Only these characters, so that the name is valid on every file system and in every message.
        name = re.sub("[^A-Za-z0-9._-]", "_", url.partition("?")[0].rpartition("/")[2])[-100:] or "download"
        file = folder / f"{hashlib.sha256(url.encode()).hexdigest()[:12]}-{name}"
        return cls(file, *(file.with_name(file.name + end) for end in (".part", ".json", ".part.json")))

    def remove_part(self) -> None:
        """Remove the incomplete part and its record."""
        self.part.unlink(missing_ok=True)
        self.progress.unlink(missing_ok=True)

    def intact_sha256(self) -> str | None:
        """Return the recorded sha256 if the file has it."""
        recorded = _read_record(self.record).get("sha256")
        if not recorded or not self.file.is_file():
            return None
        if file_sha256(self.file) != recorded:
            log.warning("'%s' has changed since its download; downloading it again", self.file)
            return None
        return str(recorded)


def _check_url(url: str) -> None:
    try:
        parts = urllib.parse.urlsplit(url)
        valid = parts.scheme in ("http", "https") and parts.hostname and (parts.port is None or parts.port)
    except ValueError:
        valid = False
    if not valid or not re.fullmatch("[!-~]{1,2000}", url):
        raise HeadToHeadError(f"malformed URL {url[:200]!a}; expected http://host/file or https://host/file")


def _download(url: str, local: _Local, sha256: str | None) -> str:
    log.info("downloading %s", url)
    try:
        _transfer_all(url, local)
    except _TooLarge as error:
        local.remove_part()
        raise HeadToHeadError(
            f"{url} has more than {max_data_bytes() / 1e6:,g} MB; if you trust the server, set {MAX_DATA_BYTES} to a "
            "larger number of bytes"
        ) from error
    received = file_sha256(local.part)
    try:
        _check_content(local, received, sha256)
    except HeadToHeadError as error:
        local.remove_part()
        reason = str(error).replace(f"file '{local.part}'", "it").replace("download it", "run the command")
        raise HeadToHeadError(f"download of {url} was removed: {reason}") from error
    record = {"url": url, "sha256": received, "bytes": local.part.stat().st_size}
    local.part.replace(local.file)
    files.write_json(local.record, {**record, **_read_record(local.progress)})
    local.progress.unlink(missing_ok=True)
    return received


def _transfer_all(url: str, local: _Local) -> None:
    """Download the file in several attempts if necessary."""
    for attempt in range(1, ATTEMPTS + 1):
        try:
            return _transfer(url, local)
        except _Interrupted as error:
            log.info("download of %s was interrupted: %s (attempt %d of %d)", url, error, attempt, ATTEMPTS)
            if error.unsatisfiable:
                local.remove_part()
            reason = error
    size = local.part.stat().st_size if local.part.exists() else 0
    raise HeadToHeadError(
        f"download of {url} was interrupted {ATTEMPTS} times after {size} bytes ({reason}); run the command again to "
        "resume it"
    )


def _transfer(url: str, local: _Local) -> None:
    """Download the file or the rest of it.

    Raises:
        _Interrupted: If the file is not complete.
    """
    start = local.part.stat().st_size if local.part.exists() else 0
    validator = _read_record(local.progress).get("etag")
    headers = {"User-Agent": "headtohead", "Accept-Encoding": "identity"}
    if start and isinstance(validator, str) and re.fullmatch("[ -~]+", validator):
        headers |= {"Range": f"bytes={start}-", "If-Range": validator}
    with _open(urllib.request.Request(url, headers=headers), url) as response:
        stated, resumed = response.length, response.status == 206
        if resumed:
            content_range = re.fullmatch(r"bytes (\d+)-\d+/(\d+)", response.headers.get("Content-Range", ""))
            if not content_range or int(content_range[1]) != start:
                raise _Interrupted("the server sent another range than requested", unsatisfiable=True)
            stated = int(content_range[2]) - start
        if start * resumed + (stated or 0) > max_data_bytes():
            raise _TooLarge
        files.write_json(local.progress, {"etag": _validator(response)})
        with local.part.open("ab" if resumed else "wb") as file:
            received = _copy(response, file)
    if stated is not None and received < stated:
        raise _Interrupted(f"{received} of {stated} bytes were received")


def _copy(response: http.client.HTTPResponse, file: IO[bytes]) -> int:
    """Append the body to a file; return the number of its bytes."""
    start = file.tell()
    try:
        while block := _read(response):
            file.write(block)
            if file.tell() > max_data_bytes():
                raise _TooLarge
    finally:
        file.flush()
        os.fsync(file.fileno())
    return file.tell() - start


def _read(response: http.client.HTTPResponse) -> bytes:
    """Return the next block; empty at the end of the body."""
    try:
        return response.read(BLOCK_BYTES)
    except (http.client.HTTPException, OSError, ValueError) as error:
        raise _Interrupted(_one_line(error)) from error


class _Interrupted(Exception):
    """The file is incomplete; another request may complete it.

    ``unsatisfiable``: the server does not send the rest of the part that is already here.
    """

    def __init__(self, reason: str, *, unsatisfiable: bool = False) -> None:
        super().__init__(reason)
        self.unsatisfiable = unsatisfiable


class _TooLarge(Exception):
    """The server sends more than `max_data_bytes`."""


class _PacedReader(io.RawIOBase):
    """The bytes of an HTTP response, status line and headers included; raises for too many and for too few.

    The timeout of a socket limits the duration of a silence only. A server that sends a byte per second, or
    headers or chunks without end, would never reach it.
    """

    def __init__(self, source: io.RawIOBase) -> None:
        self.source = source
        self.limit = max_data_bytes() + MAX_HEADER_BYTES
        self.received = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        if self.received > self.limit:
            raise _TooLarge
        count: int | None = self.source.readinto(buffer)
        now = time.monotonic()
        if not self.received:
            self.started = now
        self.received += count or 0
        if now - self.started > TIMEOUT_SECONDS + self.received / MIN_BYTES_PER_SECOND:
            raise TimeoutError(f"the server sends less than {MIN_BYTES_PER_SECOND} bytes per second")
        return count

    def close(self) -> None:
        self.source.close()
        super().close()


class _Response(http.client.HTTPResponse):
    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.fp = io.BufferedReader(_PacedReader(self.fp.detach()))


class _HTTPConnection(http.client.HTTPConnection):
    response_class = _Response


class _HTTPSConnection(http.client.HTTPSConnection):
    response_class = _Response


class _Connections(urllib.request.HTTPHandler, urllib.request.HTTPSHandler):
    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(_HTTPConnection, req)

    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(_HTTPSConnection, req)


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follow redirects from http to http or https, and from https to https."""

    def http_error_302(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: Any
    ) -> http.client.HTTPResponse | None:
        fp.close()  # The base class reads the body, which may have no end.
        return super().http_error_302(req, fp, code, msg, headers)

    http_error_301 = http_error_303 = http_error_307 = http_error_308 = http_error_302

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        if newurl.partition(":")[0] not in (req.type, "https"):
            raise urllib.error.HTTPError(newurl, code, f"{msg} - Redirection to {newurl} is not allowed", headers, fp)
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _opener() -> urllib.request.OpenerDirector:
    """Return an opener for http and https only: no files, no FTP, no data URLs."""
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler(),
        urllib.request.UnknownHandler(),
        urllib.request.HTTPDefaultErrorHandler(),
        urllib.request.HTTPErrorProcessor(),
        _Redirects(),
        _Connections(),
    ):
        opener.add_handler(handler)
    return opener


@contextlib.contextmanager
def _open(request: urllib.request.Request, url: str) -> Iterator[http.client.HTTPResponse]:
    try:
        response = _opener().open(request, timeout=TIMEOUT_SECONDS)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == 416:
            raise _Interrupted("the server has no such range", unsatisfiable=True) from error
        raise HeadToHeadError(
            f"cannot download {url}: {error.code} {_one_line(error)}; check the URL, or set data.file to a file of "
            "your own"
        ) from error
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise HeadToHeadError(f"cannot reach {url} ({_one_line(error)}); {OFFLINE_ADVICE}") from error
    with response:
        yield response


def _one_line(error: Exception) -> str:
    return " ".join(str(getattr(error, "reason", error)).split())[:200] or type(error).__name__


def _validator(response: http.client.HTTPResponse) -> str | None:
    """Return a value for ``If-Range``: a strong entity tag or a date."""
    tag: str | None = response.headers.get("ETag")
    if tag and not tag.startswith("W/"):
        return tag
    return response.headers.get("Last-Modified")


def _check_content(local: _Local, received: str, sha256: str | None) -> None:
    """Raise an error for a part that is no complete data file, so that it never enters the cache."""
    if sha256 and received != sha256.lower():
        raise HeadToHeadError(
            f"its sha256 is {received}, expected {sha256.lower()}; correct data.sha256, or run the command again"
        )
    suffix = local.file.suffix.removeprefix(".").lower()
    with local.part.open("rb") as file:
        head = file.read(1000)
    if not head:
        raise HeadToHeadError("it is empty; check the URL")
    if head.lstrip().lower().startswith((b"<!doctype html", b"<html")):
        raise HeadToHeadError("it is an HTML page; check the URL, and whether the network requires a login")
    if suffix in MAGIC and not head.startswith(MAGIC[suffix]):
        raise HeadToHeadError(f"it does not begin like a {suffix} file; check the URL")
    for _ in unpack(local.part):
        pass


def _read_record(path: Path) -> dict[str, Any]:
    """Return a record; a missing or damaged one is empty, so that the file is downloaded again."""
    try:
        record = files.read_json(path)
    except (FileNotFoundError, HeadToHeadError):
        return {}
    return record if isinstance(record, dict) else {}
