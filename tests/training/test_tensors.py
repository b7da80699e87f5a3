"""Splits as tensors: what the decoder reads and writes, and batches with and without padding."""

import numpy as np
import pytest
import torch

from headtohead.data import Split
from headtohead.data.vocabulary import EOS, PAD, SOS
from headtohead.training.tensors import SplitTensors

SOURCES = [[5, 6, EOS], [7, EOS], [5, 7, 8, EOS], [9, EOS]]
TARGETS = [[SOS, 4, EOS], [SOS, 4, 5, 6, EOS], [SOS, 7, EOS], [SOS, 8, 9, EOS]]


@pytest.fixture
def tensors():
    ids = [[np.array(one, dtype=np.int32) for one in side] for side in (SOURCES, TARGETS)]
    texts = [""] * len(SOURCES)
    split = Split(*ids, texts, texts, [("",)] * len(SOURCES))
    return SplitTensors.of(split, torch.device("cpu"))


def test_decoder_reads_from_sos_and_writes_to_eos(tensors):
    rows = torch.tensor([[0, 1], [3, 1]])
    batch = tensors.batch(rows, 3, 4)
    assert batch.source.tolist() == [
        [[5, 6, EOS], [7, EOS, PAD]], [[9, EOS, PAD], [7, EOS, PAD]],
    ]  # fmt: skip
    assert batch.source_lengths.tolist() == [[3, 2], [2, 2]]
    assert batch.reads[0].tolist() == [[SOS, 4, EOS, PAD], [SOS, 4, 5, 6]]
    assert batch.writes[0].tolist() == [[4, EOS, PAD, PAD], [4, 5, 6, EOS]]
    assert batch.target_lengths.tolist() == [[2, 4], [3, 4]]
    words = batch.writes != PAD
    assert (words.sum(-1) == batch.target_lengths).all()


def test_batches_are_padded_to_the_times_that_are_asked_for(tensors):
    batch = tensors.batch(torch.tensor([[1]]), 2, 4)
    assert batch.source.shape == (1, 1, 2)
    assert batch.reads.shape == batch.writes.shape == (1, 1, 4)


def test_times_are_the_longest_of_the_rows(tensors):
    assert tensors.times(torch.tensor([0, 1])) == (3, 4)
    assert tensors.times(torch.tensor([3])) == (2, 3)


def test_padded_batches_keep_the_order(tensors):
    assert [rows.tolist() for rows in tensors.padded_batches(3)] == [[0, 1, 2], [3]]


@pytest.mark.parametrize("by_target", [False, True])
def test_unpadded_batches_hold_every_row_once_and_no_padding(tensors, by_target):
    batches = tensors.unpadded_batches(2, by_target)
    assert sorted(row for rows in batches for row in rows.tolist()) == [0, 1, 2, 3]
    for rows in batches:
        assert len({len(SOURCES[row]) for row in rows.tolist()}) == 1
        if by_target:
            assert len({len(TARGETS[row]) for row in rows.tolist()}) == 1
    assert len(batches) == (4 if by_target else 3)


def test_target_tokens_of_a_member_are_counted(tensors):
    assert tensors.live(torch.tensor([[0, 2], [1, 3]])) == 4 + 3
