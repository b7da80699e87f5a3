"""Parameters of a subject, near their initial values and equal to none; masks and encodings of its roles."""

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


@pytest.mark.parametrize(
    ("family", "plain", "other"),
    [
        (
            "masking",
            {"encoder": "padding", "decoder": "padding-causal", "cross": "padding"},
            "none",
        ),
        ("positional", {"encoder": "none", "decoder": "none", "cross": "none"}, "alibi"),
    ],
)
def test_each_role_uses_only_its_mask_and_encoding(family, plain, other):
    first = Subject(tiny_config(**{family: plain}))
    memory = first.model.encode(first.sentences.source, first.sentences.source_lengths)
    for role in plain:
        changed = Subject(tiny_config(**{family: plain | {role: other}}))
        encoded = changed.model.encode(first.sentences.source, first.sentences.source_lengths)
        assert torch.equal(encoded, memory) == (role != "encoder")
        assert not torch.allclose(changed.reference_logits, first.reference_logits, atol=1e-6)
