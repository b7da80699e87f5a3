"""Downloads into the cache, tested and stored with their checksum."""

from __future__ import annotations

import hashlib
import http.client
import logging
import re
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from filelock import FileLock

from headtohead import files
from headtohead.data.reading import RAISE_LIMIT, file_sha256, unpack
from headtohead.data.store import SET_CACHE
from headtohead.errors import HeadToHeadError
from headtohead_judge.child import max_data_bytes

TIMEOUT_SECONDS = 30.0
"""Maximum duration of a silence."""

log = logging.getLogger(__name__)


def fetch(url: str, folder: Path, *, sha256: str | None = None) -> Path:
    """Return the local copy of a file; download it if there is none, or if it has changed since its download.

    Raises:
        HeadToHeadError: If the file cannot be downloaded or written, is damaged or too large, or has another sha256.
    """
    if not re.fullmatch("https?://[!-~]{1,2000}", url):
        raise HeadToHeadError(
            f"malformed URL {url[:200]!a}; expected http://host/file or https://host/file"
        )
    file = _local(url, folder)
    with files.writing(folder, SET_CACHE):
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{file}.lock"):
            if fetched_sha256(url, folder) is None:
                _download(url, file)
    file_sha256(file, expected=sha256)
    return file


def fetched_sha256(url: str, folder: Path) -> str | None:
    """Return the sha256 of the intact local copy, or None if there is none."""
    file = _local(url, folder)
    try:
        return file_sha256(file, expected=str(files.read_json(Path(f"{file}.json"))["sha256"]))
    except (FileNotFoundError, HeadToHeadError, LookupError, TypeError):
        return None


def _local(url: str, folder: Path) -> Path:
    # Only these characters, so that the name is valid on every file system and in every message.
    path, _, _ = url.partition("?")
    _, _, last_part = path.rpartition("/")
    name = re.sub("[^A-Za-z0-9._-]", "_", last_part)[-100:] or "download"
    digest = hashlib.sha256(url.encode()).hexdigest()
    return folder / f"{digest[:12]}-{name}"


def _download(url: str, file: Path) -> None:
    """Download and test a file. A file that fails the test never enters the cache."""
    log.info("downloading %s", url)
    part = file.with_name(f"part-{file.name}")
    try:
        with part.open("w+b") as content:
            content.writelines(_blocks(url))
            content.seek(0)
            start = content.read(1000).lstrip().lower()
        if not start or start.startswith((b"<!doctype html", b"<html")):
            raise HeadToHeadError(
                "it is empty or an HTML page; check the URL, and whether the network needs a login"
            )
        for _ in unpack(part):
            pass
        part.replace(file)
    except HeadToHeadError as error:
        reason = str(error).replace(f"file '{part}'", "it")
        raise HeadToHeadError(f"download of {url} failed: {reason}") from error
    finally:
        part.unlink(missing_ok=True)
    files.write_json(Path(f"{file}.json"), {"url": url, "sha256": file_sha256(file)})


def _blocks(url: str) -> Iterator[bytes]:
    """Yield the content of a URL."""
    limit = max_data_bytes()
    received = 0
    headers = {"User-Agent": "headtohead", "Accept-Encoding": "identity"}
    try:
        request = urllib.request.Request(url, headers=headers)
        opener = urllib.request.build_opener(_Redirects)
        with opener.open(request, timeout=TIMEOUT_SECONDS) as response:
            stated = response.length or 0
            while max(received, stated) <= limit:
                block = response.read1(1 << 16)
                if not block:
                    break
                received += len(block)
                yield block
    except (OSError, http.client.HTTPException, ValueError, OverflowError) as error:
        if isinstance(error, urllib.error.HTTPError):
            error.close()
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise HeadToHeadError(
            f"{reason}; without a network, set data.file to a file of your own"
        ) from error
    if max(received, stated) > limit:
        raise HeadToHeadError(f"it has more than {limit / 1e6:,g} MB; {RAISE_LIMIT}")
    if received < stated:
        raise HeadToHeadError(f"{received} of {stated} bytes were received; run the command again")


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follow redirects to http and https, but not from https to http."""

    def redirect_request(
        self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> Any:
        fp.close()  # The base class reads the body, which may have no end.
        if newurl.partition(":")[0] not in (req.type, "https"):
            raise urllib.error.URLError(f"redirection to {newurl} is not allowed")
        return super().redirect_request(req, fp, code, msg, headers, newurl)
