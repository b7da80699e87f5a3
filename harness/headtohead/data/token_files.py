"""Token ids of a binary file: ids alone, as of nanoGPT, or after the header of llm.c and modded-nanogpt.

A header states what follows it, so it is verified and the ids are read. Ids alone state nothing: a text,
an image or weights are 16-bit numbers too. Each rule below recognises one kind of other data. All rules
use properties that ids of tokenisers do not have; a file of unusual ids passes with a header.

Formats: https://github.com/karpathy/nanoGPT, ``data/*/prepare.py``;
https://github.com/karpathy/llm.c, ``dev/data/data_common.py``;
https://github.com/KellerJordan/modded-nanogpt, ``_load_data_shard``.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from headtohead.data.reading import open_file, packing
from headtohead.errors import HeadToHeadError

Ids = NDArray[np.uint16]

HEADER_BYTES = 1024
"""A header has 256 integers of 32 bits: magic number, version, number of tokens, and zeros."""
MAGIC_OF_IDS = 20240520
VERSION_OF_IDS = 1
OTHER_MAGIC = {
    20240326: "weights of a model",
    20240522: "examples of an evaluation",
    20240801: "ids of 32 bits, as for Llama 3",
}
"""Contents of other files of llm.c, by magic number."""
DATES = range(20_200_101, 20_991_232)
"""Magic numbers of llm.c are dates."""
MAX_HEADER_FIELDS = 16
"""Maximum number of integers of a header that are not 0."""

SAMPLE_BYTES = 1 << 22
"""The rules for ids without a header use this part at the beginning of the file."""
MAX_CONTROL_IN_TEXT = 0.005
"""Fraction of control characters below which bytes are a text; files of ids have at least 2 %."""
MIN_NUMBERS = 50
"""Minimum number of values that are not 0 for the rules of floating-point numbers."""
MIN_BYTE_DIFFERENCE = 0.25
"""Total variation distance between low and high bytes; ids have at least 0.55, long data of 8 bits
less than 0.05."""
MAX_HALF_PRECISION_REPETITION = 0.01
"""Fraction of the most common value in float16 data, 0 and 1 excluded; the most common token has at
least 1.7 %."""

NOT_CONTROL = (*range(0x09, 0x0E), *range(0x20, 0x7F), *range(0x80, 0x100))
"""Bytes of texts: no control characters except tabs and line ends."""
NUMPY_MAGIC = b"\x93NUMPY"
WRITE_IDS = "write the token ids with numpy.uint16 and tofile"
STATE_IDS = f"{WRITE_IDS}; if they are token ids, write the header of llm.c before them"


def read_token_ids(path: Path) -> Ids:
    """Return the token ids of a file with or without a header.

    Raises:
        HeadToHeadError: If the file cannot be read, its header is not one of ids of 16 bits, the number
            of ids is not that of the header, or a file without a header has other data.
    """
    with open_file(path) as file:
        content = file.read()
    if not content:
        raise HeadToHeadError(f"file '{path}' is empty; {WRITE_IDS}")
    if has_header(content):
        return _after_header(path, content)
    sample = content[:SAMPLE_BYTES]
    for rule in RULES:
        problem = rule(sample)
        if problem:
            raise HeadToHeadError(f"file '{path}' {problem}")
    if len(content) % 2:
        raise HeadToHeadError(
            f"file '{path}' has an odd number of bytes; expected ids of 16 bits each"
        )
    return np.frombuffer(content, "<u2")


def has_header(content: bytes) -> bool:
    """Return whether a file begins with the header of a file of llm.c."""
    start = content[:HEADER_BYTES]
    fields: list[int] = np.frombuffer(start[: len(start) // 4 * 4], "<i4").tolist()
    if not fields or fields[0] not in DATES:
        return False
    if fields[0] == MAGIC_OF_IDS:
        return True
    return sum(field != 0 for field in fields) <= MAX_HEADER_FIELDS


def _after_header(path: Path, content: bytes) -> Ids:
    if len(content) < HEADER_BYTES:
        raise HeadToHeadError(
            f"file '{path}' ends inside its header: it has {len(content)} of {HEADER_BYTES:,} bytes; copy it again"
        )
    magic, version, count = np.frombuffer(content[:12], "<i4").tolist()
    if magic != MAGIC_OF_IDS or version != VERSION_OF_IDS:
        kind = f" ({OTHER_MAGIC[magic]})" if magic in OTHER_MAGIC else ""
        raise HeadToHeadError(
            f"file '{path}' has the header {magic}, version {version}{kind}; expected "
            f"{MAGIC_OF_IDS}, version {VERSION_OF_IDS} (ids of 16 bits); {WRITE_IDS}"
        )
    size = len(content) - HEADER_BYTES
    if size != 2 * count:
        raise HeadToHeadError(
            f"file '{path}' has {size:,} bytes after its header, which states {count:,} ids of 16 bits; "
            "copy it again, or correct its header"
        )
    return np.frombuffer(content, "<u2", offset=HEADER_BYTES)


def packed(content: bytes) -> str | None:
    """Return the problem of compressed files, archives and NumPy's files with a header."""
    if content.startswith(NUMPY_MAGIC):
        return f"is a file of numpy.save, with a header; {WRITE_IDS}"
    kind = packing(content)
    return f"is packed as {kind}; unpack it" if kind else None


