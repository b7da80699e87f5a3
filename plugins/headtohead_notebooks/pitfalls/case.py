"""A configuration with its data, if available, and its model at initialisation."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from headtohead import data
from headtohead.data import PreparedData
from headtohead.model.quirks import decoder_input_lengths
from headtohead.model.transformer import Transformer
from headtohead.schema.run_config import RunConfig
from headtohead.testing.checks.examination import MissingFilesError, require_files
from headtohead.training.loop import split_tensors
from headtohead.training.tensors import SplitTensors

Numbers = dict[str, float]
"""Measured numbers by name."""

SEED = 1
DEFAULT_VOCAB_SIZE = 1_000
"""Vocabulary size of each side if the data is not available."""

MAX_TOKENS = 12
"""Maximum length of the example sentence, boundary tokens included."""


class Case:
    """The data and the model that pitfalls are measured on.

    The model has the configuration's own sizes and the initial weights of seed 1. It computes in
    float64, so that differences of logits are not rounding errors.

    Args:
        config: A resolved configuration.
        cache: Folder of downloads and prepared data; nothing is downloaded.
    """

    def __init__(self, config: RunConfig, cache: Path) -> None:
        self.config = config
        self.cache = cache

    @cached_property
    def data(self) -> PreparedData:
        """The prepared data.

        Raises:
            MissingFilesError: If it would have to be downloaded first.
        """
        self.require_data()
        return data.prepare(self.config.data, self.cache)

    def require_data(self) -> None:
        """Raise MissingFilesError unless the dataset's files are available."""
        require_files(self.config.data, self.cache)

    @property
    def has_data(self) -> bool:
        """Whether the data is available."""
        try:
            self.require_data()
        except MissingFilesError:
            return False
        return True

    @cached_property
    def training_tensors(self) -> SplitTensors:
        """The training pairs as tensors of the training loop."""
        return split_tensors(self.config, self.data, torch.device("cpu"))["train"]

    @cached_property
    def vocab_sizes(self) -> tuple[int, int]:
        """Sizes of the source and target vocabularies."""
        if not self.has_data:
            return DEFAULT_VOCAB_SIZE, DEFAULT_VOCAB_SIZE
        return len(self.data.source_vocabulary), len(self.data.target_vocabulary)

    @cached_property
    def model(self) -> Transformer:
        """The model at initialisation, in evaluation mode."""
        with torch.random.fork_rng(devices=[]):
            return Transformer(self.config, (SEED,), *self.vocab_sizes).double().eval()

    @cached_property
    def source(self) -> list[int]:
        """Ids of one training sentence; invented ids if the data is not available."""
        if not self.has_data:
            return list(range(4, 10))
        train = self.data.splits["train"]
        source: list[int] = train.source[self._example_index].tolist()
        return source

    @cached_property
    def target(self) -> list[int]:
        """The decoder input for the translation of `source`."""
        if not self.has_data:
            return list(range(2, 8))
        train = self.data.splits["train"]
        target = train.target[self._example_index].tolist()
        inputs, _ = self.teacher_forcing(target)
        return inputs

    def teacher_forcing(self, target: list[int]) -> tuple[list[int], list[int]]:
        """Return the decoder input and the labels of a target sentence."""
        lengths = decoder_input_lengths(self.config, np.array([len(target)]))
        inputs = int(lengths[0])
        labels = target
        if inputs < len(target):
            labels = target[1:]
        return target[:inputs], labels

    @cached_property
    def _example_index(self) -> int:
        """The index of the training pair with the longest source of at most `MAX_TOKENS` tokens."""
        train = self.data.splits["train"]
        candidates = []
        for index, (source, target) in enumerate(zip(train.source, train.target, strict=True)):
            if max(len(source), len(target)) <= MAX_TOKENS:
                candidates.append(index)
        if not candidates:
            return 0
        return max(candidates, key=lambda index: len(train.source[index]))

    @torch.no_grad()
    def logits(self, sources: Sequence[list[int]], targets: Sequence[list[int]]) -> Tensor:
        """Return logits ``[batch, time, vocab]`` of sentences in one batch, padded with id 0."""
        source, source_lengths = _padded(sources)
        target, target_lengths = _padded(targets)
        logits: Tensor = self.model(source, source_lengths, target, target_lengths)
        return logits[0]

    def changes_by_target_token(self) -> list[list[float]]:
        """Return the largest change of a logit, ``[replaced target token, decoder position]``."""
        before = self.logits([self.source], [self.target])[0]
        changes = []
        # One sentence per pass: in a batch, equal rows may be rounded differently.
        for index, token in enumerate(self.target):
            target = list(self.target)
            target[index] = other_token(token, self.vocab_sizes[1])
            after = self.logits([self.source], [target])[0]
            differences = (after - before).abs()
            changes.append(differences.amax(-1).tolist())
        return changes


def other_token(token: int, vocab_size: int) -> int:
    """Return another id; id 0, which may be padding, only if there is no other."""
    if token + 1 < vocab_size:
        return token + 1
    return max(token - 1, 0)


def _padded(sentences: Sequence[list[int]]) -> tuple[Tensor, Tensor]:
    lengths = torch.tensor([[len(ids) for ids in sentences]])
    longest = int(lengths.max())
    rows = []
    for ids in sentences:
        padding = [0] * (longest - len(ids))
        rows.append(ids + padding)
    return torch.tensor([rows]), lengths
