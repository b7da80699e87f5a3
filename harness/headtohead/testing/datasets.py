"""The contract suite of datasets: subclass it in a test file and name the dataset.

    class TestMyDataset(DatasetContract):
        @pytest.fixture
        def name(self):
            return "my-dataset"

The entry must be registered (``headtohead.register``, an entry point, or a plugin file).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import pytest

from headtohead.data import PreparedData, hash_pairs, prepare_corpus
from headtohead.data.splits import PARTS
from headtohead.plugins.dataset import Corpus, Dataset
from headtohead.plugins.entry import Options
from headtohead.plugins.registry import registered
from headtohead.schema.run_config import NOTHING_HELD_OUT, DataConfig

DRAWN = ("grouped", "row", NOTHING_HELD_OUT)
"""Splits that the harness draws by itself."""


class DatasetContract:
    """What a corpus must be, in every split that the dataset offers: override ``name``."""

    @pytest.fixture
    def name(self) -> str:
        """Return the name of the registered dataset."""
        raise NotImplementedError("override the fixture 'name'")

    @pytest.fixture
    def given(self) -> Mapping[str, Any]:
        """Return options other than the defaults."""
        return {}

    @pytest.fixture
    def dataset(self, name: str) -> type[Dataset]:
        return cast("type[Dataset]", registered("dataset", name))

    @pytest.fixture
    def options(self, dataset: type[Dataset], given: Mapping[str, Any]) -> Options:
        return dataset.Options.model_validate(dict(given))

    @pytest.fixture
    def corpora(self, dataset: type[Dataset], options: Options, tmp_path: Path) -> Mapping[str, Corpus]:
        """Return the corpus of every split."""
        return {split: dataset.load(options, split, tmp_path) for split in dataset.splits}

    def test_the_same_options_give_the_same_pairs(
        self, dataset: type[Dataset], options: Options, corpora: Mapping[str, Corpus], tmp_path: Path
    ) -> None:
        """A second reading, with another cache, gives the same pairs in the same order."""
        for split, corpus in corpora.items():
            again = dataset.load(options, split, tmp_path / "another")
            assert list(again.pairs) == list(corpus.pairs), split
            assert again.data_hash == corpus.data_hash, split

    def test_the_fingerprint_is_that_of_the_pairs(self, corpora: Mapping[str, Corpus]) -> None:
        """Runs are told apart by it: two corpora that differ must not share one."""
        for split, corpus in corpora.items():
            assert corpus.data_hash == hash_pairs(corpus.pairs), split

    def test_every_pair_has_two_sides_of_one_line(self, corpora: Mapping[str, Corpus]) -> None:
        """Texts are not empty and hold no line end and no tab, which tables are made with."""
        for corpus in corpora.values():
            for pair in corpus.pairs:
                for text in (pair.source, pair.target):
                    assert text.strip(), pair
                    assert not {"\n", "\r", "\t"} & set(text), pair

    def test_named_parts_are_train_valid_and_test(self, corpora: Mapping[str, Corpus]) -> None:
        """A split of the dataset's own names at least one part; a drawn one names none."""
        for split, corpus in corpora.items():
            named = {pair.split for pair in corpus.pairs} - {None}
            assert named <= set(PARTS), split
            if split in DRAWN:
                assert not named, split

    def test_no_group_is_on_both_sides_of_a_named_split(self, corpora: Mapping[str, Corpus]) -> None:
        """What is tested is not among what is trained on, in other words."""
        for split, corpus in corpora.items():
            test = {pair.group for pair in corpus.pairs if pair.split == "test"}
            rest = {pair.group for pair in corpus.pairs if pair.split != "test"}
            assert not test & rest, split

    def test_every_split_can_be_trained_and_tested(
        self, name: str, dataset: type[Dataset], options: Options, corpora: Mapping[str, Corpus]
    ) -> None:
        """Each split prepares, and all of its parts hold pairs."""
        for split, corpus in corpora.items():
            prepared = self.prepared(name, dataset, split, corpus)
            assert all(len(prepared.splits[part]) for part in PARTS), split

    def test_the_mark_of_prepared_data_stays(self, dataset: type[Dataset], options: Options, tmp_path: Path) -> None:
        """What ``stamp`` says does not change while nothing else does."""
        for split in dataset.splits:
            marks = [dataset.stamp(options, split, tmp_path) for _ in range(2)]
            assert marks[0] == marks[1], split

    @staticmethod
    def prepared(name: str, dataset: type[Dataset], split: str, corpus: Corpus) -> PreparedData:
        """Return a corpus as training gets it."""
        config = DataConfig(dataset=name, split=split, normalise=dataset.normalise)
        return prepare_corpus(corpus, config)
