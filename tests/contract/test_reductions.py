"""Variants that are special cases of others compute the same with the same weights."""

import pytest
import torch

from headtohead.testing.equality import same_function
from headtohead.testing.tiny import tiny_config

WIDTH, HEADS = 16, 4
HEAD_WIDTH = WIDTH // HEADS


def free(key_width, value_width, kv_heads=None):
    options = {"key_width": key_width, "value_width": value_width}
    return {"name": "free-geometry", **options, **({"kv_heads": kv_heads} if kv_heads else {})}


def grouped(kv_heads):
    return {"name": "grouped-query", "kv_heads": kv_heads}


SAME = {
    "independent with one head is single": ("independent-heads", "single-head", 1),
    "split with one head is single": ("split-heads", "single-head", 1),
    "grouped with a group for every head is split": (grouped(HEADS), "split-heads", HEADS),
    "free geometry of split": (free(HEAD_WIDTH, HEAD_WIDTH), "split-heads", HEADS),
    "free geometry of independent": (free(WIDTH, WIDTH), "independent-heads", HEADS),
    "free geometry of single": (free(WIDTH, WIDTH), "single-head", 1),
    "free geometry of grouped": (free(HEAD_WIDTH, HEAD_WIDTH, 2), grouped(2), HEADS),
    "free geometry of multi-query": (free(HEAD_WIDTH, HEAD_WIDTH, 1), grouped(1), HEADS),
}


@pytest.mark.parametrize(("one", "other", "heads"), SAME.values(), ids=SAME.keys())
@pytest.mark.parametrize("positional", ["sinusoidal", "rotary", "alibi"])
def test_reduced_geometry_is_the_same_function(one, other, heads, positional):
    configs = (tiny_config(positional, name, heads=heads) for name in (one, other))
    assert same_function(*configs).state == "holds"


@pytest.mark.parametrize("kv_heads", [1, 2])
@pytest.mark.parametrize("positional", ["sinusoidal", "rotary", "alibi"])
def test_grouped_query_is_split_heads_with_shared_keys_and_values(kv_heads, positional):
    one = tiny_config(positional, grouped(kv_heads))
    other = tiny_config(positional, "split-heads")

    def carry(weights):
        return {name: _widen(name, value, kv_heads) for name, value in weights.items()}

    assert same_function(one, other, carry).state == "holds"


def _widen(name, value, kv_heads):
    """Copy each key and value head to every query head of its group, heads in their order."""
    if "queries_keys_values" in name:
        query, shared = value.split([WIDTH, 2 * kv_heads * HEAD_WIDTH], dim=-1)
    elif "keys_values" in name:
        query, shared = value[..., :0], value
    else:
        return value
    blocks = shared.split(HEAD_WIDTH, dim=-1)
    keys, values = blocks[:kv_heads], blocks[kv_heads:]
    group = HEADS // kv_heads
    copied = [half[head // group] for half in (keys, values) for head in range(HEADS)]
    return torch.cat([query, *copied], dim=-1)


def test_learned_table_of_sinusoids_is_sinusoidal():
    learned, sinusoidal = tiny_config("learned"), tiny_config("sinusoidal")
    place = torch.arange(128, dtype=torch.float64)[:, None]
    turns = place / 10000.0 ** (torch.arange(0, WIDTH, 2, dtype=torch.float64) / WIDTH)
    table = torch.zeros(128, WIDTH, dtype=torch.float64)
    table[:, 0::2], table[:, 1::2] = turns.sin(), turns.cos()

    def carry(weights):
        tables = {f"positionals.{role}.table": table.expand(2, -1, -1) for role in TABLES}
        return {**weights, **tables}

    assert same_function(sinusoidal, learned, carry).state == "holds"


TABLES = ("encoder", "decoder")


def test_masks_that_differ_only_where_nothing_is_read_are_the_same_function():
    masks = {"encoder": "padding", "cross": "padding"}
    one = tiny_config(masking=masks | {"decoder": "causal"})
    other = tiny_config(masking=masks | {"decoder": "padding-causal"})
    assert same_function(one, other).state == "holds"


def test_different_variants_are_told_apart():
    assert same_function(tiny_config("none"), tiny_config("alibi")).state == "broken"
    assert same_function(tiny_config("rotary"), tiny_config("none")).state == "broken"
    assert same_function(tiny_config("none"), tiny_config(masking="causal")).state == "broken"
