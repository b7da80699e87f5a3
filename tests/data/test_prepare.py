"""Preparation of data: dropping, limits, splits, encoding, records and the cache."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from headtohead.data import UNK, prepare, prepare_corpus
from headtohead.errors import HeadToHeadError
from headtohead.plugins.dataset import Corpus, Pair, hash_pairs
from headtohead.plugins.registry import find_dataset
from headtohead.schema.run_config import DataConfig
from headtohead.storage.experiment import leaked_validation
from headtohead_plugins.datasets.toy import lexicon
from headtohead_plugins.datasets.toy_grammar import ToyGrammar
from made import refused
from made.data_section import data_config
from made.texts import random_texts


def config(**fields: Any) -> DataConfig:
    return data_config(
        **({"split": "grouped", "normalise": "unicode", "valid": 1, "test": 1} | fields)
    )


def other_notes(record: dict[str, Any]) -> list[str]:
    """Return the notes without removed characters and the ceiling of exact match."""
    return [
        note for note in record["notes"] if "cannot exceed" not in note and "removes" not in note
    ]


@pytest.fixture
def small(make_corpus: Callable) -> Corpus:
    return make_corpus(*[(f"Word {n} here", f"Mot {n} ici") for n in range(20)])


def test_the_vocabulary_comes_from_train_only(small: Corpus) -> None:
    data = prepare_corpus(small, config())
    (test,) = data.splits["test"].source_text
    number = test.split()[1]
    assert number not in data.source_vocabulary.words
    assert data.splits["test"].source[0].tolist().count(UNK) == 1
    assert data.record["unk_rate"]["test"]["source"] == pytest.approx(1 / 3)
    assert data.record["unk_rate"]["train"] == {"source": 0.0, "target": 0.0}


def test_empty_one_sided_and_long_pairs_are_dropped_and_counted(make_corpus: Callable) -> None:
    rows = [(f"a{n}", f"b{n}") for n in range(10)]
    faulty = [("", ""), ("...", "?!"), ("only", ""), ("", "seul"), ("only", "!"), ("a b c d", "x")]
    data = prepare_corpus(make_corpus(*rows, *faulty), config(max_words=3))
    assert data.record["dropped"] == {"empty": 2, "one_sided": 3, "too_long": 1}
    assert sum(data.record["counts"].values()) == 10
    assert "3 one-sided pairs were dropped" in data.record["notes"]


def test_data_without_remaining_pairs_are_refused_with_the_counts(make_corpus: Callable) -> None:
    with pytest.raises(
        HeadToHeadError, match=r"no usable pair .*\(dropped: 1 empty, 2 one-sided\); check the file"
    ):
        prepare_corpus(make_corpus(("", ""), ("a", ""), ("", "b")), config())
    with pytest.raises(HeadToHeadError, match=r"no usable pair .* \(dropped: none\)"):
        prepare_corpus(make_corpus(), config())
    with pytest.raises(HeadToHeadError, match=r"dropped: 1 too-long"):
        prepare_corpus(make_corpus(("a b", "c")), config(max_words=1))


def test_a_limit_selects_shuffled_pairs_and_a_larger_limit_includes_them(small: Corpus) -> None:
    def sources_within(limit: int) -> set[str]:
        data = prepare_corpus(small, config(limit=limit))
        return {text for split in data.splits.values() for text in split.source_text}

    assert len(sources_within(6)) == 6
    assert sources_within(6) < sources_within(12)
    assert sources_within(6) != {f"word {n} here" for n in range(6)}


def test_all_translations_of_a_test_source_are_references(make_corpus: Callable) -> None:
    pairs = [("Go!", "Ve."), ("Go.", "Vete."), ("go", "ve"), ("Go.", "Vaya.")]
    rows = [(source, target, "go", "test") for source, target in pairs]
    data = prepare_corpus(make_corpus(*rows, *[(f"x {n}", f"y {n}") for n in range(8)]), config())
    assert data.splits["test"].source_text == ["go"] * 4
    assert data.splits["test"].references == [
        ("ve", "vete", "vaya"),
        ("vete", "ve", "vaya"),
        ("ve", "vete", "vaya"),
        ("vaya", "ve", "vete"),
    ]
    train = data.splits["train"]
    assert train.references == [(text,) for text in train.target_text]


def test_references_include_pairs_beyond_the_limit(make_corpus: Callable) -> None:
    rows = [("go", f"ve {n}") for n in range(30)] + [(f"x{n}", f"y{n}") for n in range(30)]
    data = prepare_corpus(make_corpus(*rows), config(limit=6, test=3, split="row"))
    own = [
        r
        for s, r in zip(
            data.splits["test"].source_text, data.splits["test"].references, strict=True
        )
        if s == "go"
    ]
    assert all(len(references) == 30 for references in own)


def test_a_unit_of_a_text_is_refused_for_pairs_and_normalised_texts(make_corpus: Callable) -> None:
    corpus = replace(make_corpus(("a", "b")), unit="text-byte")
    message = r"has the unit 'text-byte' of a text; set has_sources=False in its corpus, and data.normalise: none"
    for has_sources, normalise in ((True, "none"), (False, "unicode")):
        with pytest.raises(HeadToHeadError, match=message):
            prepare_corpus(replace(corpus, has_sources=has_sources), config(normalise=normalise))


def test_the_record_of_a_row_split_measures_its_leak(make_corpus: Callable) -> None:
    rows = [(f"a{n // 4}", f"b{n}") for n in range(40)]
    record = prepare_corpus(make_corpus(*rows), config(split="row", valid=10, test=10)).record
    assert record["leaky"] is True
    assert record["leak"] > 0.5
    assert record["leaked_shares"].keys() == {"examples", "tokens"}
    assert record["leaked_shares"]["tokens"] == pytest.approx(
        record["leak"]
    )  # every target has one word
    in_train, in_test = leaked_validation(record)
    assert in_train.clause.endswith("in training, so the validation loss measures memorisation too")
    assert in_test.clause.endswith(
        "in the test set, so checkpoints are selected on test examples too"
    )
    grouped = prepare_corpus(make_corpus(*rows), config(valid=4, test=10)).record
    assert (grouped["leak"], grouped["leaky"]) == (0.0, False)
    (note,) = other_notes(grouped)
    assert note.startswith("2 of 2 test sources have several targets in the data")
    assert grouped["valid_leaks"] == {"train": 0.0, "test": 0.0}
    everything = prepare_corpus(make_corpus(*rows), config(split="nothing-held-out")).record
    assert everything["valid_leaks"] == {"train": 1.0, "test": 1.0}
    assert leaked_validation(everything) == []


@pytest.mark.parametrize(
    ("source", "target", "leaky"),
    [("a{0}", "b", False), ("go", "b{0}", False), ("go", "b{1}", True)],
    ids=[
        "distinct sources",
        "a constant source, distinct targets",
        "a constant source, repeated targets",
    ],
)
def test_a_row_split_is_leaky_only_with_a_measured_leak(
    make_corpus: Callable, source: str, target: str, leaky: bool
) -> None:
    rows = [(source.format(n), target.format(n, n // 4)) for n in range(40)]
    record = prepare_corpus(make_corpus(*rows), config(split="row", test=10)).record
    assert (record["leaky"], record["leak"] > 0) == (leaky, leaky)


def test_the_record_counts_what_normalisation_removes_and_shows_an_example(
    make_corpus: Callable,
) -> None:
    rows = [(f"{n} + {n} - 1", f"-{n}") for n in range(30)] + [
        (f"{n} plus {n}", "it's") for n in range(10)
    ]
    notes = prepare_corpus(make_corpus(*rows), config()).record["notes"]
    assert (
        "data.normalise: unicode removes characters from 30 of 40 pairs, for example "
        "'0 + 0 - 1' becomes '0 0 1'; set data.normalise: none to keep them"
    ) in notes
    notes = prepare_corpus(make_corpus(*rows), config(normalise="none")).record["notes"]
    assert not any("removes" in note for note in notes)


def test_the_record_has_the_true_ceiling_of_exact_match(make_corpus: Callable) -> None:
    rows = [(f"a {n}", f"b {n}", f"{n}", "test" if n < 4 else "train") for n in range(12)]
    rows += [
        ("a 4 4", "b 4", "x", "test"),
        ("a 4 4", "b 99", "x", "test"),
        ("a 5", "b 5", "y", "valid"),
    ]
    record = prepare_corpus(make_corpus(*rows), config()).record
    assert record["vocabulary_upper_bound"] == pytest.approx(1 / 5)  # "a 4 4" accepts "b 4"
    assert (
        "the vocabulary cannot reproduce the references of 4 of 5 test sentences, for example 'b 0', so exact match "
        "cannot exceed 0.200; 41.7 % of the target tokens and 28.6 % of the source tokens of test are unknown; use "
        "data.tokens: subword, or check the split"
    ) in record["notes"]
    known = [("a b", "c d", f"{n}", part) for n, part in enumerate(["train", "valid", "test"])]
    record = prepare_corpus(make_corpus(*known), config()).record
    assert record["vocabulary_upper_bound"] == 1.0
    assert not any("cannot exceed" in note for note in record["notes"])


def test_a_giant_group_is_reported(make_corpus: Callable) -> None:
    rows = [("same", f"b{n}") for n in range(60)] + [(f"a{n}", f"c{n}") for n in range(40)]
    record = prepare_corpus(make_corpus(*rows), config(test=5)).record
    assert other_notes(record) == [
        "the largest group of connected sentences holds 60.0 % of the pairs; it is too large for "
        "valid and test and is in train"
    ]


ROWS = st.lists(
    st.tuples(
        random_texts("aB .", max_size=3),
        random_texts("xY !", max_size=3),
        st.sampled_from("123456789"),
    ),
    min_size=12,
    max_size=40,
)


@given(rows=ROWS, seed=st.integers(1, 99), name=st.sampled_from(["none", "unicode", "ascii-fold"]))
def test_grouped_splits_never_leak(rows: list[tuple[str, str, str]], seed: int, name: str) -> None:
    pairs = [Pair(source, target, source + group) for source, target, group in rows]
    corpus = Corpus(pairs, "", "", ("a", "b"))
    try:
        data = prepare_corpus(corpus, config(seed=seed, normalise=name))
    except HeadToHeadError as error:
        assume(not re.search("leaves no pair|no usable pair", str(error)))
        raise
    assert data.record["leak"] == 0.0
    train, test = data.splits["train"], data.splits["test"]
    assert not set(train.source_text) & set(test.source_text)
    assert not set(train.target_text) & {t for accepted in test.references for t in accepted}


def test_the_data_hash_depends_on_every_field_that_changes_the_ids(small: Corpus) -> None:
    hashes = {
        prepare_corpus(small, variant).data_hash
        for variant in (
            config(),
            config(seed=2),
            config(limit=10),
            config(normalise="none"),
            config(test=2),
            config(vocabulary={"max_size": 9}),
        )
    }
    assert len(hashes) == 6
    assert prepare_corpus(small, config()).data_hash in hashes


def test_the_data_hash_does_not_change_between_versions(make_corpus: Callable) -> None:
    rows = [(f"a{n} b", f"c{n} d") for n in range(10)]
    assert prepare_corpus(make_corpus(*rows), config()).data_hash == (
        "760be98a6d0f984e6cc5c186f647457026d269de165e2734dc9cde8bc9ea10a8"
    )


TOY = {"dataset": "toy-grammar", "options": {"size": 500}}


def test_prepared_data_are_read_from_the_cache(tmp_path: Path) -> None:
    first = prepare(data_config(**TOY), tmp_path)
    (file,) = (tmp_path / "prepared").glob("[!.]*")
    before = file.stat()
    second = prepare(data_config(**TOY), tmp_path)
    assert file.stat().st_mtime_ns == before.st_mtime_ns
    assert second.record == first.record
    assert second.data_hash == first.data_hash
    assert second.source_vocabulary == first.source_vocabulary
    for part in ("train", "valid", "test"):
        written, loaded = first.splits[part], second.splits[part]
        assert all(np.array_equal(a, b) for a, b in zip(written.source, loaded.source, strict=True))
        assert all(np.array_equal(a, b) for a, b in zip(written.target, loaded.target, strict=True))
        assert (written.source_text, written.target_text) == (
            loaded.source_text,
            loaded.target_text,
        )
        assert written.references == loaded.references


def test_a_changed_lexicon_is_prepared_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = ToyGrammar.cache_key(ToyGrammar.Options(), "iid", tmp_path)
    changed = tmp_path / "lexicon.json"
    changed.write_bytes(lexicon.FILE.read_bytes() + b" ")
    monkeypatch.setattr(lexicon, "FILE", changed)
    assert ToyGrammar.cache_key(ToyGrammar.Options(), "iid", tmp_path) != key


def test_a_file_with_changed_content_is_prepared_again(tmp_path: Path) -> None:
    file = tmp_path / "pairs.tsv"

    def vocabulary_of_train() -> set[str]:
        pairs = data_config(dataset="tatoeba", options={"file": str(file)}, valid=1, test=1)
        splits = prepare(pairs, tmp_path / "cache").splits
        return {text for split in splits.values() for text in split.source_text}

    file.write_text("a\tx\nb\ty\nc\tz\n")
    assert vocabulary_of_train() == {"a", "b", "c"}
    file.write_text("a\tx\nb\ty\nd\tz\n")
    assert vocabulary_of_train() == {"a", "b", "d"}


def test_a_dataset_without_a_cache_key_is_loaded_each_time_but_prepared_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset, loads = find_dataset("notebook-en-fr"), []
    load = dataset.load
    monkeypatch.setattr(
        dataset, "load", lambda *arguments: loads.append(arguments) or load(*arguments)
    )
    config = data_config(dataset="notebook-en-fr", split="nothing-held-out")
    first, second = (prepare(config, tmp_path) for _ in range(2))
    assert len(loads) == 2
    assert first.data_hash == second.data_hash
    assert len(list((tmp_path / "prepared").glob("[!.]*"))) == 1
    monkeypatch.setattr(
        dataset, "load", lambda *arguments: replace(load(*arguments), licence="CC0")
    )
    assert prepare(config, tmp_path).record["licence"] == "CC0", "the same pairs with another field"


def test_an_unwritable_cache_and_a_full_disk_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("in the way")
    line = refused(prepare, data_config(**TOY), tmp_path / "file")
    assert line.startswith(
        f"cannot write to '{tmp_path}/file/prepared' (Not a directory); set H2H_CACHE "
    )

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("headtohead.data.store.np.savez", full)
    assert "(No space left on device); set H2H_CACHE to a writable folder" in refused(
        prepare, data_config(**TOY), tmp_path
    )
    assert not list((tmp_path / "prepared").glob("[!.]*"))


def test_sentences_that_look_the_same_are_one_source(make_corpus: Callable) -> None:
    """A composed and a decomposed letter, and a zero-width space, have the same appearance."""
    rows = []
    for number in range(20):
        rows += [(f"café {number}", f"x{number}"), (f"cafe\u0301 {number}\u200b", f"y{number}")]
    corpus = make_corpus(*rows)
    by_row = prepare_corpus(corpus, config(split="row", normalise="none", valid=5, test=10)).record
    assert by_row["leak"] > 0.3
    grouped = prepare_corpus(corpus, config(normalise="none", valid=4, test=10)).record
    assert grouped["leak"] == 0.0


def test_the_pairs_of_an_iterator_are_kept() -> None:
    pairs = [Pair(f"a {n}", f"b {n}", group=str(n)) for n in range(3)]
    corpus = Corpus(iter(pairs), "CC0", "nobody", ("a", "b"))
    assert list(corpus.pairs) == pairs
    assert corpus.data_hash == hash_pairs(pairs)
