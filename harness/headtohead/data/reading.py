"""Lines of a text file: plain, gz, bz2, xz, or a zip archive with one text file.

Files of others are not trusted: only regular files are read, and their size is limited, also after unpacking.
"""

from __future__ import annotations

import bz2
import hashlib
import io
import json
import lzma
import os
import stat
import struct
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

from headtohead.errors import HeadToHeadError, similar_file
from headtohead_judge.child import MAX_DATA_BYTES, max_data_bytes

MAGIC = {
    "gz": b"\x1f\x8b",
    "bz2": b"BZh",
    "xz": b"\xfd7zXZ\x00",
    "zip": b"PK\x03\x04",
    "zst": b"\x28\xb5\x2f\xfd",
    "7z": b"7z\xbc\xaf\x27\x1c",
    "rar": b"Rar!\x1a\x07",
}
WIDE_ENCODINGS = {
    32: (b"\xff\xfe\0\0", b"\0\0\xfe\xff"),
    16: (b"\xff\xfe", b"\xfe\xff"),
}
"""Byte order marks of UTF-32 and UTF-16, by the number of bits; those of UTF-32 begin like those of UTF-16."""
TEXT_SUFFIXES = (".txt", ".tsv", ".csv")
BLOCK_BYTES = 1 << 20
BYTE_ORDER_MARK = "\ufeff"

RAISE_LIMIT = f"if you trust the file, set {MAX_DATA_BYTES} to a larger number of bytes"
_DAMAGE = (
    OSError,
    EOFError,
    ValueError,
    OverflowError,
    struct.error,
    zlib.error,
    lzma.LZMAError,
    zipfile.BadZipFile,
)


def read_lines(path: Path) -> list[str]:
    """Return the lines without line ends (LF or CRLF) and without a byte order mark.

    Only a line feed ends a line: other Unicode separators occur inside sentences. Files that were joined have a byte
    order mark at the beginning of each part.
    """
    text = read_text(path)
    if "\r" in text and "\n" not in text:
        raise HeadToHeadError(
            f"file '{path}' has line ends of CR only; convert it with: tr '\\r' '\\n'"
        )
    lines = text.removesuffix("\n").split("\n")
    return [line.removeprefix(BYTE_ORDER_MARK).removesuffix("\r") for line in lines]


def parse_json(text: str) -> Any:
    """Return the value of a JSON text.

    Raises:
        ValueError: If it is not JSON, or an object has a name twice, of which `json.loads` keeps the last value.
        RecursionError: If it is nested too deeply.
    """
    return json.loads(text, object_pairs_hook=_distinct)


