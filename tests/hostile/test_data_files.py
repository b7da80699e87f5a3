"""Hostile and damaged data files and caches: one line that names the file, soon and in little memory, and no trace."""

import bz2
import gzip
import io
import lzma
import os
import pickle
import random
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headtohead.data import read_lines
from headtohead.errors import HeadToHeadError
from headtohead.plugins.registry import find_dataset
from made import case_table, error_line, kind_table

ROWS = b"".join(b"I see %d cats\tveo %d gatos\n" % (n, n) for n in range(40))
RAISE_LIMIT = "if you trust the file, set H2H_MAX_DATA_BYTES to a larger number of bytes"
MAX_CPU_SECONDS = 10
MAX_BYTES = 10**9

Plant = Callable[[Path], object]


def content(data: bytes) -> Plant:
    return lambda path: path.write_bytes(data)


def zipped(*members: tuple[str, bytes], changes: dict[int, int] | None = None) -> Plant:
    """A zip archive; ``changes`` are added to the bytes of each local header and central entry, by local offset."""

    def plant(path: Path) -> None:
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, data in members:
                archive.writestr(name, data)
        raw = bytearray(buffer.getvalue())
        for offset, value in (changes or {}).items():
            raw[offset] = value
            raw[raw.index(b"PK\x01\x02") + offset + 2] = value
        path.write_bytes(raw)

    return plant


def sparse(size: int) -> Plant:
    """A file of NUL bytes that occupies no disk space."""

    def plant(path: Path) -> None:
        with path.open("wb") as file:
            file.truncate(size)

    return plant


def link(target: str) -> Plant:
    return lambda path: path.symlink_to(target)


SPACES = b" " * 10**7


def bomb(path: Path) -> None:
    """Write compressed streams after each other, which unpack to 3 GB."""
    path.write_bytes(gzip.compress(SPACES) * 300)


XZ_OF_4_GB_DICTIONARY = bytes.fromhex("fd377a585a000004e6d6b4460200210128000000")

# Of kind "process": commands that could hang or need too much time or memory.
ZIP, GZ = zipped(("a.tsv", ROWS)), gzip.compress(ROWS)
CASES = [
    ("process", "bomb-gz", "x.gz", bomb, f"more than 50 MB; {RAISE_LIMIT}"),
    ("process", "bomb-zip", "x.zip", zipped(("a.tsv", SPACES * 6)), "more than 50 MB"),
    ("zip", "encrypted", "x.zip", zipped(("a.tsv", ROWS), changes={6: 1}), "'a.tsv' is encrypted"),
    (
        "zip",
        "truncated",
        "x.zip",
        lambda path: (ZIP(path), path.write_bytes(path.read_bytes()[:-30])),
        "is damaged",
    ),
    (
        "zip",
        "gz-in-zip",
        "x.zip",
        zipped(("a.tsv", GZ)),
        "contains another gz file; unpack the outer file",
    ),
    (
        "zip",
        "zst",
        "x.tsv",
        content(b"\x28\xb5\x2f\xfd" + ROWS),
        "is packed as zst; unpack it, or repack it",
    ),
    (
        "damage",
        "bz2-garbage",
        "x.bz2",
        content(bz2.compress(ROWS) + b"garbage"),
        "is damaged: Invalid data stream",
    ),
    (
        "damage",
        "gz-truncated",
        "x.gz",
        content(GZ[:-9]),
        "is damaged: it ends too early; download it again",
    ),
    ("process", "xz-dictionary", "x.xz", content(XZ_OF_4_GB_DICTIONARY), "is damaged: "),
    ("special", "directory", "x.tsv", Path.mkdir, "is no regular file"),
    ("process", "fifo", "x.tsv", os.mkfifo, "is no regular file; copy the data"),
    ("process", "zero", "x.tsv", link("/dev/zero"), "is no regular file"),
    (
        "special",
        "loop",
        "x.tsv",
        link("x.tsv"),
        "cannot be read: Too many levels of symbolic links",
    ),
    ("text", "nothing", "x.tsv", content(b""), "is empty"),
    (
        "process",
        "sparse",
        "x.tsv",
        sparse(100 * 10**9),
        f"has 100,000 MB, more than 50 MB; {RAISE_LIMIT}",
    ),
    (
        "text",
        "nul",
        "x.tsv",
        content(ROWS + b"a\tb\0\n"),
        "line 41 has a NUL byte; use a UTF-8 file",
    ),
    (
        "text",
        "utf8",
        "x.tsv",
        content(ROWS + b"a\tb\xff\n"),
        "line 41 has the byte 0xff; convert it",
    ),
    (
        "text",
        "columns",
        "x.tsv",
        content(ROWS + b"a\tb\tc\n" * 3),
        "line 41 has 3 columns, expected 2",
    ),
]


