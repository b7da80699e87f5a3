"""Downloads from a local server: interrupted, resumed, changed, damaged, missing."""

from __future__ import annotations

import bz2
import hashlib
import socket
import threading
from pathlib import Path
from typing import Any

import pytest

from headtohead.data import fetch, fetched_sha256
from headtohead.errors import HeadToHeadError

CONTENT = bytes(range(256)) * 4000
SUM = hashlib.sha256(CONTENT).hexdigest()


def fails(message: str, url: str, folder: Path, **options: Any) -> None:
    with pytest.raises(HeadToHeadError, match=message) as caught:
        fetch(url, folder, **options)
    assert "\n" not in str(caught.value)


def test_a_file_is_downloaded_once_and_its_checksum_recorded(site: Any, tmp_path: Path) -> None:
    site.files["/a.bin"] = CONTENT
    url = f"{site.address}/a.bin"
    assert fetched_sha256(url, tmp_path) is None
    path = fetch(url, tmp_path, sha256=SUM.upper())
    assert path.read_bytes() == CONTENT
    assert fetched_sha256(url, tmp_path) == SUM
    assert fetch(url, tmp_path) == path
    assert site.requests == 1
    assert not list(tmp_path.glob("part-*"))


def test_addresses_with_one_file_name_do_not_collide(site: Any, tmp_path: Path) -> None:
    site.files |= {"/one/a.bin": b"1", "/two/a.bin": b"2"}
    paths = [fetch(f"{site.address}/{folder}/a.bin", tmp_path) for folder in ("one", "two")]
    assert [path.read_bytes() for path in paths] == [b"1", b"2"]


def test_an_interrupted_download_leaves_no_file(site: Any, tmp_path: Path) -> None:
    site.files["/a.bin"] = CONTENT
    site.cuts = [100_000]
    url = f"{site.address}/a.bin"
    fails(rf"^download of {url} failed: 100000 of {len(CONTENT)} bytes were received; run", url, tmp_path)
    assert [path.suffix for path in tmp_path.iterdir()] == [".lock"]
    assert fetch(url, tmp_path, sha256=SUM).read_bytes() == CONTENT


def test_a_wrong_checksum_is_an_error(site: Any, tmp_path: Path) -> None:
    site.files["/a.bin"] = CONTENT
    url = f"{site.address}/a.bin"
    fails(rf"has sha256 {SUM}, expected 00; correct data.sha256, or delete the file", url, tmp_path, sha256="00")


def test_a_copy_that_changed_on_disk_is_downloaded_again(site: Any, tmp_path: Path) -> None:
    site.files["/a.bin"] = CONTENT
    url = f"{site.address}/a.bin"
    path = fetch(url, tmp_path)
    path.write_bytes(CONTENT[:-1] + b"!")
    assert fetched_sha256(url, tmp_path) is None
    assert fetch(url, tmp_path).read_bytes() == CONTENT


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("a.bz2", b"no archive", "it does not begin like a bz2 file; download it again"),
        ("a.zip", b"<html>", "it is empty or an HTML page; check the URL"),
        ("a.bz2", bz2.compress(CONTENT)[:-30], "it is damaged: it ends too early"),
        ("a.zip", b"PK\x03\x04" + bytes(50), "it is damaged: File is not a zip file"),
    ],
)
def test_a_damaged_archive_is_refused_and_not_kept(
    site: Any, tmp_path: Path, name: str, content: bytes, reason: str
) -> None:
    site.files[f"/{name}"] = content
    url = f"{site.address}/{name}"
    fails(rf"^download of {url} failed: {reason}", url, tmp_path)
    assert [path.suffix for path in tmp_path.iterdir()] == [".lock"]


def test_a_file_missing_on_the_server_is_named(site: Any, tmp_path: Path) -> None:
    fails(r"a.bin failed: HTTP Error 404: Not Found; .* set data.file to", f"{site.address}/a.bin", tmp_path)


def closed_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def test_without_a_network_the_error_suggests_a_local_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    url = f"http://127.0.0.1:{closed_port()}/a"
    fails(r"^download of http.* failed: .*Connection refused.*; without a network, set data.file", url, tmp_path)


def test_a_folder_that_cannot_be_written_is_named(site: Any, tmp_path: Path) -> None:
    site.files["/a.bin"] = CONTENT
    (tmp_path / "file").write_text("in the way")
    fails(
        r"^cannot write to the cache folder '.*file/below': Not a directory; set H2H_CACHE",
        f"{site.address}/a.bin",
        tmp_path / "file" / "below",
    )


def test_concurrent_calls_download_once(site: Any, tmp_path: Path) -> None:
    site.files["/a.bin"] = CONTENT
    url = f"{site.address}/a.bin"
    threads = [threading.Thread(target=fetch, args=(url, tmp_path)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert site.requests == 1
    assert fetched_sha256(url, tmp_path) == SUM
