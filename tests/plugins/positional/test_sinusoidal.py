"""The sinusoidal table against the digits that a notebook printed, and positions by batch row."""

import pytest
import torch

from headtohead import HeadToHeadError
from headtohead.testing.subject import Subject, forward
from headtohead.testing.tiny import tiny_config
from headtohead_plugins.positional.sinusoidal import sinusoids

# Notebook 5, d_model 6, positions 0 to 5, eight decimals.
WIDTH_6 = [
    [0.0, 1.0, 0.0, 1.0, 0.0, 1.0],
    [0.84147098, 0.54030231, 0.04639922, 0.99892298, 0.00215443, 0.99999768],
    [0.90929743, -0.41614684, 0.0926985, 0.99569422, 0.00430886, 0.99999072],
    [0.14112001, -0.9899925, 0.1387981, 0.9903207, 0.00646326, 0.99997911],
    [-0.7568025, -0.65364362, 0.18459872, 0.98281398, 0.00861763, 0.99996287],
    [-0.95892427, 0.28366219, 0.23000171, 0.97319022, 0.01077197, 0.99994198],
]


def test_table_equals_the_printed_values_of_a_notebook():
    expected = torch.tensor(WIDTH_6, dtype=torch.float64)
    torch.testing.assert_close(sinusoids(torch.arange(6), 6), expected, rtol=0, atol=0.51e-8)


def by_row(**options):
    return Subject(tiny_config({"name": "sinusoidal-by-row", **options}))


def test_every_token_of_a_row_gets_the_same_position():
    """Notebook 3: a table [rows, 1, width] added to [batch, time, width]."""
    subject = by_row()
    rows = torch.arange(4).unsqueeze(1)
    added = subject.positional("encoder").embed(rows, "encoder")
    assert added.shape == (1, 4, 1, 16)
    torch.testing.assert_close(added[0, :, 0], sinusoids(torch.arange(4), 16))
    embedded = subject.model.source_embedding(subject.sentences.source) * 4.0
    expected = embedded + sinusoids(torch.arange(3), 16)[None, :, None]
    found = subject.model._embed(subject.sentences.source, subject.model.source_embedding, "encoder", 0)
    torch.testing.assert_close(found, expected.flatten(1, 2), rtol=0, atol=1e-14)


def test_logits_depend_on_the_row_of_the_sentence():
    subject = by_row()
    assert subject.model.position_is_row
    assert not Subject(tiny_config()).model.position_is_row
    sentences = subject.sentences
    flipped = type(sentences)(*(getattr(sentences, name).flip(1) for name in vars(sentences)))
    moved = (forward(subject.model, flipped).flip(1) - subject.reference_logits)[sentences.target_nonpad].abs()
    assert moved.max() > 0.1
    assert moved.amax(-1).min() == 0.0, "the middle row stays where it is"


def test_a_batch_larger_than_the_table_is_refused_in_one_line():
    assert by_row(max_len=3).logits().isfinite().all()
    with pytest.raises(
        HeadToHeadError, match=r"^row 3 is beyond the 2 rows of sinusoidal-by-row; set positional.encoder.max_len"
    ):
        by_row(max_len=2).logits()
