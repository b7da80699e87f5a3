"""pairs: every format gives the same pairs, files keep their part, malformed rows are named."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from made import refused

Read = Callable[..., Any]

EXPECTED = [
    ("Good morning.", "Bonjour."),
    ('Say "hi", please.', "Dis « salut »."),
    ("Thank you.", "Merci."),
]
TSV = "".join(f"{source}\t{target}\n" for source, target in EXPECTED)
CSV = 'Good morning.,Bonjour.\n"Say ""hi"", please.",Dis « salut ».\nThank you.,Merci.\n'
NAMED = [
    {"id": n, "translation": {"en": source, "fr": target}}
    for n, (source, target) in enumerate(EXPECTED)
]


def texts(corpus: Any) -> list[tuple[str, str]]:
    return [(pair.source, pair.target) for pair in corpus.pairs]


def jsonl(rows: list[Any]) -> str:
    return "".join(f"{json.dumps(row)}\n" for row in rows)


def write(path: Path, content: str) -> str:
    path.write_text(content, encoding="utf-8", newline="")
    return str(path)


def test_tsv_by_number_and_by_header(read: Read, tmp_path: Path) -> None:
    assert texts(read("pairs", file=write(tmp_path / "x.tsv", TSV))) == EXPECTED
    numbered = "".join(
        f"{number}\t{target}\t{source}\n" for number, (source, target) in enumerate(EXPECTED)
    )
    assert (
        texts(read("pairs", file=write(tmp_path / "n.tsv", numbered), columns=[3, 2])) == EXPECTED
    )
    named = write(tmp_path / "h.txt", "id\tfr\ten\r\n" + numbered.replace("\n", "\r\n"))
    assert texts(read("pairs", file=named, columns=["en", "fr"])) == EXPECTED
    assert texts(read("pairs", file=named, columns=[3, 2], header=True)) == EXPECTED


def test_csv_with_quotes_and_line_breaks(read: Read, tmp_path: Path) -> None:
    assert texts(read("pairs", file=write(tmp_path / "x.csv", CSV))) == EXPECTED
    broken = 'en,fr\n"two\nlines","deux\tmots"\n'
    corpus = read("pairs", file=write(tmp_path / "b.csv", broken), columns=["en", "fr"])
    assert texts(corpus) == [("two lines", "deux mots")]


def test_json_lines_with_nested_fields(read: Read, tmp_path: Path) -> None:
    file = write(tmp_path / "x.jsonl", jsonl(NAMED))
    assert texts(read("pairs", file=file, columns=["translation.en", "translation.fr"])) == EXPECTED
    flat = jsonl([{"source": source, "target": target} for source, target in EXPECTED])
    assert texts(read("pairs", file=write(tmp_path / "f.data", flat), format="jsonl")) == EXPECTED


def test_parallel_files(read: Read, tmp_path: Path) -> None:
    source = write(tmp_path / "x.en", "\n".join(source for source, _ in EXPECTED) + "\n")
    target = write(tmp_path / "x.fr", "\n".join(target for _, target in EXPECTED) + "\n")
    assert texts(read("pairs", file=[source, target])) == EXPECTED
    write(tmp_path / "x.fr", "Bonjour.\n")
    assert "x.fr' 1; parallel files have a sentence and" in refused(
        read, "pairs", file=[source, target]
    )
    write(tmp_path / "x.en", "a\tb\n")
    assert "x.en' has a tab in every line" in refused(read, "pairs", file=[source, target])
    ignored = refused(read, "pairs", file=[source, target], columns=[2, 1])
    assert "columns belongs to tables: one file with both sides" in ignored


def many(prefix: str, count: int) -> str:
    return "".join(f"{prefix} {number}\t{prefix} {number} x\n" for number in range(count))


def test_files_of_parts_are_respected(prepared: Read, tmp_path: Path) -> None:
    files = {
        name: write(tmp_path / f"{name}.tsv", many(name, 20)) for name in ("train", "valid", "test")
    }
    data = prepared(
        "pairs",
        options={"file": files["train"], "valid_file": files["valid"], "test_file": files["test"]},
    )
    for part in ("train", "valid", "test"):
        assert sorted(data.splits[part].source_text) == sorted(
            f"{part} {number}" for number in range(20)
        )
    assert "valid and test are separate files" in data.record["notes"]


def test_a_part_without_a_file_is_split_from_the_others(prepared: Read, tmp_path: Path) -> None:
    file, test = (
        write(tmp_path / "a.tsv", many("train", 40)),
        write(tmp_path / "b.tsv", many("test", 5)),
    )
    options = {"file": file, "test_file": test, "licence": "CC0", "languages": ["A", "B"]}
    data = prepared("pairs", valid=4, test=9, limit=20, options=options)
    assert [len(data.splits[part].source_text) for part in ("train", "valid", "test")] == [16, 4, 5]
    assert "data.test has no effect: the dataset has its own pairs for test" in data.record["notes"]
    assert (data.record["licence"], data.record["languages"]) == ("CC0", ["A", "B"])
    assert "test is a separate file" in data.record["notes"]


CORRECT = "correct the tabs, data.format or data.columns, or set data.skip_malformed: true"
FIVE_PAIRS = "a,b\n" * 5
MALFORMED: list[tuple[str, str, dict[str, Any], str]] = [
    (
        "x.tsv",
        "a\tb\nc\nd\n",
        {},
        f"line 2 has 1 field, line 1 has 2; wrong lines: 2 of 3; {CORRECT}",
    ),
    (
        "x.tsv",
        "a\nb\n",
        {},
        "line 1 has no text in column 2; wrong lines: 2 of 2; correct the tabs, data.format or",
    ),
    (
        "x.jsonl",
        '{"source": "a", "target": "b", "target": "c"}\n',
        {},
        'line 1 is refused: the name "target" occurs',
    ),
    (
        "x.jsonl",
        "{}\n",
        {"header": True},
        "is JSON Lines, which has no header; leave out data.header",
    ),
    (
        "x.csv",
        "en,fr,fr\na,b,c\n",
        {"columns": ["en", "fr"]},
        "has several columns 'fr'; set data.columns to numbers",
    ),
    ("x.tsv", TSV, {"columns": [1, 1]}, "columns are two different columns, got 1 twice"),
    ("x.tsv", TSV, {"hub": "x"}, "set one of data.file, data.saved and data.hub"),
    ("x.tsv", TSV, {"revision": "b"}, "configuration and revision belong to hub"),
    (
        "x.csv",
        "a,b\nc,d,e\n",
        {},
        "line 2 has 3 fields, line 1 has 2; wrong lines: 1 of 2; put quotation marks around",
    ),
    (
        "x.csv",
        "Hello, sir,Bonjour\n" + FIVE_PAIRS,
        {},
        "line 1 has 3 fields, line 2 has 2; wrong lines: 1 of 6; put",
    ),
    (
        "x.csv",
        "Hello\n" + FIVE_PAIRS,
        {},
        "line 1 has 1 field, line 2 has 2; wrong lines: 1 of 6; put quotation",
    ),
    (
        "x.csv",
        FIVE_PAIRS + "c\n",
        {},
        "line 6 has 1 field, line 1 has 2; wrong lines: 1 of 6; put quotation marks",
    ),
    (
        "x.csv",
        "en,fr,de\n" + FIVE_PAIRS,
        {"columns": ["en", "fr"]},
        "line 1, the header, has 3 fields, line 2 has 2;",
    ),
    (
        "x.csv",
        "1,a,b\n2,a,b\n",
        {},
        "has 3 columns, as in line 1; set data.columns to those of source and target",
    ),
    (
        "x.tsv",
        "1\ta\tb\n2\ta\n",
        {"columns": [2, 3]},
        "line 2 has 2 fields, line 1 has 3; wrong lines: 1 of 2",
    ),
    (
        "x.tsv",
        "1\ta\tb\n2\ta\n",
        {"columns": [1, 2]},
        "line 2 has 2 fields, line 1 has 3; wrong lines: 1 of 2",
    ),
    (
        "x.csv",
        "a, b;c\n" * 3,
        {},
        "every line has the same number of another separator, the semicolon; replace it by a",
    ),
    (
        "x.csv",
        "a, b\tc\n" * 3,
        {},
        "of another separator, the tab; set data.format: tsv, or set data.format: csv if it",
    ),
    (
        "x.tsv",
        FIVE_PAIRS,
        {},
        "is read as tsv, but every line has the same number of another separator, the comma; set",
    ),
    (
        "x.tsv",
        "a\tb\n" * 3 + '"say ""hi"""\tc\n',
        {},
        "in the quotation marks of CSV, as in line 4, which tsv keeps;",
    ),
    (
        "x.tsv",
        '"a"\t"b"\n' * 3,
        {},
        "in the quotation marks of CSV, as in line 1, which tsv keeps; remove them, or",
    ),
    (
        "x.csv",
        "a,b\n",
        {"columns": ["en", "fr"], "header": False},
        "are names, but data.header is false; use numbers",
    ),
    (
        "x.csv",
        "en,fr\na,b\n",
        {"columns": ["en", 1]},
        "data.columns ['en', 1] are the same column; name two columns",
    ),
    (
        "x.csv",
        "en,fr\n",
        {"columns": ["en", "fr"]},
        "x.csv' has no pairs; add them, or leave out the file",
    ),
    (
        "x.csv",
        "English,French\na,b\n",
        {},
        "has column names; set data.columns to two of: English, French",
    ),
    (
        "x.csv",
        "source_text,target_text\na,b\n",
        {},
        "has column names; set data.columns to two of: source_text, target",
    ),
    (
        "x.csv",
        'a,b\n"c,d\ne,f\n',
        {},
        "the row that begins in line 2 is not CSV: unexpected end of data; correct its",
    ),
    (
        "x.jsonl",
        '{"source": "a", "target": "b"}\n{"source": "a"\n',
        {},
        "line 2 is not JSON: Expecting ',' delimiter",
    ),
    (
        "x.jsonl",
        '{"en": "a", "fr": "b"}\n',
        {},
        "line 1 has no text in column source (it has: en, fr); wrong lines: 1",
    ),
    ("x.jsonl", "[" * 100_000 + "\n", {}, "line 1 is nested too deeply; wrong lines: 1 of 1"),
    (
        "x.jsonl",
        '["a", "b"]\n["a", "x", "b"]\n',
        {"columns": [1, 2]},
        "line 2 has 3 fields, line 1 has 2; wrong",
    ),
    (
        "x.csv",
        "id,src,tgt\n1,a,b\n",
        {},
        "the first line has column names; set data.columns to two of: src, tgt, or",
    ),
    (
        "x.tsv",
        "en\tfr\na\tb\n",
        {"columns": ["en", "de"]},
        "has no column 'de'; its first line has: en, fr",
    ),
]