@pytest.mark.timed
@kind_table("kind, file, plant, message", CASES)
def test_a_hostile_file_is_refused_and_the_next_file_works(
    kind: str,
    file: str,
    plant: Plant,
    message: str,
    tmp_path: Path,
    h2h_process: Callable,
    h2h_here: Callable,
) -> None:
    def stats(call: Callable, name: str) -> Any:
        words = ("data", "stats", "tatoeba", "--set", f"file={name}")
        return call(tmp_path, *words, H2H_CACHE="cache", H2H_MAX_DATA_BYTES="50000000")

    plant(tmp_path / file)
    (tmp_path / "good.tsv").write_bytes(ROWS)
    ended = stats(partial(h2h_process, timeout=120) if kind == "process" else h2h_here, file)
    line = error_line(ended)
    assert message in line
    assert file in line
    if kind == "process":
        assert ended.cpu_seconds < MAX_CPU_SECONDS
        assert ended.peak_bytes < MAX_BYTES
    assert not [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]
    good = stats(h2h_here, "good.tsv")
    assert good.returncode == 0, good.stderr


HEADER = np.zeros(256, "<i4")
HEADER[:3] = 20240520, 2, 2
NUMBERS = np.random.default_rng(1).normal(size=4000).astype("<f4")
OF_OTHER_KIND = {
    "comma": (
        "pairs",
        "x.csv",
        b"Good morning, sir,Bonjour.\n" + b"one,un\n" * 9,
        "line 1 has 3 fields, line 2 has 2",
    ),
    "text": ("text", "x.bin", ROWS, "is a text; rename it to .txt"),
    "float32": (
        "text",
        "x.bin",
        NUMBERS.tobytes(),
        "has numbers of type float32 or bfloat16; write the token ids",
    ),
    "header": (
        "text",
        "x.bin",
        HEADER.tobytes() + b"abcd",
        "has the header 20240520, version 2; expected 20240520",
    ),
}


@case_table("kind", OF_OTHER_KIND, default=2)
def test_data_of_another_kind_are_refused_and_not_prepared(
    tmp_path: Path, h2h_here: Callable, kind: str
) -> None:
    dataset, name, data, message = OF_OTHER_KIND[kind]
    (tmp_path / name).write_bytes(data)
    ended = h2h_here(tmp_path, "data", "stats", dataset, "--set", f"file={name}", H2H_CACHE="cache")
    line = error_line(ended)
    assert message in line
    assert name in line
    assert not (tmp_path / "cache").exists()


def test_no_member_of_a_zip_is_written_to_disk(tmp_path: Path) -> None:
    zipped(("../../outside.tsv", ROWS))(tmp_path / "x.zip")
    assert len(read_lines(tmp_path / "x.zip")) == 40
    assert [path.name for path in tmp_path.iterdir()] == ["x.zip"]


