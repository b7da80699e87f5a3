"""Costs of entries, counted at fixed sizes with default options.

FLOPs are those of matrix products, two for each multiply-add, as torch counts them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from headtohead.errors import HeadToHeadError
from headtohead.model.attention import MultiHeadAttention
from headtohead.model.attention_context import AttentionContext
from headtohead.model.counting import Operations
from headtohead.model.dropout import Dropout, DropoutRNG, Thresholds
from headtohead.plugins.attention import Attention
from headtohead.plugins.component import BuildContext, Component
from headtohead.plugins.entry import Options
from headtohead.plugins.positional import Positional
from headtohead.plugins.registry import registered
from headtohead.schema.run_config import ModelConfig

Sizes = Mapping[str, int]

PLAIN_ATTENTION, PLAIN_POSITIONAL = "split-heads", "none"
SHOWN_AT: Sizes = {"d": 32, "h": 4, "L": 2, "n": 16}
"""Sizes of the counts: d_model, heads, layers and tokens."""


@dataclass(frozen=True)
class CostCounts:
    """Counted cost of one entry; ``flops`` is None if the entry does not support these sizes.

    ``parameters`` (without biases) and ``biases`` are those of one attention, or of an encoding for
    all layers of a role. ``flops`` are those of one attention over n tokens, or what an encoding
    adds to them.
    """

    parameters: int
    biases: int
    flops: int | None


def describe_costs(entry: type[Component], role: str) -> dict[str, str]:
    """Return each counted quantity as text, with the sizes."""
    sizes, options = dict(SHOWN_AT), entry.Options()
    if issubclass(entry, Attention):
        sizes["n"] = entry.only_length(options, _model(sizes)) or sizes["n"]
    counts = count(entry, options, sizes, role)
    at = ", ".join(f"{name} = {value}" for name, value in sizes.items())
    numbers = (
        {"parameters": None, "biases": None, "flops": None} if counts is None else vars(counts)
    )
    return {
        name: f"not supported at {at}"
        if number is None
        else f"{number:,} at {at}"
        if number
        else "0"
        for name, number in numbers.items()
    }


# -- counting ------------------------------------------------------------------------------------


def count(entry: type[Component], options: Options, sizes: Sizes, role: str) -> CostCounts | None:
    """Count the cost of an entry; None if its options do not fit the sizes."""
    try:
        if issubclass(entry, Attention):
            plain = _attention(entry, options, sizes, role)
            biased = _attention(entry, options, sizes, role, bias=True)
            return CostCounts(
                _weights(plain), _weights(biased) - _weights(plain), _attention_flops(plain, sizes)
            )
        assert issubclass(entry, Positional)
        style = registered("attention", PLAIN_ATTENTION)
        part = entry(options, _context(style, style.Options(), sizes, role))
    except HeadToHeadError:
        return None
    with_encoding = _attention_flops(
        _attention(style, style.Options(), sizes, role, positional=part), sizes
    )
    embedding = _embedding_flops(part, sizes, role)
    if with_encoding is None or embedding is None:
        return CostCounts(_weights(part), 0, None)
    return CostCounts(
        _weights(part),
        0,
        with_encoding + embedding - _plain_flops(sizes["d"], sizes["h"], sizes["n"], role),
    )


@cache
def _plain_flops(width: int, heads: int, tokens: int, role: str) -> int:
    """Count the FLOPs of plain attention without positional encoding."""
    style = registered("attention", PLAIN_ATTENTION)
    sizes = {"d": width, "h": heads, "n": tokens}
    flops = _attention_flops(_attention(style, style.Options(), sizes, role), sizes)
    assert flops is not None
    return flops


def _attention(
    style: type[Attention],
    options: Options,
    sizes: Sizes,
    role: str,
    bias: bool = False,
    positional: Positional | None = None,
) -> MultiHeadAttention:
    context = _context(style, options, sizes, role)
    if positional is None:
        none = registered("positional", PLAIN_POSITIONAL)
        positional = none(none.Options(), context)
    no_dropout = Dropout(DropoutRNG([0], torch.device("cpu")), 0, Thresholds(0.0))
    built = style(options, context)
    return MultiHeadAttention(
        built, positional, "-inf", no_dropout, bias, "xavier", is_self_attention=role != "cross"
    )


def _context(style: type[Attention], options: Options, sizes: Sizes, role: str) -> BuildContext:
    geometry = style.geometry(options, _model(sizes))
    return BuildContext(
        role, sizes.get("L", 1), sizes["d"], geometry, [torch.Generator().manual_seed(1)], layer=0
    )


def _model(sizes: Sizes) -> ModelConfig:
    return ModelConfig(d_model=sizes["d"], heads=sizes["h"])


def _weights(part: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in part.parameters())


def _attention_flops(part: MultiHeadAttention, sizes: Sizes) -> int | None:
    tokens = sizes["n"]
    if _too_long(tokens, part.style) or _too_long(tokens, part.positional):
        return None
    x = torch.zeros(1, tokens, sizes["d"])
    positions = torch.arange(tokens).unsqueeze(0)
    mask = torch.ones(1, 1, 1, tokens, tokens, dtype=torch.bool)
    context = AttentionContext(positions, positions, mask, declared=frozenset({"shows-the-rest"}))
    return _flops(lambda: part(x, None if part.is_self_attention else x, context))


def _embedding_flops(part: Positional, sizes: Sizes, role: str) -> int | None:
    if role == "cross":
        return 0
    if _too_long(sizes["n"], part):
        return None
    positions = torch.arange(sizes["n"]).unsqueeze(0)
    return _flops(lambda: part.embed(positions, role))


def _too_long(tokens: int, part: Component) -> bool:
    limit = type(part).limit(part.options)
    return limit is not None and limit < tokens


def _flops(compute: Callable[[], Any]) -> int | None:
    """Count the FLOPs of a computation; None if it raises `HeadToHeadError`."""
    # torch does not count the fused CPU kernel; the plain kernel computes the same products.
    operations = Operations()
    try:
        with sdpa_kernel(SDPBackend.MATH), operations, torch.no_grad():
            compute()
    except HeadToHeadError:
        return None
    return operations.flops
