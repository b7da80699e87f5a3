"""Subwords: learned on train only, or those of a ``tokenizer.json`` that the library tokenizers has trained."""

import json
import lzma
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tokenizers

import headtohead
from headtohead import HeadToHeadError
from headtohead.config.builder import resolve
from headtohead.config.identity import run_hash
from headtohead.data import UNK, prepare, prepare_corpus, preparing, read_corpus, subwords
from headtohead.data.vocabularies import read_tokenizer
from headtohead.data.vocabulary import SPECIALS
from headtohead.schema.run_config import DataConfig
from headtohead.testing.tiny import tiny_config
from made.data_section import data_config
from made.study import TINY, Study

PAIRS = 400
SPECIAL = ["[CLS]", "[SEP]", "[UNK]", "[PAD]"]


@pytest.fixture(
    scope="module", params=["generated", pytest.param("Tatoeba", marks=pytest.mark.slow)]
)
def lines(
    request: pytest.FixtureRequest,
    real: Callable[[str], Path],
    tmp_path_factory: pytest.TempPathFactory,
) -> list[str]:
    """Pairs with capitals and punctuation: generated ones, or the first of a file of Tatoeba."""
    if request.param == "generated":
        pairs = read_corpus(
            data_config(dataset="toy-grammar"), tmp_path_factory.mktemp("cache")
        ).pairs[:PAIRS]
        return [f"{pair.source.capitalize()}.\t¡{pair.target.capitalize()}!" for pair in pairs]
    with lzma.open(
        real("eng-spa.manythings-2019-07-21.2col.tsv.xz"), "rt", encoding="utf-8"
    ) as file:
        return [next(file).rstrip("\n") for _ in range(PAIRS)]


def word_piece(lines: list[str], path: Path, special: list[str] = SPECIAL, size: int = 300) -> Path:
    """Train a lower-casing WordPiece tokenizer with a post-processor, and save it."""
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = tokenizers.normalizers.Lowercase()
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer.decoder = tokenizers.decoders.WordPiece()
    trainer = tokenizers.trainers.WordPieceTrainer(
        vocab_size=size, special_tokens=special, show_progress=False
    )
    tokenizer.train_from_iterator((text for line in lines for text in line.split("\t")), trainer)
    if {"[CLS]", "[SEP]"} <= set(special):
        tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
            single="[CLS] $A [SEP]",
            special_tokens=[(name, special.index(name)) for name in ("[CLS]", "[SEP]")],
        )
    tokenizer.enable_padding(length=50, pad_token="[PAD]")
    tokenizer.enable_truncation(5)
    tokenizer.save(str(path))
    return path


def byte_level(lines: list[str], path: Path) -> Path:
    """Train a byte-level BPE tokenizer, which has no unknown token, and save it."""
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=["<s>", "</s>", "<pad>"],
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator((text for line in lines for text in line.split("\t")), trainer)
    tokenizer.save(str(path))
    return path


