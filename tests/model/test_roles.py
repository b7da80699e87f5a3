"""Encodings and maskings are configured per role."""

import pytest
import torch

from headtohead.testing.subject import Subject
from headtohead.testing.tiny import tiny_config


def test_a_plain_masking_name_sets_the_default_mask_of_each_role():
    expected = {
        "none": ["none", "none", "none"],
        "causal": ["none", "causal", "none"],
        "padding-causal": ["padding", "padding-causal", "padding"],
    }
    for name, schemes in expected.items():
        assert [scheme.name for scheme in tiny_config(masking=name).masking.by_role().values()] == schemes


@pytest.mark.parametrize(
    ("family", "plain", "other"),
    [
        ("masking", {"encoder": "padding", "decoder": "padding-causal", "cross": "padding"}, "none"),
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
