"""Attention against torch's module, against loops for notebook 1's heads, and against rules by hand."""

import math

import pytest
import torch

from headtohead.testing.subject import KERNELS, Subject, force_kernel
from headtohead.testing.tiny import tiny_config


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("role", ["encoder", "decoder", "cross"])
def test_split_heads_equal_torchs_multi_head_attention(role, kernel):
    subject = Subject(tiny_config(positional="none"))
    attention, mask = subject.attention(role), subject.mask(role)
    x, memory = subject.activations(role)
    with force_kernel(kernel):
        found, _ = attention(x, memory, subject.attention_context(role, mask=mask))
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
        expected, shown = theirs(
            x[member], side, side, attn_mask=hidden, average_attn_weights=False
        )
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
    found, _ = attention(x, None, subject.attention_context("encoder", mask=mask))
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