@pytest.fixture
def folder(lines: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of pairs and a tokenizer; data are prepared in this process, except for the study."""

    def call(subject: str, function: str, *arguments: Any) -> None:
        preparing.prepare_and_save(*json.loads(json.dumps(arguments)))

    monkeypatch.setattr(preparing, "call_in_child", call)
    (tmp_path / "pairs.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    word_piece(lines, tmp_path / "tokenizer.json")
    return tmp_path


def configuration(folder: Path, file: str = "tokenizer.json", **vocabulary: Any) -> DataConfig:
    """Return the ``data`` section of an experiment in the folder."""
    data = {
        "dataset": "pairs",
        "file": str(folder / "pairs.tsv"),
        "columns": [1, 2],
        "normalise": "none",
        "vocabulary": {"file": str(folder / file), **vocabulary.pop("vocabulary", {})},
        **vocabulary,
    }
    return resolve({"data": data, "train": {"steps": 1}}).data


def test_ids_and_text_are_those_of_the_tokenizer(folder: Path, cache: Path) -> None:
    data = prepare(configuration(folder), cache)
    original = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    original.no_padding()
    original.no_truncation()
    cls, sep = (original.token_to_id(name) for name in ("[CLS]", "[SEP]"))
    vocabulary = data.target_vocabulary
    ids = [original.token_to_id(name) for name in ("[PAD]", "[UNK]", "[CLS]", "[SEP]")]
    assert [vocabulary.pad, vocabulary.unk, vocabulary.sos, vocabulary.eos] == ids
    assert len(vocabulary) == original.get_vocab_size()
    for split in data.splits.values():
        for found, text in zip(split.target, split.target_text, strict=True):
            expected = original.encode(text, add_special_tokens=False).ids
            assert found.tolist() == [cls, *expected, sep]
            assert data.tokenisers["target"].decode(found) == original.decode(expected)
        for found, text in zip(split.source, split.source_text, strict=True):
            assert found.tolist() == [*original.encode(text, add_special_tokens=False).ids, sep]


def test_byte_level_text_survives_without_an_unknown_token(
    folder: Path, lines: list[str], cache: Path
) -> None:
    byte_level(lines, folder / "bytes.json")
    data = prepare(configuration(folder, "bytes.json", vocabulary={"unknown": "refuse"}), cache)
    assert data.target_vocabulary.unk is None
    for text in ("¿Qué? 日本語 🙂", *data.splits["test"].target_text):
        assert data.decode(data.tokenise(text, "target")) == " ".join(text.split())
    assert not any("cannot reproduce" in note for note in data.record["notes"])


def test_references_that_the_tokenizer_changes_are_counted(folder: Path, cache: Path) -> None:
    data = prepare(configuration(folder), cache)
    test, decode = data.splits["test"], data.decode
    by_source = {
        source: (decode(ids), accepted)
        for source, ids, accepted in zip(
            test.source_text, test.target, test.references, strict=True
        )
    }
    changed = sum(text not in accepted for text, accepted in by_source.values())
    (note,) = (note for note in data.record["notes"] if "cannot reproduce" in note)
    assert note.startswith(
        f"the vocabulary cannot reproduce the references of {changed} of {len(by_source)} test sentences, for example '"
    )
    assert "; set data.normalise as the tokenizer normalises, or check the split" in note
    assert changed > 0


def test_the_content_is_part_of_the_run_hash_and_the_path_is_not(
    folder: Path, lines: list[str], cache: Path
) -> None:
    def hashed(name: str) -> str:
        config = configuration(folder, name)
        run = tiny_config().model_copy(update={"data": config})
        return run_hash(run, 1, prepare(config, cache).data_hash)

    first = hashed("tokenizer.json")
    (folder / "copy.json").write_bytes((folder / "tokenizer.json").read_bytes())
    assert hashed("copy.json") == first
    word_piece(lines, folder / "tokenizer.json", size=280)  # the same path
    assert hashed("tokenizer.json") != first


def test_named_special_tokens_are_used(folder: Path, lines: list[str], cache: Path) -> None:
    word_piece(lines, folder / "named.json", ["[UNK]", "NOTHING", "BEGIN", "END"])
    names = {"pad": "NOTHING", "bos": "BEGIN", "eos": "END"}
    data = prepare(configuration(folder, "named.json", vocabulary={"special_tokens": names}), cache)
    vocabulary = data.source_vocabulary
    assert [vocabulary.unk, vocabulary.pad, vocabulary.sos, vocabulary.eos] == [0, 1, 2, 3]
    assert set(SPECIALS) <= set(vocabulary.words)
    assert data.decode(data.tokenise("Go.", "source"), "source") == "go."


@pytest.mark.parametrize(
    ("vocabulary", "message"),
    [
        ({"file": "missing.json"}, "missing.json' does not exist"),
        ({"file": "pairs.tsv"}, "pairs.tsv' is not a tokenizer.json"),
        ({"file": "bare.json"}, "name its token in data.vocabulary.special_tokens.pad"),
        ({"file": "bytes.json"}, "special_tokens.unk, or set data.vocabulary.unknown: refuse"),
        ({"special_tokens": {"bos": "[CLSS]"}}, "has no token '[CLSS]'; did you mean '[CLS]'?"),
        ({"special_tokens": {"bos": "[SEP]"}}, "but found pad: [PAD], unk: [UNK], bos: [SEP]"),
        ({"max_size": 100}, "leave out data.vocabulary.max_size"),
        ({"ids": "frequency"}, "leave out data.vocabulary.ids"),
    ],
)
def test_wrong_files_and_names_are_errors(
    vocabulary: dict[str, Any], message: str, folder: Path, lines: list[str]
) -> None:
    byte_level(lines, folder / "bytes.json")
    word_piece(lines, folder / "bare.json", ["[UNK]"])
    others = {name: value for name, value in vocabulary.items() if name != "file"}
    with pytest.raises(HeadToHeadError, match=re.escape(message)) as caught:
        read_tokenizer(
            configuration(folder, vocabulary.get("file", "tokenizer.json"), vocabulary=others)
        )
    assert "\n" not in str(caught.value)


@pytest.mark.slow
@pytest.mark.usefixtures("without_figures")
def test_a_study_trains_on_the_tokenizer_and_its_export_needs_no_file(
    folder: Path, cache: Path, h2h_here: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    vocabulary = {"file": "tokenizer.json", "shared": True}
    data = {"dataset": "pairs", "file": "pairs.tsv", "columns": [1, 2], "vocabulary": vocabulary}
    study = Study(folder, cache, h2h_here, TINY | {"base": TINY["base"] | {"data": data}})
    study.write(
        base={"model": {"tie_embeddings": "all"}, "train": {"steps": 4, "evaluate_every": 4}},
        seeds=1,
    )
    study.run()
    (scores,) = study.scores().values()
    assert "test/bleu" in scores
    monkeypatch.setenv("H2H_CACHE", str(cache))
    monkeypatch.chdir(folder)
    (run,) = study.directories()
    sentences = ["Go.", "I love you."]
    expected = headtohead.load(run).translate(sentences)
    headtohead.export(run, folder / "model")
    (folder / "tokenizer.json").unlink()
    monkeypatch.setenv("H2H_CACHE", str(folder / "none"))
    assert headtohead.load(folder / "model").translate(sentences) == expected
    with pytest.raises(HeadToHeadError, match=r"tokenizer\.json' does not exist"):
        headtohead.load(run)


ROWS = [(f"unhappy reader {n} reads", f"lecteur malheureux {n} lisant") for n in range(40)]


def learned(**fields: object) -> DataConfig:
    return data_config(
        split="grouped", normalise="unicode", tokens="subword", valid=2, test=2, **fields
    )


def test_decoding_inverts_encoding_of_known_letters(make_corpus: Callable) -> None:
    data = prepare_corpus(make_corpus(*ROWS), learned(vocabulary={"max_size": 60}))
    assert max(data.record["vocabulary"].values()) <= 60
    for text in ("unhappy reader 7 reads", "read happy unread"):
        ids = data.tokenise(text, "source")
        assert UNK not in ids
        assert data.tokenisers["source"].decode(ids) == text


def test_merges_come_from_train_only(make_corpus: Callable) -> None:
    rows = [*ROWS, ("zzzz zzzz zzzz", "qqqq qqqq qqqq", "zz", "test")]
    corpus = make_corpus(*[row if len(row) == 4 else (*row, row[0], None) for row in rows])
    data = prepare_corpus(corpus, learned())
    assert not any("z" in word for word in data.source_vocabulary.words)
    assert data.tokenisers["source"].decode(data.splits["test"].source[0].tolist()) == " ".join(
        ["<unk>"] * 3
    )


def test_characters_need_no_library_and_give_the_text_back(
    make_corpus: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    config = learned(vocabulary={"min_count": 99}).model_copy(update={"tokens": "character"})
    data = prepare_corpus(make_corpus(*ROWS), config)
    split = data.splits["train"]
    for ids, text in zip(split.source, split.source_text, strict=True):
        assert len(ids) == len(text) + 1
        assert data.tokenisers["source"].decode(ids.tolist()) == text
    assert {*data.source_vocabulary.words[4:]} == {*"".join(split.source_text).replace(" ", "▁")}


def test_a_shared_subword_vocabulary_has_one_set_of_merges(make_corpus: Callable) -> None:
    data = prepare_corpus(make_corpus(*ROWS), learned(vocabulary={"shared": True, "max_size": 80}))
    assert data.source_vocabulary is data.target_vocabulary
    assert (
        data.tokenise("lecteur reader", "source")[:-1]
        == data.tokenise("lecteur reader", "target")[1:-1]
    )


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(HeadToHeadError, match="tokenizers; run pip install tokenizers"):
        subwords.learn(["a text"], size=8, min_count=1)
