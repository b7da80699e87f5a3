"""Variants that are special cases of other variants compute the same from the same weights."""

import pytest
import torch

from headtohead.model.attention_context import AttentionContext
from headtohead.testing.subject import Subject
from headtohead.testing.tiny import tiny_config
from made import case_table
from made.equality import same_function

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


@case_table(("first", "second", "heads"), SAME.values(), ids=SAME.keys(), default=3)
@case_table("positional", ["sinusoidal", "rotary", "alibi"], default=3)
def test_reduced_geometry_is_the_same_function(first, second, heads, positional):
    configs = (tiny_config(positional, name, heads=heads) for name in (first, second))
    assert same_function(*configs)


@pytest.mark.parametrize("kv_heads", [1, 2])
@pytest.mark.parametrize("positional", ["sinusoidal", "rotary", "alibi"])
def test_grouped_query_is_split_heads_with_shared_keys_and_values(kv_heads, positional):
    grouped_query = tiny_config(positional, grouped(kv_heads))
    split_heads = tiny_config(positional, "split-heads")

    def convert(weights):
        return {name: _widen(name, value, kv_heads) for name, value in weights.items()}

    assert same_function(grouped_query, split_heads, convert)


def _widen(name, value, kv_heads):
    """Repeat each key and value head for every query head of its group."""
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
    position = torch.arange(128, dtype=torch.float64)[:, None]
    turns = position / 10000.0 ** (torch.arange(0, WIDTH, 2, dtype=torch.float64) / WIDTH)
    table = torch.zeros(128, WIDTH, dtype=torch.float64)
    table[:, 0::2], table[:, 1::2] = turns.sin(), turns.cos()

    def convert(weights):
        tables = {f"positionals.{role}.table": table.expand(2, -1, -1) for role in TABLES}
        return {**weights, **tables}

    assert same_function(sinusoidal, learned, convert)


TABLES = ("encoder", "decoder")


def everywhere(encoding):
    return {"encoder": encoding, "decoder": encoding, "cross": encoding}


TABLES_OF = {"t5-relative": {"table"}, "shaw-relative": {"on_keys", "on_values", "keys", "of_values"}}


@case_table("name", TABLES_OF, default=2)
@case_table("attention", ["split-heads", "talking-heads", "differential"], default=2)
def test_relative_tables_of_zeros_are_no_encoding(name, attention):
    encoded = tiny_config(everywhere(name), attention)
    plain = tiny_config("none", attention)
    subject = Subject(encoded)
    own = {key for key in subject.model.state_dict() if key.startswith("positionals.")}
    assert {key.rpartition(".")[2] for key in own} <= TABLES_OF[name]

    def convert(weights):
        shapes = {key: value.shape for key, value in subject.model.state_dict().items()}
        return {**weights, **{key: torch.zeros(shapes[key], dtype=torch.float64) for key in own}}

    assert same_function(plain, encoded, convert)


@pytest.mark.parametrize("position", [0, 7])
def test_rotary_with_equal_positions_is_no_encoding(position):
    encoded, plain = (Subject(tiny_config(name)) for name in ("rotary", "none"))
    plain.model.load_state_dict(encoded.model.state_dict())
    for role in ("encoder", "decoder"):
        x, memory = encoded.activations(role)
        queries, keys = encoded.times(role)
        context = AttentionContext(torch.full((1, queries), position), torch.full((1, keys), position), None)
        difference = encoded.attention(role)(x, memory, context) - plain.attention(role)(x, memory, context)
        assert float(difference.detach().abs().max()) < 1e-12


MASKS = {
    "a window as wide as the sentence": ({"decoder": {"name": "window", "width": 5}}, {"decoder": "padding-causal"}),
    "a window as wide as the source": ({"encoder": {"name": "window", "width": 6}}, {"encoder": "padding"}),
    "a prefix of length 0": ({"decoder": {"name": "prefix", "length": 0}}, {"decoder": "padding-causal"}),
    "a prefix of <sos>": ({"decoder": {"name": "prefix", "length": 1}}, {"decoder": "padding-causal"}),
    "a prefix longer than the sentence": ({"decoder": {"name": "prefix", "length": 99}}, {"decoder": "padding"}),
}
PLAIN_MASKS = {"encoder": "padding", "decoder": "padding-causal", "cross": "padding"}


@case_table(("first", "second"), MASKS.values(), ids=MASKS.keys(), default=6)
@case_table("attention", ["split-heads", "sigmoid", "linear"], default=1)
def test_equal_masks_are_the_same_function(first, second, attention):
    configs = [tiny_config(attention=attention, masking=PLAIN_MASKS | roles) for roles in (first, second)]
    assert same_function(*configs)


def test_in_evaluation_shape_is_sinusoidal():
    shape = tiny_config("shape")
    buffers = Subject(shape).model.state_dict()
    assert same_function(tiny_config("sinusoidal"), shape, lambda weights: {**buffers, **weights})


NARROW = PLAIN_MASKS | {"decoder": {"name": "window", "width": 3}}
DIFFERENT = [
    (tiny_config(masking=NARROW), tiny_config()),
    (tiny_config("none"), tiny_config("alibi")),
    (tiny_config("rotary"), tiny_config("none")),
    (tiny_config("none"), tiny_config(masking="causal")),
]


@pytest.mark.parametrize(("first", "second"), DIFFERENT, ids=["narrower window", "alibi", "rotary", "causal encoder"])
def test_different_variants_are_different_functions(first, second):
    assert not same_function(first, second)
