"""Files of token ids: headers are verified, and other data are refused with what they are."""

import gzip
import io
import lzma
import zlib
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from headtohead.data import read_token_ids
from made import refused

SEED = 7
WORDS = (
    "the",
    "a",
    "of",
    "and",
    "to",
    "in",
    "he",
    "was",
    "it",
    "said",
    "with",
    "as",
    "his",
    "on",
    "be",
    "at",
    "by",
)


def english(count: int) -> str:
    """Return sentences of frequent words, of which the first are the most frequent."""
    rng = np.random.default_rng(SEED)
    weights = 1 / np.arange(1, len(WORDS) + 1)
    words = rng.choice(WORDS, size=count, p=weights / weights.sum())
    return " ".join(word + "." * (number % 9 == 0) for number, word in enumerate(words))


def of_words(text: str) -> np.ndarray:
    """Return ids of words by frequency."""
    order = [word for word, _ in Counter(text.split()).most_common(65_536)]
    ids = {word: index for index, word in enumerate(order)}
    return np.array([ids[word] for word in text.split()], "<u2")


def of_characters(text: str) -> np.ndarray:
    """Return the ids of nanoGPT's data/shakespeare_char/prepare.py."""
    ids = {letter: index for index, letter in enumerate(sorted(set(text)))}
    return np.array([ids[letter] for letter in text], "<u2")


def header(*fields: int) -> bytes:
    values = np.zeros(256, "<i4")
    values[: len(fields)] = fields
    return values.tobytes()


def written(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def test_ids_after_a_header_are_those_of_llm_c(tmp_path: Path) -> None:
    """Ids after a header are not judged: these would be float32."""
    ids = np.full(500, 0x3F80, "<u2")
    path = written(tmp_path / "x.bin", header(20240520, 1, len(ids)) + ids.tobytes())
    assert read_token_ids(path).tolist() == ids.tolist()


TWO = b"\x01\x00\x02\x00"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (
            header(20240520, 2, 2) + TWO,
            "has the header 20240520, version 2; expected 20240520, version 1 (ids of 16",
        ),
        (
            header(20240801, 7, 1) + TWO,
            "has the header 20240801, version 7 (ids of 32 bits, as for Llama 3); expected",
        ),
        (
            header(20240522, 1, 1) + TWO,
            "has the header 20240522, version 1 (examples of an evaluation); expected",
        ),
        (
            header(20240326, 3, 1024, 50257, 12, 12, 768) + TWO,
            "version 3 (weights of a model); expected",
        ),
        (
            header(20251231, 1, 2) + TWO,
            "has the header 20251231, version 1; expected 20240520, version 1",
        ),
        (
            header(20240520, 1, 3) + TWO,
            "has 4 bytes after its header, which states 3 ids of 16 bits; copy it again",
        ),
        (
            header(20240520, 1, 1) + TWO,
            "has 4 bytes after its header, which states 1 ids of 16 bits; copy it again",
        ),
        (
            header(20240520, 1, -1) + TWO,
            "has 4 bytes after its header, which states -1 ids of 16 bits; copy it again",
        ),
        (
            header(20240520, 1, 2)[:600],
            "ends inside its header: it has 600 of 1,024 bytes; copy it again",
        ),
        (b"", "is empty; write the token ids with numpy.uint16"),
        (bytes(range(3)), "has an odd number of bytes; expected ids of 16 bits each"),
    ],
)
def test_headers_that_are_not_understood_are_refused(
    content: bytes, reason: str, tmp_path: Path
) -> None:
    assert reason in refused(read_token_ids, written(tmp_path / "x.bin", content))


def saved() -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, of_words(english(5000)))
    return buffer.getvalue()


def labels(kind: str) -> bytes:
    """Return ids with -100 for ignored positions, as labels have."""
    ids = of_words(english(5000)).astype(kind)
    ids[::7] = -100
    return ids.tobytes()