@pytest.mark.parametrize(("name", "content", "options", "message"), MALFORMED)
def test_malformed_rows_name_the_line(
    name: str, content: str, options: dict[str, Any], message: str, read: Read, tmp_path: Path
) -> None:
    assert message in refused(read, "pairs", file=write(tmp_path / name, content), **options)


ACCEPTED: list[tuple[str, str, dict[str, Any]]] = [
    ("x.csv", "\ufeffa,b\r\n\r\nc,d\r\n", {}),
    ("x.csv", '"a", "b"\n"c", "d"\n', {}),
    ("x.tsv", "a\tb\n\ufeffc\td\n", {}),
    ("x.csv", "1,a,b\n2,c,d\n", {"columns": [2, 3]}),
    ("x.csv", "a,b,\nc,d,\n", {"columns": [1, 2]}),
    ("x.jsonl", '["a", "b"]\n["c", "d"]\n', {"columns": [1, 2]}),
]


@pytest.mark.parametrize(("name", "content", "options"), ACCEPTED)
def test_spaces_marks_and_empty_lines_around_texts_are_not_theirs(
    name: str, content: str, options: dict[str, Any], read: Read, tmp_path: Path
) -> None:
    assert texts(read("pairs", file=write(tmp_path / name, content), **options)) == [
        ("a", "b"),
        ("c", "d"),
    ]


