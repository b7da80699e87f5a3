"""Every invariant in the decoder-only architecture, and faults of this architecture that they must find."""

from dataclasses import replace

import pytest
import torch

from headtohead.model import loss
from headtohead.model.decoding import DecodingState
from headtohead.model.transformer import Transformer
from headtohead.planning.compatibility import find_incompatibility
from headtohead.plugins.registry import current
from headtohead.testing import INVARIANTS, Subject, check, tiny_config
from made import case_table, unexpected

REGISTRY = current()
ENTRIES = [(family, name) for family in ("positional", "attention", "masking") for name in REGISTRY.entries[family]]
BY_NAME = {invariant.name: invariant for invariant in INVARIANTS}


def subject_of(**choices):
    return Subject(tiny_config(architecture="decoder-only", **choices))


def test_every_invariant_holds_or_does_not_apply():
    verdicts = check(tiny_config(architecture="decoder-only", positional="rotary"))
    assert unexpected(verdicts) == {}
    assert sum(verdict.state == "holds" for verdict in verdicts.values()) >= 30


@case_table(("family", "name"), ENTRIES, default=3)
def test_no_entry_has_an_unexpected_violation(family, name):
    config = tiny_config(architecture="decoder-only", **{family: name})
    if find_incompatibility(config, {}, REGISTRY) is None:
        subject = Subject(config)
        found = {key: rule(subject) for key, rule in BY_NAME.items() if rule.scope != "training"}
        assert unexpected(found) == {}


@pytest.mark.parametrize(
    ("masking", "layers", "counts"), [("none", 2, False), ("causal", 1, False), ("causal", 2, True)]
)
def test_without_positions_the_order_of_the_source_counts_from_two_causal_layers_on(masking, layers, counts):
    subject = subject_of(positional="none", masking=masking, decoder_layers=layers)
    sentences = subject.sentences
    order = torch.tensor([1, 0, 2, 3, 4, 5]).expand_as(sentences.source)
    logits = subject.logits(replace(sentences, source=sentences.source.gather(-1, order)))
    difference = (logits - subject.reference_logits)[sentences.target_nonpad].abs().max()
    assert (difference > 1e-6) == counts
    for name in ("source-order", "source-mirror"):
        assert BY_NAME[name](subject).state == "holds"


def prefill_positions_start_at_one(monkeypatch):
    step = Transformer.step
    late = lambda self, tokens, position, *rest: step(self, tokens, position + (position > 0), *rest)  # noqa: E731
    monkeypatch.setattr(Transformer, "step", late)


def prompts_are_left_out(monkeypatch):
    build = DecodingState.__init__

    def forgetful(self, model, source, lengths, max_length):
        build(self, model, source[:, :, 1:], lengths - 1, max_length)

    monkeypatch.setattr(DecodingState, "__init__", forgetful)


def logits_are_those_of_the_next_position(monkeypatch):
    hidden = Transformer.hidden

    def shifted(self, batch, observe=None):
        later = type(batch)(**{**vars(batch), "target_lengths": batch.target_lengths - 1})
        return hidden(self, later, observe)

    monkeypatch.setattr(Transformer, "hidden", shifted)


def sources_keep_their_padding(monkeypatch):
    build = Transformer.batch_of

    def padded(self, source, source_lengths, target, target_lengths):
        full = torch.full_like(source_lengths, source.shape[-1])
        return build(self, source, full, target, target_lengths)

    monkeypatch.setattr(Transformer, "batch_of", padded)


def logits_of_the_first_positions(monkeypatch):
    monkeypatch.setattr(
        loss, "label_positions", lambda hidden, labels, count: (hidden[:, :, :count], labels[:, :, :count])
    )


def logits_of_the_next_positions(monkeypatch):
    select = loss.label_positions
    late = lambda hidden, labels, count: select(hidden.roll(-1, dims=2), labels, count)  # noqa: E731
    monkeypatch.setattr(loss, "label_positions", late)


def every_position_has_a_label(monkeypatch):
    original = loss.loss_gradients
    filled = lambda *arguments: original(*arguments[:3], arguments[3].clamp(min=0), *arguments[4:])  # noqa: E731
    monkeypatch.setattr(loss, "loss_gradients", filled)


def losses_are_means_over_all_tokens(monkeypatch):
    original = loss.loss_gradients

    def diluted(hidden, weight, bias, labels, num_labels, *rest):
        return original(hidden, weight, bias, labels, torch.full_like(num_labels, labels.shape[-1]), *rest)

    monkeypatch.setattr(loss, "loss_gradients", diluted)


@pytest.mark.parametrize(
    ("plant", "found_by"),
    [
        (logits_of_the_first_positions, "unlabelled"),
        (logits_of_the_next_positions, "unlabelled"),
        (every_position_has_a_label, "unlabelled"),
        (losses_are_means_over_all_tokens, "unlabelled"),
        (prefill_positions_start_at_one, "cached-decoding"),
        (prompts_are_left_out, "greedy-decoding"),
        (logits_are_those_of_the_next_position, "causality"),
        (sources_keep_their_padding, "batch-of-one"),
    ],
)
def test_a_planted_fault_is_found(monkeypatch, plant, found_by):
    assert BY_NAME[found_by](subject_of()).state == "holds"
    plant(monkeypatch)
    assert BY_NAME[found_by](subject_of()).state == "violated"
