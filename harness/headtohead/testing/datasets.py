"""The contract suite of datasets: subclass it in a test file and name the dataset.

    class TestMyDataset(DatasetContract):
        @pytest.fixture
        def name(self):
            return "my-dataset"

The dataset must be registered (``headtohead.register``, an entry point, or a plugin file).
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest

from headtohead.data import hash_pairs, prepare_corpus
from headtohead.data.splits import PARTS
from headtohead.plugins.dataset import Corpus
from headtohead.plugins.registry import current
from headtohead.schema.run_config import NOTHING_HELD_OUT, DataConfig

COMPUTED_SPLITS = ("grouped", "row", NOTHING_HELD_OUT)
"""Splits that the harness computes; in all others the dataset assigns every pair to a part."""


class DatasetContract:
    """Requirements on the corpora of a dataset, one per split: override ``name``."""

    @pytest.fixture
    def name(self) -> str:
        """Return the name of the registered dataset."""
        raise NotImplementedError("override the fixture 'name'")

    @pytest.fixture
    def options(self) -> Mapping[str, Any]:
        """Return the options that differ from their defaults."""
        return {}

    @pytest.fixture
    def corpora(self, name: str, options: Mapping[str, Any]) -> Mapping[str, tuple[Corpus, Corpus]]:
        """Return two independently loaded corpora of every split."""
        dataset = current().dataset(name)
        return _load_twice(name, dataset.Options.model_validate(dict(options)).model_dump_json())

    def test_the_same_options_load_the_same_pairs(self, corpora: Mapping[str, tuple[Corpus, Corpus]]) -> None:
        """Loading again, with an empty cache, returns the same pairs in the same order."""
        for split, (corpus, again) in corpora.items():
            assert list(again.pairs) == list(corpus.pairs), split
            assert again.data_hash == corpus.data_hash, split

    def test_the_data_hash_is_the_hash_of_the_pairs(self, corpora: Mapping[str, tuple[Corpus, Corpus]]) -> None:
        """Different corpora must have different hashes, since the run hash depends on them."""
        for split, (corpus, _) in corpora.items():
            assert corpus.data_hash == hash_pairs(corpus.pairs), split

    def test_every_pair_has_a_group_and_two_texts_on_one_line(
        self, corpora: Mapping[str, tuple[Corpus, Corpus]]
    ) -> None:
        """No text is empty or contains a tab or line break, which separate fields in the cache."""
        for corpus, _ in corpora.values():
            assert corpus.pairs
            for pair in corpus.pairs:
                assert pair.group, pair
                for text in (pair.source, pair.target):
                    assert text.strip(), pair
                    assert not {"\n", "\r", "\t"} & set(text), pair

    def test_only_splits_of_the_dataset_assign_parts(self, corpora: Mapping[str, tuple[Corpus, Corpus]]) -> None:
        """Parts are train, valid and test; pairs of a split that the harness computes have none."""
        for split, (corpus, _) in corpora.items():
            parts = {pair.split for pair in corpus.pairs} - {None}
            assert parts <= set(PARTS), split
            if split in COMPUTED_SPLITS:
                assert not parts, split

    def test_no_group_is_in_two_parts(self, corpora: Mapping[str, tuple[Corpus, Corpus]]) -> None:
        """No test sentence has a paraphrase among the training sentences."""
        for split, (corpus, _) in corpora.items():
            parts: dict[str, set[str | None]] = {}
            for pair in corpus.pairs:
                parts.setdefault(pair.group, set()).add(pair.split)
            assert [group for group, in_parts in parts.items() if len(in_parts) > 1] == [], split

    def test_every_split_can_be_prepared(self, name: str, corpora: Mapping[str, tuple[Corpus, Corpus]]) -> None:
        """Training, validation and test part of every split contain pairs."""
        normalise = current().dataset(name).normalise
        for split, (corpus, _) in corpora.items():
            sizes = dict.fromkeys(("valid", "test"), max(1, len(corpus.pairs) // 10))
            prepared = prepare_corpus(corpus, DataConfig(dataset=name, split=split, normalise=normalise, **sizes))
            assert all(len(prepared.splits[part]) for part in PARTS), split

    def test_the_stamp_is_stable(self, name: str, options: Mapping[str, Any], tmp_path: Path) -> None:
        """`Dataset.stamp` returns the same value while the data is unchanged."""
        dataset = current().dataset(name)
        validated = dataset.Options.model_validate(dict(options))
        for split in dataset.splits:
            first, second = (dataset.cache_key(validated, split, tmp_path) for _ in range(2))
            assert first == second, split


@lru_cache(maxsize=16)
def _load_twice(name: str, options_json: str) -> Mapping[str, tuple[Corpus, Corpus]]:
    """Load every split of a dataset twice; cached, since every test uses the corpora."""
    dataset = current().dataset(name)
    options = dataset.Options.model_validate_json(options_json)
    with tempfile.TemporaryDirectory() as folder:
        first, second = Path(folder, "first"), Path(folder, "second")
        return {
            split: (dataset.load(options, split, first), dataset.load(options, split, second))
            for split in dataset.splits
        }
