"""Files of native libraries: a crash, a hang and unlimited growth are errors of one line."""

import importlib.metadata
import json
import os
import random
import shutil
from pathlib import Path
from typing import Any

import pytest
import tokenizers

from headtohead.data import call_in_child, prepare, read_corpus
from headtohead.data.subwords import load_tokenizer
from headtohead.errors import HeadToHeadError
from made import case_table, refused
from made.data_section import data_config
from made.fake_study import edit


@case_table(
    ("function", "arguments", "message"),
    [
        (
            "os:abort",
            [],
            "data 'x' cannot be read: the reader ended with SIGABRT; the file is damaged or needs more",
        ),
        ("time:sleep", [60], "data 'x' cannot be read: the reader took more than 0.5 s"),
        ("operator:mul", [[0], 10**11], "data 'x' cannot be read: MemoryError"),
    ],
    default=1,
)
def test_the_end_of_a_reader_is_one_line(function: str, arguments: list[Any], message: str) -> None:
    seconds = 0.5 if function == "time:sleep" else None
    assert refused(call_in_child, "data 'x'", function, *arguments, seconds=seconds).startswith(
        message
    )


def test_a_large_result_of_a_reader_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("H2H_MAX_DATA_BYTES", "1000")
    line = refused(call_in_child, "data 'x'", "operator:mul", "a", 2000)
    assert "more than 1,000 bytes; if you trust it, set H2H_MAX_DATA_BYTES" in line


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """A folder that datasets saved."""
    library = pytest.importorskip("datasets")
    rows = [{"source": f"a {number}", "target": f"b {number}"} for number in range(40)]
    library.Dataset.from_list(rows).save_to_disk(str(tmp_path / "saved"))
    return tmp_path / "saved"


def read(folder: Path, tmp_path: Path) -> Any:
    return read_corpus(
        data_config(dataset="pairs", options={"saved": str(folder)}), tmp_path / "cache"
    )


def test_a_saved_dataset_reads_no_file_outside_of_its_folder(saved: Path, tmp_path: Path) -> None:
    (arrow,) = saved.glob("*.arrow")
    shutil.copy(arrow, tmp_path / "secret.arrow")
    edit(saved / "state.json", _data_files=[{"filename": "../secret.arrow"}])
    assert "names the file '../secret.arrow' outside of its folder" in refused(
        read, saved, tmp_path
    )


def test_a_link_in_a_saved_dataset_is_refused(saved: Path, tmp_path: Path) -> None:
    (arrow,) = saved.glob("*.arrow")
    arrow.rename(tmp_path / "secret.arrow")
    arrow.symlink_to(tmp_path / "secret.arrow")
    assert f"'{arrow.name}' is neither a regular file nor a folder" in refused(
        read, saved, tmp_path
    )


@pytest.mark.parametrize("name", ["state.json", "data-00000-of-00001.arrow"])
def test_a_pipe_in_a_saved_dataset_is_refused(name: str, saved: Path, tmp_path: Path) -> None:
    (saved / name).unlink()
    os.mkfifo(saved / name)
    assert f"'{name}' is neither a regular file nor a folder" in refused(read, saved, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_flipped_bits_of_a_saved_dataset_are_one_line(
    seed: int, saved: Path, tmp_path: Path
) -> None:
    (arrow,) = saved.glob("*.arrow")
    content, chance = bytearray(arrow.read_bytes()), random.Random(seed)
    for _ in range(3):
        content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
    arrow.write_bytes(content)
    try:
        found = f"{len(read(saved, tmp_path).pairs)} pairs"
    except HeadToHeadError as error:
        found = str(error)
    assert found == "40 pairs" or found.startswith(f"dataset '{saved}'")
    assert "\n" not in found


def tokenizer(normalizer: Any) -> Any:
    """Return a tokenizer.json of words with a normalizer."""
    words = {"[UNK]": 0, "[PAD]": 1, "[CLS]": 2, "[SEP]": 3, "a": 4}
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="[UNK]"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    made.normalizer = normalizer
    return made.to_str()


def test_a_normalizer_that_multiplies_a_text_is_refused() -> None:
    normalizers = tokenizers.normalizers
    doubled = normalizers.Sequence([normalizers.Replace("a", "aa")] * 40)
    with pytest.raises(
        HeadToHeadError, match=r"its normalizer can lengthen a text 1\.1e\+12 times, more than 100"
    ):
        load_tokenizer(tokenizer(doubled))
    usual = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁"), normalizers.NFKC()]
    )
    assert load_tokenizer(tokenizer(usual))


@pytest.mark.slow
def test_a_tokenizer_that_takes_too_long_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headtohead_judge.child.SECONDS", 2)
    slow = tokenizers.normalizers.Replace(tokenizers.Regex("a*a*a*b"), "")
    (tmp_path / "tokenizer.json").write_text(tokenizer(slow))
    (tmp_path / "pairs.tsv").write_text(
        "".join(f"{'a' * 100}cb {number}\ta\n" for number in range(2000))
    )
    vocabulary = {"file": str(tmp_path / "tokenizer.json")}
    config = data_config(
        dataset="pairs", options={"file": str(tmp_path / "pairs.tsv")}, vocabulary=vocabulary
    )
    with pytest.raises(
        HeadToHeadError, match=r"tokenizer\.json' cannot be read: the reader took more than 2 s"
    ):
        prepare(config, tmp_path / "cache")


PANIC = {"normalizer": {"type": "Precompiled", "precompiled_charsmap": "AAAA"}}
ABORT = {
    "model": {
        "type": "BPE",
        "vocab": {"a": 0, "é": 2, "ab": 4},
        "merges": [["a", "é"]],
        "dropout": None,
        "unk_token": "zz",
        "continuing_subword_prefix": "x",
    }
}


@case_table(
    ("change", "message"),
    [(PANIC, "PanicException: "), (ABORT, "the reader ended with ")],
    ids=["panic", "abort"],
    default=1,
)
def test_a_tokenizer_that_ends_its_reader_is_one_line(
    change: dict[str, Any], message: str, tmp_path: Path, cache: Path, refusal: Any
) -> None:
    content = json.loads(tokenizer(None)) | change
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    (tmp_path / "pairs.tsv").write_text(
        "".join(f"a {number}\tb {number}\n" for number in range(60))
    )
    data = {"dataset": "pairs", "file": "pairs.tsv", "vocabulary": {"file": "tokenizer.json"}}
    study = {"question": "x", "base": {"data": data, "train": {"steps": 1}}}
    (tmp_path / "study.json").write_text(json.dumps(study))
    line = refusal("plan", "study.json", H2H_CACHE=str(cache))
    assert f"data.vocabulary.file 'tokenizer.json' cannot be read: {message}" in line


def test_a_reader_does_not_import_from_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "json.py").write_text("raise SystemExit(9)")
    monkeypatch.chdir(tmp_path)
    assert call_in_child("data 'x'", "operator:add", 1, 2) == 3


@pytest.mark.parametrize("version", ["3.6.0", None])
def test_another_version_of_datasets_is_refused(
    version: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def found(name: str) -> str:
        if version is None:
            raise importlib.metadata.PackageNotFoundError(name)
        return version

    monkeypatch.setattr(importlib.metadata, "version", found)
    line = refused(read, tmp_path, tmp_path)
    assert f"require the package datasets 4 or later, found {version or 'none'}; " in line
