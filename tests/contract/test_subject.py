"""Parameters of a subject: near their initial values, and equal to none of them."""

import pytest
import torch

from headtohead.model.transformer import Transformer
from headtohead.testing.subject import Subject
from headtohead.testing.tiny import tiny_config


@pytest.mark.parametrize("attention", ["split-heads", "qk-norm", "talking-heads"])
def test_parameters_are_moved_relative_to_their_initial_values(attention):
    subject = Subject(tiny_config(attention=attention, positional="learned"))
    initial = Transformer(subject.config, subject.seeds, *subject.vocab_sizes).double()
    for name, parameter in subject.model.named_parameters():
        before = initial.get_parameter(name)
        moved = (parameter - before).abs()
        rms = before.square().mean().sqrt()
        size = torch.where(before != 0, before.abs(), rms if rms > 0 else torch.ones_like(rms))
        assert (moved > 0).all(), name
        assert (moved <= 0.4 * size * (1 + 1e-12)).all(), name
        assert (parameter.sign() == before.sign())[before != 0].all(), name
