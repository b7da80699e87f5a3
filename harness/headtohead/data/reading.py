"""Lines of a text file: plain, gz, bz2, xz, or a zip archive with one text file."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import lzma
import zipfile
import zlib
from collections.abc import Callable
from io import BytesIO
from pathlib import Path

from headtohead.errors import HeadToHeadError

MAGIC = {"gz": b"\x1f\x8b", "bz2": b"BZh", "xz": b"\xfd7zXZ\x00", "zip": b"PK\x03\x04"}
TEXT_SUFFIXES = (".txt", ".tsv", ".csv")
BYTE_ORDER_MARK = "\ufeff"


def read_lines(path: Path) -> list[str]:
    """Return the lines without line ends (LF or CRLF) and without a byte order mark.

    The first bytes decide the compression, not the name. Only a line feed ends a line: other
    Unicode separators occur inside sentences.

    Raises:
        HeadToHeadError: If the file is missing, empty, damaged or not UTF-8.
    """
    raw = unpack(path)
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise HeadToHeadError(
            f"file '{path}' is not UTF-8: line {line} has the byte 0x{raw[error.start]:02x}; "
            "convert it, for instance with: iconv -f latin1 -t utf-8"
        ) from error
    text = text.removeprefix(BYTE_ORDER_MARK)
    if not text.strip():
        raise HeadToHeadError(f"file '{path}' is empty")
    lines = text.split("\n")
    if not lines[-1]:
        lines.pop()
    return [line.removesuffix("\r") for line in lines]


def unpack(path: Path) -> bytes:
    """Return the decompressed content of a file.

    Raises:
        HeadToHeadError: If the file is missing, cannot be read or is damaged.
    """
    raw = read_bytes(path)
    kind = next((kind for kind, magic in MAGIC.items() if raw.startswith(magic)), None)
    suffix = path.suffix.removeprefix(".").lower()
    if kind is None:
        if suffix in MAGIC and raw:
            reason = f"it does not begin like a {suffix} file"
            raise HeadToHeadError(f"file '{path}' is damaged: {reason}; download it again")
        return raw
    try:
        return _UNPACKERS[kind](raw, path)
    except (OSError, EOFError, ValueError, zlib.error, lzma.LZMAError, zipfile.BadZipFile) as error:
        reason = " ".join(str(error).split()).rstrip(".")
        raise HeadToHeadError(f"file '{path}' is damaged: {reason}; download it again") from error


def read_bytes(path: Path) -> bytes:
    """Return the bytes of a file.

    Raises:
        HeadToHeadError: If the file is missing or cannot be read.
    """
    try:
        return path.read_bytes()
    except FileNotFoundError as error:
        raise HeadToHeadError(f"file '{path}' does not exist") from error
    except OSError as error:
        raise HeadToHeadError(f"file '{path}' cannot be read: {error.strerror}") from error


def file_sha256(path: Path) -> str:
    """Return the sha256 of a file in hexadecimal digits.

    Raises:
        HeadToHeadError: If the file is missing or cannot be read.
    """
    return hashlib.sha256(read_bytes(path)).hexdigest()


def _unzip(raw: bytes, path: Path) -> bytes:
    """Return the only text file of a zip archive; names that begin with "_" or "." are ignored."""
    with zipfile.ZipFile(BytesIO(raw)) as archive:
        names = [
            name
            for name in archive.namelist()
            if name.lower().endswith(TEXT_SUFFIXES) and not Path(name).name.startswith(("_", "."))
        ]
        if len(names) != 1:
            raise HeadToHeadError(
                f"file '{path}' must contain exactly one {', '.join(TEXT_SUFFIXES)} file, "
                f"contains {', '.join(names) or 'none'}; repack it"
            )
        return archive.read(names[0])


_UNPACKERS: dict[str, Callable[[bytes, Path], bytes]] = {
    "gz": lambda raw, _: gzip.decompress(raw),
    "bz2": lambda raw, _: bz2.decompress(raw),
    "xz": lambda raw, _: lzma.decompress(raw),
    "zip": _unzip,
}
