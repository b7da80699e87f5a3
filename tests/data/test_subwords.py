"""Subwords: learned on train only, and joined into the original text."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest

from headtohead.data import UNK, prepare_corpus
from headtohead.errors import HeadToHeadError
from headtohead.schema.run_config import DataConfig
from headtohead.testing.tiny import data_config

ROWS = [(f"unhappy reader {n} reads", f"lecteur malheureux {n} lisant") for n in range(40)]


def config(**fields: object) -> DataConfig:
    return data_config(split="grouped", normalise="unicode", tokens="subword", valid=2, test=2, **fields)


def test_decoding_inverts_encoding_of_known_letters(make_corpus: Callable) -> None:
    data = prepare_corpus(make_corpus(*ROWS), config(vocabulary={"max_size": 60}))
    assert max(data.record["vocabulary"].values()) <= 60
    for text in ("unhappy reader 7 reads", "read happy unread"):
        ids = data.tokenise(text, "source")
        assert UNK not in ids
        assert data.source_vocabulary.decode(ids) == text


def test_merges_come_from_train_only(make_corpus: Callable) -> None:
    rows = [*ROWS, ("zzzz zzzz zzzz", "qqqq qqqq qqqq", "zz", "test")]
    corpus = make_corpus(*[row if len(row) == 4 else (*row, row[0], None) for row in rows])
    data = prepare_corpus(corpus, config())
    assert not any("z" in word for word in data.source_vocabulary.words)
    assert data.source_vocabulary.decode(data.splits["test"].source[0].tolist()) == " ".join(["<unk>"] * 3)


def test_a_shared_subword_vocabulary_has_one_set_of_merges(make_corpus: Callable) -> None:
    data = prepare_corpus(make_corpus(*ROWS), config(vocabulary={"shared": True, "max_size": 80}))
    assert data.source_vocabulary is data.target_vocabulary
    assert data.tokenise("lecteur reader", "source")[:-1] == data.tokenise("lecteur reader", "target")[1:-1]


def test_without_the_library_the_extra_is_named(make_corpus: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(HeadToHeadError, match=r"require the package tokenizers; pip install 'headtohead\[subwords\]'$"):
        prepare_corpus(make_corpus(*ROWS), config())
