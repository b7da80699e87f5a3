"""Splits as tensors: decoder inputs and labels, and batches with and without padding."""

import numpy as np
import pytest
import torch

from headtohead.data import Split
from headtohead.data.vocabulary import EOS, SOS
from headtohead.model.batch import IGNORE_INDEX
from headtohead.training.tensors import SplitTensors

SOURCES = [[5, 6, EOS], [7, EOS], [5, 7, 8, EOS], [9, EOS]]
TARGETS = [[SOS, 4, EOS], [SOS, 4, 5, 6, EOS], [SOS, 7, EOS], [SOS, 8, 9, EOS]]


def split_of(sources, targets):
    ids = [[np.array(sentence, dtype=np.int32) for sentence in side] for side in (sources, targets)]
    texts = [""] * len(sources)
    return Split(*ids, texts, texts, [("",)] * len(sources))


@pytest.fixture
def tensors():
    return SplitTensors.of(split_of(SOURCES, TARGETS), torch.device("cpu"))


@pytest.mark.parametrize("by_target", [False, True])
def test_unpadded_batches_hold_every_row_once_and_no_padding(tensors, by_target):
    batches = tensors.unpadded_batches(2, by_target)
    assert sorted(row for rows in batches for row in rows.tolist()) == [0, 1, 2, 3]
    for rows in batches:
        assert len({len(SOURCES[row]) for row in rows.tolist()}) == 1
        if by_target:
            assert len({len(TARGETS[row]) for row in rows.tolist()}) == 1
    assert len(batches) == (4 if by_target else 3)
    assert tensors.num_target_tokens(torch.tensor([[0, 2], [1, 3]])) == 4 + 3


def test_sentences_are_padded_to_the_given_length_with_the_given_id():
    tensors = SplitTensors.of(split_of(SOURCES, TARGETS), torch.device("cpu"), pads=(8, 9), width=7)
    batch = tensors.batch(torch.tensor([[1]]), 7, 6)
    assert batch.source.tolist() == [[[7, EOS, 8, 8, 8, 8, 8]]]
    assert batch.decoder_input_ids.tolist() == [[[SOS, 4, 5, 6, EOS, 9]]]
    assert batch.labels.tolist() == [[[4, 5, 6, EOS, IGNORE_INDEX, IGNORE_INDEX]]]
