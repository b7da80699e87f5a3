"""Positions by batch row."""

import torch

from headtohead.testing.subject import Subject, forward
from headtohead.testing.tiny import tiny_config
from headtohead_plugins.positional.sinusoidal import sinusoids
from made import refused


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
    message = "row 3 is beyond the 2 rows of sinusoidal-by-row; set positional.encoder.max_len"
    assert refused(by_row(max_len=2).logits).startswith(message)