def text(content: bytes) -> str | None:
    """Return the problem of a text: unlike ids, it has hardly any control characters."""
    if content.startswith((b"\xff\xfe", b"\xfe\xff")) and _is_utf16(content):
        return "is a text in UTF-16; convert it to UTF-8 and rename it to .txt"
    counts = np.bincount(np.frombuffer(content, np.uint8), minlength=256)
    control = 1 - counts[[*NOT_CONTROL]].sum() / len(content)
    return "is a text; rename it to .txt" if control < MAX_CONTROL_IN_TEXT else None


def floating_point(content: bytes) -> str | None:
    """Return the problem of floating-point numbers: as such numbers, nearly all have a usual size.

    Ids have the exponents of tiny or huge numbers. As float16, ids in the thousands have a usual size
    too, but the same ones occur again and again; measured values do not.
    """
    for name, kind in (("float64", "<f8"), ("float32 or bfloat16", "<f4")):
        if _usual_fraction(content, kind, 1e-6, 1e6) >= 0.9:
            return f"has numbers of type {name}; {STATE_IDS}"
    is_usual = _usual_fraction(content, "<f2", 1e-4, 65504) >= 0.95
    if is_usual and _most_common(content) < MAX_HALF_PRECISION_REPETITION:
        return f"has numbers of type float16; {STATE_IDS}"
    return None


def wide_integers(content: bytes) -> str | None:
    """Return the problem of integers of 32 or 64 bits: upper halves are small, or of negative numbers."""
    low, high = _halves(content)
    high = high[high != 0xFFFF]
    largest_low = low.max(initial=0)
    largest_high = high.max(initial=0)
    # Of big-endian numbers, the lower halves are 0.
    one_is_zero = (largest_low == 0) != (largest_high == 0)
    if one_is_zero or (largest_high < 16 and largest_low >= 4096):
        return "has ids of 32 or 64 bits; write them as numpy.uint16"
    return None


def bytes_of_one_kind(content: bytes) -> str | None:
    """Return the problem of data of 8 bits: low and high bytes have the same distribution."""
    values = np.frombuffer(content[: len(content) // 2 * 2], np.uint8)
    low, high = values[::2], values[1::2]
    if not high.any():
        return None
    counts = np.bincount(low, minlength=256) - np.bincount(high, minlength=256)
    difference = np.abs(counts).sum() / 2 / len(low)
    if difference < MIN_BYTE_DIFFERENCE:
        return f"has data of 8 bits, such as an image or ids of type uint8; {STATE_IDS}"
    return None


RULES: tuple[Callable[[bytes], str | None], ...] = (
    packed,
    text,
    floating_point,
    wide_integers,
    bytes_of_one_kind,
)
"""Each returns what a file without a header is, and what to do, if it has other data than ids."""


def _is_utf16(content: bytes) -> bool:
    try:
        # Unlike `bytes.decode`, it accepts an incomplete last character.
        codecs.getincrementaldecoder("utf-16")().decode(content)
    except UnicodeDecodeError:
        return False
    return True


def _halves(content: bytes) -> tuple[Ids, Ids]:
    """Return the lower and the upper halves of numbers of 32 bits."""
    ids = np.frombuffer(content[: len(content) // 4 * 4], "<u2")
    return ids[::2], ids[1::2]


def _usual_fraction(content: bytes, kind: str, smallest: float, largest: float) -> float:
    """Return the fraction of the numbers other than 0 whose size is in a range; 0 for few numbers."""
    size = np.dtype(kind).itemsize
    with np.errstate(invalid="ignore"):
        whole = content[: len(content) // size * size]
        numbers = np.abs(np.frombuffer(whole, kind).astype(np.float64))
    numbers = numbers[numbers != 0]
    if len(numbers) < MIN_NUMBERS:
        return 0.0
    return float(np.mean((numbers >= smallest) & (numbers <= largest)))


def _most_common(content: bytes) -> float:
    """Return the fraction of the most common number of 16 bits, without 0, -0 and 1 of float16."""
    values = np.frombuffer(content[: len(content) // 2 * 2], "<u2")
    counts = np.bincount(values, minlength=1 << 16)
    counts[[0, 0x8000, 0x3C00]] = 0
    return float(counts.max() / len(values))
