"""Downloads that resume, are checked, and stay in the cache with the checksum they came with."""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import json
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

from headtohead.data.reading import MAGIC, file_sha256, unpack
from headtohead.data.store import unwritable
from headtohead.errors import HeadToHeadError

ATTEMPTS = 3
TIMEOUT_SECONDS = 30.0
BLOCK_BYTES = 1 << 16
MENDING = "without a network, get it elsewhere and name it with file:"

log = logging.getLogger(__name__)


def fetch(url: str, folder: Path, *, sha256: str | None = None) -> Path:
    """Return the local copy of a file, downloading it first where that is needed.

    A download goes to ``.part`` and goes on from there after a cut, in this call or a later one. A
    finished one is unpacked once as a trial, and its sha256 is written beside it; a copy that no
    longer has that sum is downloaded again.

    Args:
        url: Address of the file.
        folder: Folder for downloads; made if it does not exist.
        sha256: The sum the file must have.

    Raises:
        HeadToHeadError: If the file cannot be had, is damaged, has another sum than ``sha256``, or
            the folder cannot be written.
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
            f"'{local.file}' has sha256 {recorded}, expected {sha256.lower()}; correct sha256: or "
            "delete the file to download it again"
        )
    return local.file


def fetched_sha256(url: str, folder: Path) -> str | None:
    """Return the sha256 of an intact local copy, or None where there is none."""
    return _Local.of(url, folder).intact_sha256()


@dataclass(frozen=True)
class _Local:
    """Where a download lies: the file, its unfinished part, and what is recorded about each."""

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
        """Return the recorded sum if the file still has it."""
        recorded = _read_json(self.record).get("sha256")
        if not recorded or not self.file.is_file():
            return None
        if file_sha256(self.file) != recorded:
            log.warning("'%s' has changed since its download; getting it again", self.file)
            return None
        return str(recorded)


def _download(url: str, local: _Local, sha256: str | None) -> str:
    log.info("downloading %s", url)
    for attempt in range(1, ATTEMPTS + 1):
        if _transfer(url, local):
            break
        log.warning("download of %s was cut (attempt %d of %d)", url, attempt, ATTEMPTS)
    else:
        size = local.part.stat().st_size if local.part.exists() else 0
        raise HeadToHeadError(
            f"download of {url} was cut {ATTEMPTS} times, {size} bytes are kept; run the command again to go on"
        )
    found = file_sha256(local.part)
    with _damaged_is_removed(url, local):
        if sha256 and found != sha256.lower():
            raise HeadToHeadError(f"sha256 is {found}, expected {sha256.lower()}")
        _try_unpacking(local)
    record = {"url": url, "sha256": found, "bytes": local.part.stat().st_size}
    local.part.replace(local.file)
    _write_json(local.record, {**record, **_read_json(local.progress)})
    local.progress.unlink(missing_ok=True)
    return found


def _transfer(url: str, local: _Local) -> bool:
    """Get the file, or the rest of it; return whether it is whole."""
    start = local.part.stat().st_size if local.part.exists() else 0
    known = _read_json(local.progress).get("etag")
    headers = {"User-Agent": "headtohead", "Accept-Encoding": "identity"}
    if start and known:
        headers |= {"Range": f"bytes={start}-", "If-Range": known}
    try:
        with _open(urllib.request.Request(url, headers=headers), url) as response:
            resumed = response.status == 206 and _first_byte(response) == start
            _write_json(local.progress, {"etag": _validator(response)})
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
    """Return the next bytes, or none at the end and where the connection was cut."""
    try:
        return response.read(BLOCK_BYTES)
    except (http.client.HTTPException, OSError):
        return b""


class _Unsatisfiable(Exception):
    """The server has no bytes behind those that are here."""


@contextlib.contextmanager
def _open(request: urllib.request.Request, url: str) -> Iterator[http.client.HTTPResponse]:
    try:
        response = urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == 416:
            raise _Unsatisfiable from error
        raise HeadToHeadError(
            f"cannot download {url}: {error.code} {error.reason}; check the pair and the address, "
            "or name a file of your own with file:"
        ) from error
    except (urllib.error.URLError, http.client.HTTPException, ConnectionError, TimeoutError, ValueError) as error:
        reason = " ".join(str(getattr(error, "reason", error)).split())
        raise HeadToHeadError(f"cannot reach {url} ({reason}); {MENDING}") from error
    with response:
        yield response


def _first_byte(response: http.client.HTTPResponse) -> int | None:
    unit, _, rest = response.headers.get("Content-Range", "").partition(" ")
    first = rest.partition("-")[0]
    return int(first) if unit == "bytes" and first.isdigit() else None


def _validator(response: http.client.HTTPResponse) -> str | None:
    """Return what If-Range may hold: a strong entity tag or a date."""
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
            f"download of {url} is damaged: {reason.removesuffix('; get it again')}; it was "
            "removed, run the command again"
        ) from error


def _try_unpacking(local: _Local) -> None:
    """Unpack once, under the name the file will have, so that damage shows before it is kept."""
    suffix = local.file.suffix.removeprefix(".").lower()
    with local.part.open("rb") as file:
        head = file.read(8)
    if suffix in MAGIC and not head.startswith(MAGIC[suffix]):
        raise HeadToHeadError(f"it does not begin like a {suffix} file")
    unpack(local.part)


def _read_json(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _write_json(path: Path, content: dict[str, Any]) -> None:
    new = path.with_name(f"{path.name}.new")
    new.write_text(json.dumps(content), encoding="utf-8")
    new.replace(path)