RNG = np.random.default_rng(SEED)
NORMAL = RNG.normal(size=20_000)
OTHER_DATA = {
    "text": (english(5000).encode(), "is a text; rename it to .txt"),
    "odd text": (
        english(5000).encode() + b"." * (1 - len(english(5000)) % 2),
        "is a text; rename it to .txt",
    ),
    "latin-1": ("où été naïf, ".encode("latin-1") * 500, "is a text; rename it to .txt"),
    "utf-16": (
        english(5000).encode("utf-16"),
        "is a text in UTF-16; convert it to UTF-8 and rename it to .txt",
    ),
    "npy": (saved(), "is a file of numpy.save, with a header"),
    "gz": (gzip.compress(english(5000).encode()), "is packed as gz; unpack it"),
    "zlib": (zlib.compress(RNG.bytes(20_000)), "has data of 8 bits"),
    "uint8 ids": (of_characters(english(5000)).astype(np.uint8).tobytes(), "has data of 8 bits"),
    "image": (
        (np.cumsum(RNG.normal(size=20_000) * 5) % 256).astype(np.uint8).tobytes(),
        "has data of 8 bits",
    ),
    "int32 ids": (of_words(english(5000)).astype("<i4").tobytes(), "has ids of 32 or 64 bits"),
    "int64 ids": (of_words(english(5000)).astype("<i8").tobytes(), "has ids of 32 or 64 bits"),
    "big-endian int32 ids": (
        of_words(english(5000)).astype(">i4").tobytes(),
        "has ids of 32 or 64 bits",
    ),
    "Llama 3's ids": (
        np.array([128_000, 791, 7] * 99, "<u4").tobytes(),
        "has ids of 32 or 64 bits",
    ),
    "int32 labels": (labels("<i4"), "has ids of 32 or 64 bits"),
    "int64 labels": (labels("<i8"), "has ids of 32 or 64 bits"),
    "float64": (NORMAL.astype("<f8").tobytes(), "has numbers of type float64"),
    "float32": (NORMAL.astype("<f4").tobytes(), "has numbers of type float32"),
    "small float32": ((NORMAL / 50).astype("<f4").tobytes(), "has numbers of type float32"),
    "float32 images": (
        (RNG.integers(0, 256, 20_000) / 255).astype("<f4").tobytes(),
        "has numbers of type float32",
    ),
    "float32 ids": (of_words(english(5000)).astype("<f4").tobytes(), "has numbers of type float32"),
    "float16": (NORMAL.astype("<f2").tobytes(), "has numbers of type float16"),
    "small float16": ((NORMAL / 50).astype("<f2").tobytes(), "has numbers of type float16"),
    "float16 activations": (
        np.maximum(NORMAL, 0).astype("<f2").tobytes(),
        "has numbers of type float16",
    ),
}


@pytest.mark.parametrize("name", OTHER_DATA)
def test_other_data_are_refused_with_what_they_are(name: str, tmp_path: Path) -> None:
    content, reason = OTHER_DATA[name]
    assert reason in refused(read_token_ids, written(tmp_path / "x.bin", content))


def of_subwords(text: str, size: int) -> np.ndarray:
    """Return ids of byte-level byte-pair encoding, as GPT-2's."""
    library = pytest.importorskip("tokenizers")
    tokenizer = library.ByteLevelBPETokenizer()
    tokenizer.train_from_iterator([text], vocab_size=size, show_progress=False)
    return np.array(tokenizer.encode(text).ids, "<u2")


def shuffled(ids: np.ndarray, size: int) -> np.ndarray:
    """Return the ids of a vocabulary in random order: the hardest case, as frequent tokens have small ids elsewhere."""
    return np.random.default_rng(SEED).permutation(size).astype("<u2")[ids]


KINDS: dict[str, Callable[[str], np.ndarray]] = {
    "characters": of_characters,
    "bytes": lambda text: np.frombuffer(text.encode(), np.uint8).astype("<u2"),
    "words": of_words,
    "words in any order": lambda text: shuffled(of_words(text), 30_000),
    "words of 65,536": lambda text: shuffled(of_words(text), 65_536),
    "300 subwords": lambda text: of_subwords(text, 300),
    "8,000 subwords": lambda text: of_subwords(text, 8000),
    "50,257 subwords in any order": lambda text: shuffled(of_subwords(text, 8000), 50_257),
}


@pytest.mark.parametrize("kind", KINDS)
def test_ids_of_real_text_are_never_taken_for_other_data(
    kind: str, real: Callable[[str], Path], tmp_path: Path
) -> None:
    text = lzma.decompress(real("tinyshakespeare.txt.xz").read_bytes()).decode()[:300_000]
    ids = KINDS[kind](text)
    assert read_token_ids(written(tmp_path / "whole.bin", ids.tobytes())).tolist() == ids.tolist()
    for length in (200, 5000):
        for start in range(0, len(ids) - length, len(ids) // 20):
            part = ids[start : start + length]
            assert len(read_token_ids(written(tmp_path / "part.bin", part.tobytes()))) == length
