"""Attention against torch's module, against loops for notebook 1's heads, and against rules by hand."""

import math

import pytest
import torch

from headtohead.model.attention_context import AttentionContext
from headtohead.testing.subject import KERNELS, Subject, force_kernel
from headtohead.testing.tiny import tiny_config


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("role", ["encoder", "decoder", "cross"])
def test_split_heads_equal_torchs_multi_head_attention(role, kernel):
    subject = Subject(tiny_config(positional="none"))
    attention, mask = subject.attention(role), subject.mask(role)
    x, memory = subject.activations(role)
    with force_kernel(kernel):
        found = attention(x, memory, subject.attention_context(role, mask=mask))
    weights = attention.state_dict()
    for member in range(2):
        theirs = torch.nn.MultiheadAttention(16, 4, batch_first=True, dtype=torch.float64)
        named = {name: value[member] for name, value in weights.items()}
        with torch.no_grad():
            theirs.in_proj_weight.copy_(_joined(named, "weight").T)
            theirs.in_proj_bias.copy_(_joined(named, "bias")[0])
            theirs.out_proj.weight.copy_(named["output.weight"].T)
            theirs.out_proj.bias.copy_(named["output.bias"][0])
        side = x[member] if memory is None else memory[member]
        hidden = (~mask[member]).repeat_interleave(4, dim=0)
        expected, shown = theirs(x[member], side, side, attn_mask=hidden, average_attn_weights=False)
        torch.testing.assert_close(found[member], expected, rtol=0, atol=1e-12)
        seen = {}
        attention(x, memory, subject.attention_context(role, mask=mask), None, seen.__setitem__)
        torch.testing.assert_close(seen["weights"][member], shown, rtol=0, atol=1e-12)


def _joined(named, part):
    if f"queries_keys_values.{part}" in named:
        return named[f"queries_keys_values.{part}"]
    return torch.cat([named[f"queries.{part}"], named[f"keys_values.{part}"]], dim=-1)


def test_independent_heads_equal_the_loop_of_notebook_1():
    heads, width = 4, 16
    subject = Subject(tiny_config("none", "independent-heads", mask_value="-1e9"))
    attention, mask = subject.attention("encoder"), subject.mask("encoder")
    x, _ = subject.activations("encoder")
    found = attention(x, None, subject.attention_context("encoder", mask=mask))
    for member in range(2):
        weight = attention.queries_keys_values.weight[member]
        bias = attention.queries_keys_values.bias[member, 0]
        outputs = []
        for head in range(heads):
            q, k, v = (
                x[member] @ weight[:, start : start + width] + bias[start : start + width]
                for start in (part * heads * width + head * width for part in range(3))
            )
            scores = q @ k.transpose(-2, -1) / math.sqrt(width)
            scores = scores.masked_fill(mask[member] == 0, -1e9)
            outputs.append(torch.softmax(scores, dim=-1) @ v)
        expected = torch.cat(outputs, dim=-1) @ attention.output.weight[member]
        expected = expected + attention.output.bias[member, 0]
        torch.testing.assert_close(found[member], expected, rtol=0, atol=1e-12)


def test_every_head_has_its_own_geometry_per_role():
    subject = Subject(
        tiny_config(
            attention={
                "encoder": {"name": "free-geometry", "key_width": 3, "value_width": 5, "kv_heads": 2},
                "decoder": "single-head",
                "cross": "independent-heads",
            }
        )
    )
    seen = {}
    for role in ("encoder", "decoder", "cross"):
        x, memory = subject.activations(role)
        recorded = {}
        subject.attention(role)(x, memory, subject.attention_context(role), None, recorded.__setitem__)
        seen[role] = [tuple(recorded[name].shape) for name in ("queries", "keys", "values")]
    assert seen == {
        "encoder": [(2, 3, 4, 6, 3), (2, 3, 2, 6, 3), (2, 3, 2, 6, 5)],
        "decoder": [(2, 3, 1, 5, 16)] * 3,
        "cross": [(2, 3, 4, 5, 16), (2, 3, 4, 6, 16), (2, 3, 4, 6, 16)],
    }


def test_mask_values_give_the_weights_of_the_formula():
    """One query, two keys, the second masked: its weight is 0, or 1/2 if all keys are masked."""
    for mask_value, weight in (("-inf", 0.0), ("-1e9", 0.5), ("additive", None)):
        subject = Subject(tiny_config("none", "single-head", mask_value=mask_value))
        attention = subject.attention("encoder")
        x, _ = subject.activations("encoder")
        positions = torch.arange(2).unsqueeze(0)
        half = torch.tensor([[True, False], [False, False]]).expand(2, 3, 1, 2, 2)
        seen = {}
        attention(x[:, :, :2], None, AttentionContext(positions, positions, half), None, seen.__setitem__)
        assert seen["weights"][..., 0, :].eq(torch.tensor([1.0, 0.0])).all()
        if weight is None:
            expected = seen["scores"][..., 1, :].softmax(-1)
            torch.testing.assert_close(seen["weights"][..., 1, :], expected, rtol=0, atol=1e-6)
        else:
            assert seen["weights"][..., 1, :].eq(weight).all()


def test_masked_values_do_not_change_the_output():
    subject = Subject(tiny_config("rotary", "grouped-query"))
    attention, mask = subject.attention("cross"), subject.mask("cross")
    x, memory = subject.activations("cross")
    changed = memory.clone()
    changed[0, 1, 3:] += 100.0
    original, with_changed_memory = (
        attention(x, side, subject.attention_context("cross", mask=mask)) for side in (memory, changed)
    )
    assert int(subject.sentences.source_lengths[0, 1]) == 3
    assert (original == with_changed_memory).all()
