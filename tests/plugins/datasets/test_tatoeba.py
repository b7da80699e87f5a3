"""tatoeba: file formats, invalid files and downloads."""

import bz2
import gzip
import lzma
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from made import refused

Texts = list[tuple[str, str]]

EXPECTED = [("Go.", "Ve."), ('Say "hi".', 'Di "hola".'), ("I see.", "Ya veo.")]
TWO = 'Go.\tVe.\nSay "hi".\tDi "hola".\nI see.\tYa veo.\n'
THREE = TWO.replace("\n", "\tCC-BY 2.0 (France) Attribution: tatoeba.org #1 (a) & #2 (b)\n")
FOUR = "\ufeff" + "".join(
    f"{1276 + n}\t{source}\t{2481 + n}\t{target}\r\n" for n, (source, target) in enumerate(EXPECTED)
)


def texts(corpus: object) -> Texts:
    return [(pair.source, pair.target) for pair in corpus.pairs]  # type: ignore[attr-defined]


def pack_zip(path: Path, content: bytes) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("_about.txt", "about\tthese files")
        archive.writestr("spa.txt", content)


PACKERS: dict[str, Callable[[Path, bytes], object]] = {
    "pairs.tsv": lambda path, content: path.write_bytes(content),
    "pairs.txt": lambda path, content: path.write_bytes(content),
    "pairs.tsv.xz": lambda path, content: path.write_bytes(lzma.compress(content)),
    "pairs.tsv.gz": lambda path, content: path.write_bytes(gzip.compress(content)),
    "pairs.tsv.bz2": lambda path, content: path.write_bytes(bz2.compress(content)),
    "spa-eng.zip": pack_zip,
}


@pytest.mark.parametrize(
    ("name", "content"),
    [*((name, TWO) for name in PACKERS), ("pairs.txt", THREE), ("spa-eng.zip", FOUR)],
)
def test_every_form_and_packing_gives_the_same_pairs(
    read: Callable, tmp_path: Path, name: str, content: str
) -> None:
    PACKERS[name](tmp_path / name, content.encode())
    assert texts(read("tatoeba", file=str(tmp_path / name))) == EXPECTED


def test_swap_exchanges_the_sides(read: Callable, tmp_path: Path) -> None:
    for content in (TWO, FOUR):
        (tmp_path / "pairs.tsv").write_text(content, encoding="utf-8", newline="")
        corpus = read("tatoeba", pair="spa-eng", file=str(tmp_path / "pairs.tsv"), swap=True)
        assert texts(corpus) == [(target, source) for source, target in EXPECTED]
        assert corpus.languages == ("spa", "eng")


WEEKLY_ENGLISH = "1\teng\tGo.\n2\teng\tI see.\n3\t\\N\tWhat?\n"
WEEKLY_SPANISH = "7\tspa\tVe.\n8\tspa\tYa veo.\n9\tspa\tVete.\n"
WEEKLY_LINKS = "1\t7\n1\t9\n2\t8\n7\t1\n2\t99\n"
WEEKLY_PAIRS = [("Go.", "Ve."), ("Go.", "Vete."), ("I see.", "Ya veo.")]


def detailed(plain: str) -> str:
    return plain.replace("\n", "\tCK\t2010-01-01 00:00:00\t\\N\n")


@pytest.mark.parametrize("form", [str, detailed], ids=["plain", "detailed"])
def test_weekly_sentences_are_joined_by_their_links(
    read: Callable, tmp_path: Path, form: Callable[[str], str]
) -> None:
    for name, content in (
        ("eng", form(WEEKLY_ENGLISH)),
        ("spa", form(WEEKLY_SPANISH)),
        ("links", WEEKLY_LINKS),
    ):
        (tmp_path / f"{name}.tsv.bz2").write_bytes(bz2.compress(content.encode()))
    paths = [str(tmp_path / f"{name}.tsv.bz2") for name in ("eng", "spa", "links")]
    corpus = read("tatoeba", sentences=paths[:2], links=paths[2])
    assert texts(corpus) == WEEKLY_PAIRS
    assert corpus.notes == ("1 links name a sentence that the files do not contain",)