def _distinct(fields: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the object of a list of names and values; a name that occurs twice is an error."""
    values = dict(fields)
    if len(values) < len(fields):
        counts = Counter(name for name, _ in fields)
        [(name, _)] = counts.most_common(1)
        raise ValueError(f"the name {json.dumps(name)} occurs twice")
    return values


def read_text(path: Path) -> str:
    """Return the content of a UTF-8 file, with its line ends and without a byte order mark.

    The first bytes decide the compression, not the name.

    Raises:
        HeadToHeadError: If the file is missing, special, empty, damaged, too large or not UTF-8.
    """
    content = bytearray()
    for block in unpack(path):
        content += block
    for bits, marks in WIDE_ENCODINGS.items():
        if content.startswith(marks):
            raise HeadToHeadError(
                f"file '{path}' is UTF-{bits}; convert it with: iconv -f utf-{bits} -t utf-8"
            )
    inner = packing(content)
    if inner:
        raise HeadToHeadError(f"file '{path}' contains another {inner} file; unpack the outer file")
    position = content.find(b"\0")
    if position >= 0:
        number = content.count(b"\n", 0, position) + 1
        fix = "use a UTF-8 file"
        if path.suffix == ".pkl":
            fix = "convert a pickle that you trust to JSON"
        raise HeadToHeadError(
            f"file '{path}' is not a text file: line {number} has a NUL byte; {fix}"
        )
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        number = content.count(b"\n", 0, error.start) + 1
        raise HeadToHeadError(
            f"file '{path}' is not UTF-8: line {number} has the byte 0x{content[error.start]:02x}; "
            "convert it, for instance with: iconv -f latin1 -t utf-8"
        ) from error
    text = text.removeprefix(BYTE_ORDER_MARK)
    if not text.strip():
        raise HeadToHeadError(f"file '{path}' is empty")
    return text


def unpack(path: Path) -> Iterator[bytes]:
    """Yield the decompressed content of a file in blocks.

    Raises:
        HeadToHeadError: If the file is missing, special, damaged or too large, or cannot be unpacked.
    """
    with open_file(path) as file:
        kind = packing(file.read(8))
        suffix = path.suffix.removeprefix(".").lower()
        size = file.seek(0, os.SEEK_END)
        file.seek(0)
        if kind is None and suffix in MAGIC and size:
            raise HeadToHeadError(
                f"file '{path}' does not begin like a {suffix} file; download it again, or correct the end of its name"
            )
        if kind and kind not in _UNPACKERS:
            raise HeadToHeadError(
                f"file '{path}' is packed as {kind}; unpack it, or repack it as zip, gz, bz2 or xz"
            )
        blocks = _UNPACKERS[kind](file, path) if kind else _blocks(file)
        limit = max_data_bytes()
        unpacked = 0
        try:
            for block in blocks:
                unpacked += len(block)
                if unpacked > limit:
                    raise HeadToHeadError(
                        f"file '{path}' unpacks from {_megabytes(size)} to more than {_megabytes(limit)}; {RAISE_LIMIT}"
                    )
                yield block
        except _DAMAGE as error:
            if kind is None:
                raise _unreadable(path, error) from error
            reason = " ".join(str(error).split()).rstrip(".")
            raise HeadToHeadError(
                f"file '{path}' is damaged: {reason}; download it again"
            ) from error
        except RuntimeError as error:  # of zipfile, for encryption and unknown compression methods
            raise HeadToHeadError(
                f"file '{path}' cannot be unpacked: {error}; use another program for it"
            ) from error


def open_file(path: Path, limit: int | None = None) -> io.BufferedReader:
    """Open a regular file of at most ``limit`` bytes (default: `max_data_bytes`) for reading.

    Raises:
        HeadToHeadError: If the file is missing, is no regular file, is too large, or cannot be read.
    """
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise HeadToHeadError(
                f"file '{path}' is no regular file; copy the data to a regular file and use that file"
            )
        limit = limit or max_data_bytes()
        if status.st_size > limit:
            raise HeadToHeadError(
                f"file '{path}' has {_megabytes(status.st_size)}, more than {_megabytes(limit)}; {RAISE_LIMIT}"
            )
        return path.open("rb")
    except FileNotFoundError as error:
        raise HeadToHeadError(f"file '{path}' does not exist{similar_file(path)}") from error
    except (OSError, ValueError) as error:
        raise _unreadable(path, error) from error


def file_sha256(path: Path, expected: str | None = None) -> str:
    """Return the sha256 of a file in hexadecimal digits.

    Raises:
        HeadToHeadError: As `open_file`, and if another sha256 is expected.
    """
    with open_file(path) as file:
        try:
            sha256 = hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            raise _unreadable(path, error) from error
    if expected and sha256 != expected.lower():
        raise HeadToHeadError(
            f"file '{path}' has sha256 {sha256}, expected {expected.lower()}; correct data.sha256, or replace the "
            "file; if it is a download, delete it and run the command again"
        )
    return sha256


def packing(start: bytes | bytearray) -> str | None:
    """Return the compression or archive format of a file with these first bytes."""
    for kind, magic in MAGIC.items():
        if start.startswith(magic):
            return kind
    return None


def _blocks(file: IO[bytes]) -> Iterator[bytes]:
    return iter(lambda: file.read(BLOCK_BYTES), b"")


def _decompress(new: Callable[[], Any]) -> Callable[[IO[bytes], Path], Iterator[bytes]]:
    """Return a function that yields the content of the compressed streams of a file, which follow each other.

    Unlike the file objects of `bz2` and `lzma`, it refuses bytes after a stream that are no stream: they are a
    damaged stream as a rule, and its content would be missing.
    """

    def blocks(file: IO[bytes], path: Path) -> Iterator[bytes]:
        rest = file.read(BLOCK_BYTES)
        while rest:
            stream = new()
            while not stream.eof:
                if not rest and getattr(stream, "needs_input", True):
                    rest = file.read(BLOCK_BYTES)
                block = stream.decompress(rest, BLOCK_BYTES)
                if not rest and not block and not stream.eof:
                    raise EOFError("it ends too early")
                rest = getattr(stream, "unconsumed_tail", b"")
                yield block
            rest = stream.unused_data or file.read(BLOCK_BYTES)

    return blocks


def _unzip(file: IO[bytes], path: Path) -> Iterator[bytes]:
    """Yield the only text file of a zip archive; names that begin with "_" or "." are ignored."""
    with zipfile.ZipFile(file) as archive:
        names = []
        for name in archive.namelist():
            is_hidden = Path(name).name.startswith(("_", "."))
            if name.lower().endswith(TEXT_SUFFIXES) and not is_hidden:
                names.append(name)
        if len(names) != 1:
            raise HeadToHeadError(
                f"file '{path}' must contain exactly one {', '.join(TEXT_SUFFIXES)} file, contains {len(names)}; "
                "repack it"
            )
        with archive.open(names[0]) as member:
            yield from _blocks(member)


def _unreadable(path: Path, error: Exception) -> HeadToHeadError:
    reason = getattr(error, "strerror", None) or error
    return HeadToHeadError(f"file '{path}' cannot be read: {reason}")


def _megabytes(size: int) -> str:
    return f"{size / 1e6:,.3g} MB" if size < 1e9 else f"{size / 1e6:,.0f} MB"


_UNPACKERS: dict[str, Callable[[IO[bytes], Path], Iterator[bytes]]] = {
    "gz": _decompress(lambda: zlib.decompressobj(zlib.MAX_WBITS | 16)),
    "bz2": _decompress(bz2.BZ2Decompressor),
    "xz": _decompress(lzma.LZMADecompressor),
    "zip": _unzip,
}
