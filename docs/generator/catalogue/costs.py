"""Costs of entries: stated formulas, compared with counts at several sizes.

An entry states its cost in the class attribute ``cost`` (`headtohead.plugin.Cost`). FLOPs are those of
matrix products, two for each multiply-add, as torch counts them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from pydantic import ValidationError
from torch.nn.attention import SDPBackend, sdpa_kernel

from headtohead.errors import HeadToHeadError
from headtohead.model.attention import MultiHeadAttention
from headtohead.model.attention_context import AttentionContext
from headtohead.model.counting import Operations
from headtohead.model.dropout import Dropout, DropoutRNG
from headtohead.plugins.attention import Attention
from headtohead.plugins.component import BuildContext, Component
from headtohead.plugins.entry import Cost, Options
from headtohead.plugins.positional import Positional
from headtohead.plugins.registry import registered
from headtohead.schema.run_config import ModelConfig

Sizes = Mapping[str, int]

PLAIN_ATTENTION, PLAIN_POSITIONAL = "split-heads", "none"
QUANTITIES = ("parameters", "biases", "flops")
SHOWN_AT: Sizes = {"d": 32, "h": 4, "L": 2, "n": 16}
"""Sizes of the counts of an entry without formulas."""

CHECKED_AT: tuple[Sizes, ...] = (
    {"d": 24, "h": 6, "L": 3, "n": 5},
    {"d": 32, "h": 4, "L": 2, "n": 16},
    {"d": 48, "h": 2, "L": 1, "n": 3},
    {"d": 64, "h": 8, "L": 4, "n": 7},
)
"""No size but L is 1, since torch counts no product along an axis of length 1."""

OPTION_VALUES = (2, 4, 6, 8, 12)
"""Values of integer options in formulas; the options of one comparison have different values."""


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
    """Return each quantity as text: the stated formula, or the counts at fixed sizes.

    Raises:
        HeadToHeadError: If a stated formula differs from the counts.
    """
    verify(entry, role)
    if entry.cost is not None:
        return {name: pretty(getattr(entry.cost, name)) for name in QUANTITIES}
    counts = [count(entry, entry.Options(), sizes, role) for sizes in (SHOWN_AT, *CHECKED_AT)]
    sizes = ", ".join(f"{name} = {value}" for name, value in SHOWN_AT.items())
    shown = {}
    for name in QUANTITIES:
        numbers = [None if counted is None else getattr(counted, name) for counted in counts]
        shown[name] = f"{numbers[0]:,} at {sizes}" if numbers[0] is not None else f"not supported at {sizes}"
        if not any(numbers):
            shown[name] = "0"
    return shown


def verify(entry: type[Component], role: str) -> int:
    """Compare the formulas of an entry with counts, and return the number of comparisons, 0 without formulas.

    Raises:
        HeadToHeadError: If a formula differs from a count, cannot be evaluated, or was compared nowhere.
    """
    if entry.cost is None:
        return 0
    compared = dict.fromkeys(QUANTITIES, 0)
    for sizes, options in _samples(entry, entry.cost):
        variables = {**sizes, **{name: value for name, value in options if isinstance(value, int)}}
        if issubclass(entry, Attention):
            variables["n"] = entry.only_length(options, _model(sizes)) or sizes["n"]
        counts = count(entry, options, variables, role)
        for name in QUANTITIES:
            counted = None if counts is None else getattr(counts, name)
            if counted is None:
                continue
            stated = _evaluate(entry, name, variables)
            if stated != counted:
                at = ", ".join(f"{key} = {value}" for key, value in sorted(variables.items()))
                raise HeadToHeadError(
                    f"{entry.entry_name}: cost formula {name} = '{getattr(entry.cost, name)}' gives {stated:g}, "
                    f"but counting gives {counted} at {at}; correct the formula"
                )
            compared[name] += 1
    missed = [name for name in QUANTITIES if not compared[name]]
    if missed:
        raise HeadToHeadError(f"{entry.entry_name}: {missed[0]} could not be counted at any size; leave out cost")
    return sum(compared.values())


def _evaluate(entry: type[Component], quantity: str, variables: Sizes) -> float:
    formula: str = getattr(entry.cost, quantity)
    try:
        return float(eval(formula, {"__builtins__": {}}, dict(variables)))
    except (NameError, SyntaxError, TypeError, ArithmeticError) as error:
        raise HeadToHeadError(
            f"{entry.entry_name}: cost formula {quantity} = '{formula}' cannot be evaluated: {error}; "
            "use d, h, L, n and integer options of the entry"
        ) from error


def pretty(formula: str) -> str:
    """Return a formula in mathematical notation.

    >>> pretty("2*d**2 + 2*d**2*kv_heads/h")
    '2d² + 2d²·kv_heads/h'
    """
    tokens = re.findall(r"\w+(?:\*\*[23])?|.", formula)
    is_word = [sum(map(str.isalpha, token)) > 1 for token in tokens]
    for index, token in enumerate(tokens):
        if token == "*":
            tokens[index] = "·" if is_word[index - 1] or is_word[index + 1] else ""
    return "".join(tokens).replace("**2", "²").replace("**3", "³").replace("-", "−")


# -- counting ------------------------------------------------------------------------------------


def count(entry: type[Component], options: Options, sizes: Sizes, role: str) -> CostCounts | None:
    """Count the cost of an entry; None if its options do not fit the sizes."""
    try:
        if issubclass(entry, Attention):
            plain = _attention(entry, options, sizes, role)
            biased = _attention(entry, options, sizes, role, bias=True)
            return CostCounts(_weights(plain), _weights(biased) - _weights(plain), _attention_flops(plain, sizes))
        assert issubclass(entry, Positional)
        style = registered("attention", PLAIN_ATTENTION)
        part = entry(options, _context(style, style.Options(), sizes, role))
    except HeadToHeadError:
        return None
    with_encoding = _attention_flops(_attention(style, style.Options(), sizes, role, positional=part), sizes)
    embedding = _embedding_flops(part, sizes, role)
    if with_encoding is None or embedding is None:
        return CostCounts(_weights(part), 0, None)
    return CostCounts(
        _weights(part), 0, with_encoding + embedding - _plain_flops(sizes["d"], sizes["h"], sizes["n"], role)
    )


def _samples(entry: type[Component], cost: Cost) -> Iterator[tuple[Sizes, Options]]:
    """Yield sizes with default options, and with several values of the options in the formulas."""
    used = re.findall(r"[A-Za-z_]\w*", " ".join((cost.parameters, cost.biases, cost.flops)))
    names = sorted(set(used) & set(entry.Options.model_fields))
    for sizes in CHECKED_AT:
        for start in range(len(OPTION_VALUES)) if names else ():
            values = {name: OPTION_VALUES[(start + index) % len(OPTION_VALUES)] for index, name in enumerate(names)}
            try:
                yield sizes, entry.Options.model_validate(values)
            except ValidationError:
                continue
        default = entry.Options()
        if all(isinstance(getattr(default, name), int) for name in names):
            yield sizes, default


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
    no_dropout = Dropout(DropoutRNG([0], torch.device("cpu")), 0, 0.0)
    built = style(options, context)
    return MultiHeadAttention(built, positional, "-inf", no_dropout, bias, "xavier", self_attention=role != "cross")


def _context(style: type[Attention], options: Options, sizes: Sizes, role: str) -> BuildContext:
    geometry = style.geometry(options, _model(sizes))
    return BuildContext(role, sizes.get("L", 1), sizes["d"], geometry, [torch.Generator().manual_seed(1)], layer=0)


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
    return _flops(lambda: part(x, None if part.self_attention else x, context))


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
