"""Downloads into the cache: resumed after an interruption, tested, and stored with their checksum."""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import logging
import os
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from filelock import FileLock

from headtohead import files
from headtohead.data.reading import MAGIC, file_sha256, unpack
from headtohead.data.store import unwritable
from headtohead.errors import HeadToHeadError

ATTEMPTS = 3
TIMEOUT_SECONDS = 30.0
BLOCK_BYTES = 1 << 16
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
        HeadToHeadError: If the download fails, the file is damaged or has another sha256, or the
            folder cannot be written.
    """
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
        name = Path(urllib.parse.urlsplit(url).path).name or "download"
        file = folder / f"{hashlib.sha256(url.encode()).hexdigest()[:12]}-{name}"
        return cls(file, *(file.with_name(file.name + end) for end in (".part", ".json", ".part.json")))

    def intact_sha256(self) -> str | None:
        """Return the recorded sha256 if the file has it."""
        recorded = _read_record(self.record).get("sha256")
        if not recorded or not self.file.is_file():
            return None
        if file_sha256(self.file) != recorded:
            log.warning("'%s' has changed since its download; downloading it again", self.file)
            return None
        return str(recorded)


def _download(url: str, local: _Local, sha256: str | None) -> str:
    log.info("downloading %s", url)
    for attempt in range(1, ATTEMPTS + 1):
        if _transfer(url, local):
            break
        log.warning("download of %s was interrupted (attempt %d of %d)", url, attempt, ATTEMPTS)
    else:
        size = local.part.stat().st_size if local.part.exists() else 0
        raise HeadToHeadError(
            f"download of {url} was interrupted {ATTEMPTS} times after {size} bytes; run the command again to resume it"
        )
    received = file_sha256(local.part)
    with _damaged_is_removed(url, local):
        if sha256 and received != sha256.lower():
            raise HeadToHeadError(f"sha256 is {received}, expected {sha256.lower()}")
        _test_decompression(local)
    record = {"url": url, "sha256": received, "bytes": local.part.stat().st_size}
    local.part.replace(local.file)
    files.write_json(local.record, {**record, **_read_record(local.progress)})
    local.progress.unlink(missing_ok=True)
    return received


def _transfer(url: str, local: _Local) -> bool:
    """Download the file or the rest of it; return whether it is complete."""
    start = local.part.stat().st_size if local.part.exists() else 0
    validator = _read_record(local.progress).get("etag")
    headers = {"User-Agent": "headtohead", "Accept-Encoding": "identity"}
    if start and validator:
        headers |= {"Range": f"bytes={start}-", "If-Range": validator}
    try:
        with _open(urllib.request.Request(url, headers=headers), url) as response:
            resumed = response.status == 206 and _first_byte(response) == start
            files.write_json(local.progress, {"etag": _validator(response)})
            with local.part.open("ab" if resumed else "wb") as file:
                return _copy(response, file)
    except _Unsatisfiable:
        local.part.unlink(missing_ok=True)
        return False


def _copy(response: http.client.HTTPResponse, file: IO[bytes]) -> bool:
    expected = response.headers.get("Content-Length")
    received = 0
    while block := _read(response):
        file.write(block)
        received += len(block)
    file.flush()
    os.fsync(file.fileno())
    return expected is None or received == int(expected)


def _read(response: http.client.HTTPResponse) -> bytes:
    """Return the next block; empty at the end of the body or if the connection breaks."""
    try:
        return response.read(BLOCK_BYTES)
    except (http.client.HTTPException, OSError):
        return b""


class _Unsatisfiable(Exception):
    """The server's file is not longer than the part that is already here (status 416)."""


@contextlib.contextmanager
def _open(request: urllib.request.Request, url: str) -> Iterator[http.client.HTTPResponse]:
    try:
        response = urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == 416:
            raise _Unsatisfiable from error
        raise HeadToHeadError(
            f"cannot download {url}: {error.code} {error.reason}; check the URL, or set data.file to a file of your own"
        ) from error
    except (urllib.error.URLError, http.client.HTTPException, ConnectionError, TimeoutError, ValueError) as error:
        reason = " ".join(str(getattr(error, "reason", error)).split())
        raise HeadToHeadError(f"cannot reach {url} ({reason}); {OFFLINE_ADVICE}") from error
    with response:
        yield response


def _first_byte(response: http.client.HTTPResponse) -> int | None:
    unit, _, rest = response.headers.get("Content-Range", "").partition(" ")
    first = rest.partition("-")[0]
    return int(first) if unit == "bytes" and first.isdigit() else None


def _validator(response: http.client.HTTPResponse) -> str | None:
    """Return a value for ``If-Range``: a strong entity tag or a date."""
    tag: str | None = response.headers.get("ETag")
    if tag and not tag.startswith("W/"):
        return tag
    return response.headers.get("Last-Modified")


@contextlib.contextmanager
def _damaged_is_removed(url: str, local: _Local) -> Iterator[None]:
    try:
        yield
    except HeadToHeadError as error:
        local.part.unlink(missing_ok=True)
        local.progress.unlink(missing_ok=True)
        reason = str(error).replace(f"file '{local.part}' is damaged: ", "")
        raise HeadToHeadError(
            f"download of {url} is damaged: {reason.removesuffix('; download it again')}; it was "
            "removed, run the command again"
        ) from error


def _test_decompression(local: _Local) -> None:
    """Decompress once, with the packing that the suffix implies, so that a damaged file never enters the cache."""
    suffix = local.file.suffix.removeprefix(".").lower()
    with local.part.open("rb") as file:
        head = file.read(8)
    if suffix in MAGIC and not head.startswith(MAGIC[suffix]):
        raise HeadToHeadError(f"it does not begin like a {suffix} file")
    unpack(local.part)


def _read_record(path: Path) -> dict[str, Any]:
    """Return a record; a missing or damaged one is empty, so that the file is downloaded again."""
    try:
        record = files.read_json(path)
    except (FileNotFoundError, HeadToHeadError):
        return {}
    return record if isinstance(record, dict) else {}