def test_a_format_that_is_set_is_not_doubted(read: Read, tmp_path: Path) -> None:
    semicolons = write(tmp_path / "x.csv", "a; b,c\nd; e,f\n")
    assert texts(read("pairs", file=semicolons, format="csv")) == [("a; b", "c"), ("d; e", "f")]
    quoted = write(tmp_path / "x.tsv", '"a"\t"b"\n"c"\t"d"\n')
    assert texts(read("pairs", file=quoted, format="tsv")) == [('"a"', '"b"'), ('"c"', '"d"')]


@pytest.mark.parametrize("position", [0, 3, 6])
def test_one_comma_too_many_is_skipped_alone_wherever_it_is(
    position: int, read: Read, tmp_path: Path
) -> None:
    lines = [f"a{number},b{number}" for number in range(6)]
    expected = [tuple(line.split(",")) for line in lines]
    lines.insert(position, "Good morning, sir,Bonjour")
    corpus = read("pairs", file=write(tmp_path / "x.csv", "\n".join(lines)), skip_malformed=True)
    assert texts(corpus) == expected
    assert corpus.notes == (
        f"malformed lines of 'x.csv' that were skipped: 1, first {position + 1}",
    )


def sums(path: Path) -> str:
    return write(
        path, "".join(f"{a} + {b} - 30\t{a + b - 30}\n" for a in range(9) for b in range(9))
    )


