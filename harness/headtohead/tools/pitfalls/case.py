"""A configuration with its data, if available, and its model at initialisation."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor

from headtohead import data
from headtohead.data import PreparedData
from headtohead.data.corpus import dataset_options, loaded_split, split_name
from headtohead.data.prepared import Ids
from headtohead.model.transformer import Transformer
from headtohead.plugins.dataset import Dataset
from headtohead.plugins.registry import Registry
from headtohead.schema.run_config import RunConfig
from headtohead.training.loop import split_tensors
from headtohead.training.tensors import SplitTensors

SEED = 1
WORDS = 1_000
"""Vocabulary size of each side where the data is not available."""

MOST_TOKENS = 12
"""Maximum tokens of the sentence used, boundary tokens included."""


class NotMeasuredError(Exception):
    """The data is not available; the message names what is missing."""


class Case:
    """The data and the model that pitfalls are measured on.

    The model has the configuration's own sizes and the initial weights of seed 1, in float64, so that
    differences of logits are not rounding errors.

    Args:
        config: A resolved configuration.
        registry: Where entries are looked up.
        cache: Folder of downloads and prepared data; nothing is downloaded.
    """

    def __init__(self, config: RunConfig, registry: Registry, cache: Path) -> None:
        self.config, self.registry, self.cache = config, registry, cache

    @cached_property
    def data(self) -> PreparedData:
        """The prepared data.

        Raises:
            NotMeasuredError: If it would have to be downloaded first.
        """
        self.require_data()
        return data.prepare(self.config.data, self.cache, registry=self.registry)

    def require_data(self) -> None:
        """Raise NotMeasuredError unless the dataset's files are available."""
        config = self.config.data
        dataset = self.registry.dataset(config.dataset)
        if dataset.cache_key.__func__ is Dataset.cache_key.__func__:  # type: ignore[attr-defined]
            return  # without a stamp, the dataset is generated or ships with its plugin
        options = dataset_options(config.dataset, dataset, config.options)
        split = loaded_split(dataset, split_name(config.dataset, dataset, config.split))
        if dataset.cache_key(options, split, self.cache / "downloads") is None:
            raise NotMeasuredError(
                f"no file: name one of {config.dataset} with --set data.file=PATH, or fetch it "
                f"with h2h data fetch {config.dataset}"
            )

    @property
    def has_data(self) -> bool:
        """Whether the data is available."""
        try:
            self.require_data()
        except NotMeasuredError:
            return False
        return True

    @cached_property
    def training(self) -> SplitTensors:
        """The training pairs as the training loop holds them."""
        return split_tensors(self.config, self.data, torch.device("cpu"))["train"]

    @cached_property
    def words(self) -> tuple[int, int]:
        """Sizes of the source and target vocabulary."""
        if not self.has_data:
            return WORDS, WORDS
        return len(self.data.source_vocabulary), len(self.data.target_vocabulary)

    @cached_property
    def model(self) -> Transformer:
        """The model at initialisation, in evaluation mode."""
        with torch.random.fork_rng(devices=[]):
            return Transformer(self.config, (SEED,), *self.words).double().eval()

    @cached_property
    def source(self) -> list[int]:
        """Ids of one training sentence; made-up ids where the data is not available."""
        if not self.has_data:
            return list(range(4, 10))
        return _ids(self.data.splits["train"].source[self._row])

    @cached_property
    def target(self) -> list[int]:
        """The decoder input of its translation."""
        if not self.has_data:
            return list(range(2, 8))
        target = _ids(self.data.splits["train"].target[self._row])
        return target if not self.config.quirks.shift_targets else target[:-1]

    @cached_property
    def _row(self) -> int:
        """The training pair with the longest source among the pairs of at most `MOST_TOKENS` tokens."""
        train = self.data.splits["train"]
        tokens = [max(len(train.source[row]), len(train.target[row])) for row in range(len(train))]
        fitting = [row for row, most in enumerate(tokens) if most <= MOST_TOKENS]
        return max(fitting or [0], key=lambda row: len(train.source[row]))

    @torch.no_grad()
    def logits(self, sources: Sequence[list[int]], targets: Sequence[list[int]]) -> Tensor:
        """Return logits ``[batch, time, vocab]`` of sentences in one batch, padded with id 0."""
        source, source_lengths = _padded(sources)
        target, target_lengths = _padded(targets)
        found: Tensor = self.model(source, source_lengths, target, target_lengths)
        return found[0]


def other_word(index: int, words: int) -> int:
    """Return another id of a vocabulary, and id 0 only if there is no other: it may be padding."""
    return index + 1 if index + 1 < words else max(index - 1, 0)


def _ids(sentence: Ids) -> list[int]:
    return [int(index) for index in sentence]


def _padded(sentences: Sequence[list[int]]) -> tuple[Tensor, Tensor]:
    lengths = torch.tensor([[len(ids) for ids in sentences]])
    longest = int(lengths.max())
    rows = [ids + [0] * (longest - len(ids)) for ids in sentences]
    return torch.tensor([rows]), lengths
