"""Encodings and maskings are configured per role."""

import torch

from headtohead.testing.subject import Subject
from headtohead.testing.tiny import tiny_config


def chosen(config, family):
    return [getattr(config, family).role(role).name for role in ("encoder", "decoder", "cross")]


def test_a_plain_masking_name_sets_the_default_mask_of_each_role():
    expected = {
        "none": ["none", "none", "none"],
        "padding": ["padding", "padding", "padding"],
        "causal": ["none", "causal", "none"],
        "padding-causal": ["padding", "padding-causal", "padding"],
    }
    assert {name: chosen(tiny_config(masking=name), "masking") for name in expected} == expected


def test_each_role_uses_only_its_mask():
    """Changing the mask of a role changes the attention of this role only."""
    masks = {"encoder": "padding", "decoder": "padding-causal", "cross": "padding"}
    plain = Subject(tiny_config(masking=masks))
    memory = plain.model.encode(plain.sentences.source, plain.sentences.source_lengths)
    for role in masks:
        spoilt = Subject(tiny_config(masking=masks | {role: "none"}))
        encoded = spoilt.model.encode(plain.sentences.source, plain.sentences.source_lengths)
        assert torch.equal(encoded, memory) == (role != "encoder")
        assert not torch.equal(spoilt.reference_logits, plain.reference_logits)


def test_each_role_uses_only_its_encoding():
    plain = Subject(tiny_config({"encoder": "none", "decoder": "none", "cross": "none"}))
    memory = plain.model.encode(plain.sentences.source, plain.sentences.source_lengths)
    for role in ("encoder", "decoder", "cross"):
        other = Subject(tiny_config({"encoder": "none", "decoder": "none", "cross": "none"} | {role: "alibi"}))
        encoded = other.model.encode(plain.sentences.source, plain.sentences.source_lengths)
        assert torch.equal(encoded, memory) == (role != "encoder")
        assert not torch.allclose(other.reference_logits, plain.reference_logits, atol=1e-6)


def test_layers_of_a_role_share_one_encoding():
    subject = Subject(tiny_config("learned", decoder_layers=2))
    shared = [layer.attention.positional for layer in subject.model.decoder]
    assert shared[0] is shared[1] is subject.positional("decoder")
    names = [name for name, _ in subject.model.named_parameters() if "table" in name]
    assert names == ["positionals.encoder.table", "positionals.decoder.table"]
