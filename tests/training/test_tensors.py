"""Splits as tensors: decoder inputs and labels, and batches with and without padding."""

import numpy as np
import pytest
import torch

from headtohead.data import Split
from headtohead.data.vocabulary import EOS, PAD, SOS
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


def test_decoder_inputs_start_with_sos_and_labels_end_with_eos(tensors):
    rows = torch.tensor([[0, 1], [3, 1]])
    batch = tensors.batch(rows, 3, 4)
    assert batch.source.tolist() == [[[5, 6, EOS], [7, EOS, PAD]], [[9, EOS, PAD], [7, EOS, PAD]]]
    assert batch.source_lengths.tolist() == [[3, 2], [2, 2]]
    assert batch.decoder_input_ids[0].tolist() == [[SOS, 4, EOS, PAD], [SOS, 4, 5, 6]]
    assert batch.labels[0].tolist() == [[4, EOS, IGNORE_INDEX, IGNORE_INDEX], [4, 5, 6, EOS]]
    assert batch.target_lengths.tolist() == [[2, 4], [3, 4]]
    labelled = batch.labels != IGNORE_INDEX
    assert (labelled.sum(-1) == batch.target_lengths).all()


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


def test_unshifted_targets_are_both_decoder_input_and_label():
    tensors = SplitTensors.of(split_of(SOURCES, TARGETS), torch.device("cpu"), shift_targets=False)
    batch = tensors.batch(torch.tensor([[0, 3]]), 3, 4)
    assert batch.decoder_input_ids[0].tolist() == [[SOS, 4, EOS, PAD], [SOS, 8, 9, EOS]]
    assert batch.labels[0].tolist() == [[SOS, 4, EOS, IGNORE_INDEX], [SOS, 8, 9, EOS]]
    assert batch.target_lengths.tolist() == [[3, 4]]
    assert tensors.times(torch.tensor([0, 1])) == (3, 5)


def test_sentences_are_padded_to_the_given_length_with_the_given_id():
    tensors = SplitTensors.of(split_of(SOURCES, TARGETS), torch.device("cpu"), pads=(8, 9), width=7)
    batch = tensors.batch(torch.tensor([[1]]), 7, 6)
    assert batch.source.tolist() == [[[7, EOS, 8, 8, 8, 8, 8]]]
    assert batch.decoder_input_ids.tolist() == [[[SOS, 4, 5, 6, EOS, 9]]]
    assert batch.labels.tolist() == [[[4, 5, 6, EOS, IGNORE_INDEX, IGNORE_INDEX]]]