def test_the_limit_can_be_raised_and_lowered(
    tmp_path: Path, h2h_here: Callable, refusal: Callable
) -> None:
    wide = b"".join(b"%d%s\tb\n" % (n, b" " * 500_000) for n in range(30))
    (tmp_path / "x.gz").write_bytes(gzip.compress(wide))
    command = ("data", "fetch", "tatoeba", "--set", "file=x.gz")
    assert h2h_here(tmp_path, *command, H2H_MAX_DATA_BYTES="20000000").returncode == 0
    assert "to more than 14 MB" in refusal(*command, H2H_MAX_DATA_BYTES="14000000")
    assert "MB, more than 0.001 MB" in refusal(*command, H2H_MAX_DATA_BYTES="1000")
    for text in ("", "2e9", "0", "9" * 5000):
        line = refusal(*command, H2H_MAX_DATA_BYTES=text)
        assert (
            line
            == f"H2H_MAX_DATA_BYTES is '{text[:40]}'; expected a number of bytes such as 2000000000"
        )


def test_a_file_that_changes_while_it_is_read_is_not_prepared(
    tmp_path: Path, h2h_here: Callable, refusal: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, dataset = tmp_path / "x.tsv", find_dataset("tatoeba")
    load = dataset.load

    def changed(*arguments: Any) -> Any:
        corpus = load(*arguments)
        file.write_text("other\tcontent\n" * 40)
        return corpus

    file.write_bytes(ROWS)
    command = ("data", "stats", "tatoeba", "--set", "split=row", "--set", "file=x.tsv")
    monkeypatch.setattr(dataset, "load", changed)
    line = refusal(*command, H2H_CACHE="cache")
    assert line == "a file of dataset 'tatoeba' changed while it was read; run the command again"
    assert not (tmp_path / "cache").exists()
    assert "leak        100.0 %" in h2h_here(tmp_path, *command, H2H_CACHE="cache").stdout


def flipped(path: Path) -> None:
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 3] ^= 1
    path.write_bytes(raw)


PREPARED: dict[str, Plant] = {
    "flipped": flipped,
    "pickle": content(pickle.dumps(["not", "mine"])),
    "huge": lambda path: (path.unlink(), sparse(10**12)(path)),
    "fifo": lambda path: (path.unlink(), os.mkfifo(path)),
    "device": lambda path: (path.unlink(), path.symlink_to("/dev/zero")),
    "other": lambda path: path.write_bytes(
        next(other for other in path.parent.iterdir() if other != path).read_bytes()
    ),
}


@case_table("damage", PREPARED, default=1)
def test_damaged_prepared_data_is_rebuilt(tmp_path: Path, h2h_here: Callable, damage: str) -> None:
    stats = partial(
        h2h_here, tmp_path, "data", "stats", "tatoeba", "--set", "file=good.tsv", H2H_CACHE="cache"
    )
    (tmp_path / "good.tsv").write_bytes(ROWS)
    first = stats()
    (prepared,) = (tmp_path / "cache" / "prepared").glob("[!.]*")
    written = prepared.read_bytes()
    stats("--set", "split=row")
    PREPARED[damage](prepared)
    again = stats()
    assert (again.returncode, again.stdout) == (0, first.stdout)
    assert prepared.read_bytes() == written
    assert len(list(prepared.parent.glob("[!.]*"))) == 2


@pytest.mark.slow
@pytest.mark.parametrize("ending", ["gz", "bz2", "xz", "zip"])
def test_random_damage_is_an_error_or_without_effect(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"x.{ending}"
    pack: dict[str, Plant] = {
        "gz": content(gzip.compress(ROWS)),
        "bz2": content(bz2.compress(ROWS)),
        "xz": content(lzma.compress(ROWS)),
        "zip": zipped(("a.tsv", ROWS)),
    }
    pack[ending](path)
    lines, original, chance = read_lines(path), path.read_bytes(), random.Random(1)
    refusals = 0
    for _ in range(1000):
        raw = bytearray(original)
        for _ in range(chance.choice((1, 1, 3))):
            raw[chance.randrange(len(raw))] = chance.randrange(256)
        path.write_bytes(raw[: chance.choice((len(raw), len(raw), chance.randrange(len(raw))))])
        try:
            assert read_lines(path) == lines
        except HeadToHeadError:
            refusals += 1
    assert refusals > 300
