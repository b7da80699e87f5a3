"""Masks against loops over their definitions."""

import pytest
import torch

from headtohead.data.vocabulary import EOS
from headtohead.model.decoding import greedy, is_causal
from headtohead.planning.pitfalls import find_pitfalls
from headtohead.plugin import Masking, Options
from headtohead.plugins.registry import find_masking
from headtohead.testing import Subject, tiny_config
from headtohead.testing.invariants.decoding import naive_greedy
from headtohead.testing.invariants.masks import masks_have_their_declared_properties
from headtohead.testing.subject import full_mask

DEFINITIONS = {
    "none": lambda i, j, length: True,
    "padding": lambda i, j, length: j < length,
    "causal": lambda i, j, length: j <= i,
    "padding-causal": lambda i, j, length: j <= i and j < length,
    "window": lambda i, j, length: abs(i - j) <= 2 and j < length,
    "prefix": lambda i, j, length: (j <= i or j < 3) and j < length,
}
IN_DECODER = {"window": lambda i, j, length: 0 <= i - j < 2 and j < length}
OPTIONS = {"window": {"width": 2}, "prefix": {"length": 3}}


def masking(name, **options):
    entry = find_masking(name)
    return entry(entry.Options(**(options or OPTIONS.get(name, {}))))


@pytest.mark.parametrize("role", ["encoder", "decoder", "cross"])
@pytest.mark.parametrize("name", DEFINITIONS)
def test_mask_equals_its_definition(name, role):
    lengths = [1, 3, 6]
    found = full_mask(masking(name), role, 5, 6, torch.tensor(lengths))
    may_attend = IN_DECODER.get(name, DEFINITIONS[name]) if role == "decoder" else DEFINITIONS[name]
    expected = [
        [[may_attend(i, j, length) for j in range(6)] for i in range(5)] for length in lengths
    ]
    assert found.tolist() == expected


PROPERTIES = {
    "window in the encoder": ("window", {"width": 2}, "encoder", {"hides-padding"}),
    "window in the decoder": ("window", {"width": 2}, "decoder", {"hides-padding", "hides-future"}),
    "prefix of words": ("prefix", {"length": 2}, "decoder", {"hides-padding"}),
    "prefix of <sos>": (
        "prefix",
        {"length": 1},
        "decoder",
        {"hides-padding", "hides-future", "shows-the-rest"},
    ),
}


@pytest.mark.parametrize(
    ("name", "options", "role", "properties"), PROPERTIES.values(), ids=PROPERTIES
)
def test_properties_depend_on_role_and_options(name, options, role, properties):
    assert masking(name, **options).role_properties(role) == properties


def test_a_prefix_mask_is_a_pitfall_and_is_decoded_without_a_cache():
    for length, shown in ((1, False), (2, True)):
        config = tiny_config(masking={"name": "prefix", "length": length})
        names = [pitfall.name for pitfall in find_pitfalls(config)]
        assert ("future not masked" in names) is shown
        assert is_causal(Subject(config).model) is not shown


class ShowsFarKeys(Masking):
    """Later keys and padding are visible from a distance of 8 on."""

    def mask(self, role, query_positions, key_positions, lengths):
        ahead = key_positions[None, :] - query_positions[:, None]
        is_far = (ahead >= 8).unsqueeze(0)
        return is_far | (
            (ahead <= 0).unsqueeze(0) & (key_positions[None, None, :] < lengths[:, None, None])
        )


class FalselyCausal(ShowsFarKeys):
    properties = frozenset({"hides-future"})


def with_masks(**maskings):
    subject = Subject(tiny_config())
    subject.model.maskings.update({role: entry(Options()) for role, entry in maskings.items()})
    return subject


def test_a_mask_without_declared_properties_is_decoded_without_a_cache():
    subject = with_masks(decoder=ShowsFarKeys)
    with torch.no_grad():
        subject.model.lm_head.bias[..., EOS] -= 100.0
    sentences = subject.sentences
    found = greedy(subject.model, sentences.source, sentences.source_lengths, 14)
    assert found.shape[-1] == 14
    assert torch.equal(found, naive_greedy(subject, 14))


def test_a_false_declaration_about_far_keys_is_detected():
    verdict = masks_have_their_declared_properties(with_masks(decoder=FalselyCausal))
    assert verdict.state == "violated"
