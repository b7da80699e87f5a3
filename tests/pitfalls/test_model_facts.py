"""Effects of pitfalls on the model, each compared with a configuration without the pitfall."""

import math

import torch

ROWS = {"name": "sinusoidal-by-row"}


def test_the_source_is_ignored_only_with_the_pitfall(recipe, variant) -> None:
    ignored, sound = recipe("source ignored", "slides-en-fr"), variant("source ignored")
    assert ignored["largest_change_by_source"] < 1e-12
    assert ignored["change_by_target_word"] > 1e-3
    assert sound["largest_change_by_source"] > 1e-3


def test_positions_by_row_depend_on_the_row_and_not_on_word_order(variant) -> None:
    by_row = variant("positions by batch row", positional={**ROWS, "max_len": 16})
    assert by_row["change_by_order"] < 1e-12
    assert by_row["change_by_row"] > 1e-3
    assert by_row["most_rows"] == 16
    by_time = variant("positions by batch row")
    assert by_time["change_by_order"] > 1e-3
    assert by_time["change_by_row"] < 1e-12
    assert by_time["most_rows"] > 1000


def by_hand_attention(x: torch.Tensor) -> torch.Tensor:
    """Return the notebook's masked self-attention and its residual and norm, one row at a time."""
    time, width = x.shape
    rows = []
    for i in range(time):
        masked = [
            [float(x[t, j]) + (-1e9 if j > t else 0.0) for j in range(width)] for t in range(time)
        ]
        top = max(masked[i])
        powers = [math.exp(value - top) for value in masked[i]]
        weights = [power / sum(powers) for power in powers]
        mixed = [sum(weights[t] * masked[t][j] for t in range(time)) for j in range(width)]
        summed = [mixed[j] + float(x[i, j]) for j in range(width)]
        mean = sum(summed) / width
        spread = math.sqrt(sum((value - mean) ** 2 for value in summed) / width + 1e-5)
        rows.append([(value - mean) / spread for value in summed])
    return torch.tensor(rows, dtype=torch.float64)


def test_earlier_tokens_contribute_about_1e_9_as_in_a_computation_by_hand(recipe, variant) -> None:
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
    measured = recipe("mask on embeddings", "by-hand-en-fr")
    for number in (measured["row_0"], start, measured["earlier_tokens"], before):
        assert 1e-11 < number < 1e-7
    assert min(measured["own_token"], own) > 1e-3
    on_scores = variant("mask on embeddings")
    assert min(on_scores["row_0"], on_scores["earlier_tokens"]) > 1e-3
    assert on_scores["supported_lengths"] == 11  # A single token has no next token to predict.


def test_one_pass_over_zeros_without_the_source_gives_one_translation(recipe, variant) -> None:
    ignored = recipe("not autoregressive", "slides-en-fr")
    assert ignored == {"words": 4, "sources": 100, "different_translations": 1}
    assert variant("not autoregressive")["different_translations"] > 10


def test_only_unmasked_keys_change_logits(recipe, variant) -> None:
    assert variant("padding not masked", masking={"encoder": "none"})["change"] > 1e-3
    assert variant("padding not masked")["change"] < 1e-12
    assert variant("future not masked", masking={"decoder": "padding"})["change"] > 1e-3
    assert variant("future not masked")["change"] < 1e-12
    assert recipe("future not masked", "slides-en-fr")["change"] > 1e-3


def test_frozen_parameters_are_counted_by_hand(recipe) -> None:
    measured = recipe("parameters frozen", "by-hand-en-fr")
    trained = (6 * 24 + 24 + 24 * 6 + 6) + 4 * (6 * 6 + 6) + (6 * 6 + 6)
    rest = (5 + 6) * 6 + 2 * 6 + 4 * (6 * 6 + 6)
    assert measured == {"weights": trained + rest, "trained": trained}