def test_weekly_sentences_may_be_in_one_file_and_links_the_other_way_round(
    read: Callable, tmp_path: Path
) -> None:
    (tmp_path / "all.tsv").write_text(WEEKLY_ENGLISH + WEEKLY_SPANISH, encoding="utf-8")
    (tmp_path / "links.tsv").write_text(WEEKLY_LINKS, encoding="utf-8")
    corpus = read(
        "tatoeba",
        pair="spa-eng",
        sentences=str(tmp_path / "all.tsv"),
        links=str(tmp_path / "links.tsv"),
    )
    assert texts(corpus) == [(target, source) for source, target in WEEKLY_PAIRS]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\xef\xbb\xbf\r\n \n", "is empty"),
        (b"Go. Ve.\n", "line 1 has 1 columns; expected text, text and an optional attribution"),
        (b"a\tb\na\tb\tc\n", "line 2 has 3 columns, expected 2 as in the lines before"),
        (b"a\tb\rc\td\r", "has line ends of CR only; convert it with: tr"),
        ("a\tb\n".encode("utf-32"), "is UTF-32; convert it with: iconv -f utf-32 -t utf-8"),
        (b"1\teng\tGo.\n", "is a weekly export; use data.sentences or data.links, not data.file"),
    ],
)
def test_invalid_content_is_named(
    read: Callable, tmp_path: Path, content: bytes, message: str
) -> None:
    (tmp_path / "pairs.tsv").write_bytes(content)
    assert message in refused(read, "tatoeba", file=str(tmp_path / "pairs.tsv"))
    wrong = refused(read, "tatoeba", file=str(tmp_path / "pairs.tsv"), sha256={"pair.tsv": "a"})
    assert "sha256 names 'pair.tsv', which is not read; use pairs.tsv" in wrong


@pytest.mark.parametrize(
    ("english", "links", "message"),
    [
        ("x\teng\tGo.\n", WEEKLY_LINKS, "line 1 has 3 columns; expected id, language, text"),
        ("1\tdeu\tLos.\n", WEEKLY_LINKS, "contain no sentence in 'eng'; check data.pair: eng-spa"),
        (WEEKLY_ENGLISH, "5\t6\n", "links.tsv' links no sentences of eng-spa; check data.pair"),
    ],
)
def test_faulty_weekly_exports_are_named(
    read: Callable, tmp_path: Path, english: str, links: str, message: str
) -> None:
    for name, content in (("eng", english), ("spa", WEEKLY_SPANISH), ("links", links)):
        (tmp_path / f"{name}.tsv").write_text(content, encoding="utf-8")
    sentences = [str(tmp_path / "eng.tsv"), str(tmp_path / "spa.tsv")]
    assert message in refused(
        read, "tatoeba", sentences=sentences, links=str(tmp_path / "links.tsv")
    )


def test_without_a_file_the_weekly_exports_are_downloaded_once(
    read: Callable, site: tuple[Path, str]
) -> None:
    folder, url = site
    paths = [
        folder / f"{name}.tsv.bz2"
        for name in ("eng/eng_sentences", "spa/spa_sentences", "eng/eng-spa_links")
    ]
    for path, content in zip(paths, (WEEKLY_ENGLISH, WEEKLY_SPANISH, WEEKLY_LINKS), strict=True):
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(bz2.compress(content.encode()))
    assert texts(read("tatoeba", url=url)) == WEEKLY_PAIRS
    for path in paths:
        path.unlink()
    assert texts(read("tatoeba", url=url)) == WEEKLY_PAIRS


def test_a_checksum_is_checked_although_the_data_are_prepared(
    prepared: Callable, tmp_path: Path
) -> None:
    file = tmp_path / "pairs.tsv"
    file.write_text("".join(f"word {number}.\tmot {number}.\n" for number in range(60)))
    options = {"pair": "eng-fra", "file": str(file)}
    prepared("tatoeba", valid=5, test=5, options=options)
    message = refused(prepared, "tatoeba", valid=5, test=5, options=options | {"sha256": "0" * 64})
    assert "has sha256" in message


@pytest.mark.slow
def test_a_grouped_split_of_a_real_file_leaks_nothing(prepared: Callable, real: Callable) -> None:
    file = real("eng-spa.manythings-2019-07-21.2col.tsv.xz")
    data = prepared("tatoeba", options={"file": str(file)}, limit=20_000)
    train, test = data.splits["train"], data.splits["test"]
    assert data.record["leak"] == 0.0
    assert not set(train.source_text) & set(test.source_text)
    assert not set(train.target_text) & {
        text for references in test.references for text in references
    }
    assert max(len(references) for references in test.references) > 3
