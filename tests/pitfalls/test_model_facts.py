"""Effects of pitfalls on the model, each compared with a configuration without the pitfall."""

from __future__ import annotations

import math

import torch

ROWS = {"name": "sinusoidal", "index": "row"}


def test_the_source_is_ignored_only_with_the_pitfall(recipe, variant, facts) -> None:
    (ignored,) = facts("source ignored", recipe("slides-en-fr"))
    (sound,) = facts("source ignored", variant())
    assert ignored.numbers["largest_change_by_source"] < 1e-12
    assert ignored.numbers["change_by_target_word"] > 1e-3
    assert sound.numbers["largest_change_by_source"] > 1e-3
    assert "the decoder does not depend on the source: 100 other sources" in ignored.sentence


def test_positions_by_row_depend_on_the_row_and_not_on_word_order(variant, facts) -> None:
    order, row, most = facts("positions by batch row", variant(positional={**ROWS, "max_len": 16}))
    assert order.numbers["change_by_order"] < 1e-12
    assert row.numbers["change_by_row"] > 1e-3
    assert most.numbers["most_rows"] == 16
    assert "batches have at most 16 sentences: 17 raise an error" in most.sentence


def test_positions_by_time_depend_on_word_order_and_not_on_the_row(variant, facts) -> None:
    order, row, most = facts("positions by batch row", variant())
    assert order.numbers["change_by_order"] > 1e-3
    assert row.numbers["change_by_row"] < 1e-12
    assert most.numbers["most_rows"] > 1000


def by_hand_attention(x: torch.Tensor) -> torch.Tensor:
    """Return the notebook's masked self-attention and its residual and norm, one row at a time."""
    time, width = x.shape
    rows = []
    for i in range(time):
        masked = [[float(x[t, j]) + (-1e9 if j > t else 0.0) for j in range(width)] for t in range(time)]
        top = max(masked[i])
        powers = [math.exp(value - top) for value in masked[i]]
        weights = [power / sum(powers) for power in powers]
        mixed = [sum(weights[t] * masked[t][j] for t in range(time)) for j in range(width)]
        summed = [mixed[j] + float(x[i, j]) for j in range(width)]
        mean = sum(summed) / width
        spread = math.sqrt(sum((value - mean) ** 2 for value in summed) / width + 1e-5)
        rows.append([(value - mean) / spread for value in summed])
    return torch.tensor(rows, dtype=torch.float64)


def test_earlier_tokens_contribute_about_1e_9_as_in_a_computation_by_hand(recipe, facts) -> None:
    first, later, _ = facts("mask on embeddings", recipe("by-hand-en-fr"))
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(6, 6, generator=generator, dtype=torch.float64)
    start, before, own = 0.0, 0.0, math.inf
    for token in range(6):
        changed = x.clone()
        changed[token] = torch.randn(6, generator=generator, dtype=torch.float64)
        moved = (by_hand_attention(changed) - by_hand_attention(x)).abs().amax(-1)
        start = max(start, float(moved[0]))
        before = max([before, *(float(change) for change in moved[max(token + 1, 1) :])])
        own = own if token == 0 else min(own, float(moved[token]))
    for measured, by_hand in ((first.numbers["row_0"], start), (later.numbers["earlier_tokens"], before)):
        assert 1e-11 < by_hand < 1e-7
        assert 1e-11 < measured < 1e-7
    assert later.numbers["own_token"] > 1e-3
    assert own > 1e-3


def test_a_mask_on_scores_attends_to_earlier_tokens(variant, facts) -> None:
    first, later, lengths = facts("mask on embeddings", variant())
    assert first.numbers["row_0"] > 1e-3
    assert later.numbers["earlier_tokens"] > 1e-3
    assert lengths.numbers["supported_lengths"] == 11  # A single token has no next token to predict.


def test_one_pass_over_zeros_without_the_source_gives_one_translation(recipe, variant, facts) -> None:
    (ignored,) = facts("not autoregressive", recipe("slides-en-fr"))
    (sound,) = facts("not autoregressive", variant())
    assert ignored.numbers == {"words": 4, "sources": 100, "different_translations": 1}
    assert sound.numbers["different_translations"] > 10


def test_only_unmasked_padding_changes_logits(variant, facts) -> None:
    (visible,) = facts("padding not masked", variant(masking={"encoder": "none"}))
    (hidden,) = facts("padding not masked", variant())
    assert visible.numbers["change"] > 1e-3
    assert hidden.numbers["change"] < 1e-12


def test_an_unmasked_future_changes_earlier_logits(recipe, variant, facts) -> None:
    (visible,) = facts("future not masked", variant(masking={"decoder": "padding"}))
    (hidden,) = facts("future not masked", variant())
    (second,) = facts("future not masked", recipe("slides-en-fr"))
    assert visible.numbers["change"] > 1e-3
    assert hidden.numbers["change"] < 1e-12
    assert second.numbers["change"] > 1e-3


def test_frozen_parameters_are_counted_by_hand(recipe, facts) -> None:
    (fact,) = facts("parameters frozen", recipe("by-hand-en-fr"))
    feed_forward = 6 * 24 + 24 + 24 * 6 + 6
    cross = 4 * (6 * 6 + 6)
    words = 6 * 6 + 6
    rest = (5 + 6) * 6 + 2 * 6 + 4 * (6 * 6 + 6)
    assert fact.numbers["trained"] == feed_forward + cross + words
    assert fact.numbers["weights"] == feed_forward + cross + words + rest