def test_only_sources_are_grouped_unless_targets_are_asked_for(
    prepared: Read, tmp_path: Path
) -> None:
    def unseen(**options: Any) -> float:
        file = sums(tmp_path / "sums.tsv")
        data = prepared("pairs", valid=10, test=10, options={"file": file, **options})
        train = set(data.splits["train"].target_text)
        return sum(text not in train for text in data.splits["test"].target_text) / 10

    assert unseen() < 0.5
    assert unseen(join_targets=True) == 1


def test_skipped_rows_are_counted_and_named(read: Read, tmp_path: Path) -> None:
    file = write(tmp_path / "x.tsv", TSV + "no tab\n" * 7)
    corpus = read("pairs", file=file, skip_malformed=True)
    assert texts(corpus) == EXPECTED
    assert corpus.notes == ("malformed lines of 'x.tsv' that were skipped: 7, first 4",)


@pytest.mark.slow
def test_a_saved_hugging_face_dataset_keeps_its_splits(prepared: Read, tmp_path: Path) -> None:
    library = pytest.importorskip("datasets")
    parts = {
        name: library.Dataset.from_list(
            [{"translation": {"en": f"{name} {n}", "fr": f"{name} {n} x"}} for n in range(9)]
        )
        for name in ("train", "validation", "test")
    }
    library.DatasetDict(parts).save_to_disk(str(tmp_path / "saved"))
    options = {"saved": str(tmp_path / "saved"), "columns": ["translation.en", "translation.fr"]}
    data = prepared("pairs", options=options)
    assert [sorted(data.splits[part].source_text)[0] for part in ("train", "valid", "test")] == [
        "train 0", "validation 0", "test 0",
    ]  # fmt: skip
    library.DatasetDict({name: parts[name] for name in ("train", "test")}).save_to_disk(
        str(tmp_path / "two")
    )
    data = prepared("pairs", valid=2, options=options | {"saved": str(tmp_path / "two")})
    assert [len(data.splits[part].source_text) for part in ("train", "valid", "test")] == [7, 2, 9]


def test_files_with_other_roles_or_names_are_other_data(prepared: Read, tmp_path: Path) -> None:
    """The content of the files is the same: only their roles or their formats differ."""
    first, second = (
        write(tmp_path / "a.tsv", many("a", 40)),
        write(tmp_path / "b.tsv", many("b", 40)),
    )
    tested, swapped = (
        prepared("pairs", valid=4, options={"file": [one], "test_file": [other]})
        for one, other in ((first, second), (second, first))
    )
    assert len(tested.splits["test"].source_text) == 40
    assert tested.data_hash != swapped.data_hash
