"""Every invariant in the decoder-only architecture, and faults of this architecture that they must find."""

from dataclasses import replace
from functools import partial

import pytest
import torch

from contract.zoo.core import planted
from headtohead.model import loss
from headtohead.model.decoding import DecodingState
from headtohead.model.layers import StackedFeedForward
from headtohead.model.transformer import Transformer
from headtohead.planning.compatibility import find_incompatibility
from headtohead.plugins.registry import current
from headtohead.testing import INVARIANTS, Subject, check, tiny_config
from made import case_table, unexpected

REGISTRY = current()
ENTRIES = [
    (family, name)
    for family in ("positional", "attention", "masking")
    for name in REGISTRY.entries[family]
]
BY_NAME = {invariant.name: invariant for invariant in INVARIANTS}


def subject_of(**choices):
    return Subject(tiny_config(architecture="decoder-only", **choices))


def test_every_invariant_holds_or_does_not_apply():
    verdicts = check(tiny_config(architecture="decoder-only", positional="rotary"))
    assert unexpected(verdicts) == {}
    assert sum(verdict.state == "holds" for verdict in verdicts.values()) >= 30


@case_table(("family", "name"), ENTRIES, default=1)
def test_no_entry_has_an_unexpected_violation(family, name):
    config = tiny_config(architecture="decoder-only", **{family: name})
    if find_incompatibility(config, {}) is None:
        subject = Subject(config)
        found = {key: rule(subject) for key, rule in BY_NAME.items() if rule.scope != "training"}
        assert unexpected(found) == {}


@pytest.mark.parametrize(
    ("masking", "layers", "counts"), [("none", 2, False), ("causal", 1, False), ("causal", 2, True)]
)
def test_without_positions_the_order_of_the_source_counts_from_two_causal_layers_on(
    masking, layers, counts
):
    subject = subject_of(positional="none", masking=masking, decoder_layers=layers)
    sentences = subject.sentences
    order = torch.tensor([1, 0, 2, 3, 4, 5]).expand_as(sentences.source)
    logits = subject.logits(replace(sentences, source=sentences.source.gather(-1, order)))
    difference = (logits - subject.reference_logits)[sentences.target_nonpad].abs().max()
    assert (difference > 1e-6) == counts
    for name in ("source-order", "source-mirror"):
        assert BY_NAME[name](subject).state == "holds"


def test_every_layer_of_a_pattern_has_the_geometry_of_its_style():
    subject = subject_of(positional="none", attention={"decoder": ["split-heads", "qk-norm"]})
    geometries = [
        (part.context.geometry.scale, part.context.geometry.key_width)
        for part in subject.model.attentions
    ]
    assert geometries == [(0.5, 4), (1.0, 4)]
    halved = tiny_config(
        architecture="decoder-only", attention={"decoder": ["split-heads", "differential"]}
    )
    assert "differ in heads" in find_incompatibility(halved, {})


FAULTS = []


def fault(place, name, found_by):
    """Return a decorator for a wrong function, as of `planted`, that an invariant must find."""
    return lambda wrong: FAULTS.append(
        pytest.param(partial(planted, wrong, name, place), found_by, id=wrong.__name__)
    )


@fault(Transformer, "step", "cached-decoding")
def prefill_positions_start_at_one(original, self, tokens, position, *rest):
    return original(self, tokens, position + (position > 0), *rest)


@fault(DecodingState, "__init__", "greedy-decoding")
def prompts_are_left_out(original, self, model, source, lengths, max_length):
    original(self, model, source[:, :, 1:], lengths - 1, max_length)


@fault(Transformer, "hidden", "causality")
def logits_are_those_of_the_next_position(original, self, batch, observe=None):
    return original(self, replace(batch, target_lengths=batch.target_lengths - 1), observe)


@fault(Transformer, "batch_of", "batch-of-one")
def sources_keep_their_padding(original, self, source, source_lengths, target, target_lengths):
    return original(
        self, source, torch.full_like(source_lengths, source.shape[-1]), target, target_lengths
    )


@fault(loss, "label_positions", "unlabelled")
def logits_of_the_first_positions(original, hidden, labels, count):
    return hidden[:, :, :count], labels[:, :, :count]


@fault(loss, "label_positions", "unlabelled")
def logits_of_the_next_positions(original, hidden, labels, count):
    return original(hidden.roll(-1, dims=2), labels, count)


@fault(loss, "loss_gradients", "unlabelled")
def every_position_has_a_label(original, hidden, weight, bias, labels, *rest):
    return original(hidden, weight, bias, labels.clamp(min=0), *rest)


@fault(loss, "loss_gradients", "unlabelled")
def losses_are_means_over_all_tokens(original, hidden, weight, bias, labels, num_labels, *rest):
    return original(
        hidden, weight, bias, labels, torch.full_like(num_labels, labels.shape[-1]), *rest
    )


@fault(StackedFeedForward, "forward", "finite")
def large_inputs_of_a_feed_forward_overflow(original, self, x, record=None):
    return original(self, x, record) + 0 * x.abs().max().exp()


@pytest.mark.parametrize(("plant", "found_by"), FAULTS)
def test_a_planted_fault_is_found(plant, found_by):
    assert BY_NAME[found_by](subject_of()).state == "holds"
    with plant():
        assert BY_NAME[found_by](subject_of()).state == "violated"
