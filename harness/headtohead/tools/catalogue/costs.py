"""What an entry costs, as a closed form in the sizes of the model.

Letters: d is the width of the model, h the heads, L the layers that share an encoding, n the tokens
of a sentence that reads itself; an option of the entry stands by its name. Operations are those of
matrix products, two for each multiplication with its addition, as torch's counter counts them.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import Any, cast

import torch
from pydantic import ValidationError
from pydantic.fields import FieldInfo
from torch.nn.attention import SDPBackend, sdpa_kernel

from headtohead.errors import HeadToHeadError
from headtohead.model.attention import MultiHeadAttention
from headtohead.model.dropout import Dropout, DropoutStream
from headtohead.model.operations import Operations
from headtohead.model.view import View
from headtohead.plugins.attention import Attention
from headtohead.plugins.entry import Options
from headtohead.plugins.positional import BuildContext, Part, Positional
from headtohead.plugins.registry import registered
from headtohead.schema.config import ModelConfig
from headtohead.tools.catalogue.forms import Counts, Form, Sizes, find_forms

PLAIN_ATTENTION, PLAIN_POSITIONAL = "split-heads", "none"
TOKENS = (2, 3, 5, 6)
"""Lengths at which operations are counted: one more than a polynomial of second degree needs."""
VALUES = (1, 2, 3, 4, 6, 8, 12, 16)
"""What options are set to; the first serves only to tell whether an option counts."""
SAMPLES = 2000


@dataclass(frozen=True)
class Costs:
    """Closed forms of one entry in one role; None where no polynomial gives the counts.

    ``parameters`` are those of one attention, biases left out, or of one encoding, which serves
    all layers of a role. ``biases`` come on top where ``model.bias`` is on. ``operations`` are
    those of one attention over n tokens; of an encoding, those that it adds.
    """

    parameters: Form | None
    biases: Form | None
    operations: Form | None


def attention_costs(style: type[Attention], role: str) -> Costs:
    """Return what one attention of a role costs."""
    options = _counted_options(style, lambda one, sizes: attention_weights(style, one, sizes, role))

    def count(sizes: Sizes) -> Counts | None:
        chosen = _chosen(style, options, sizes)
        weights = attention_weights(style, chosen, sizes, role)
        all_weights = attention_weights(style, chosen, sizes, role, bias=True)
        if weights is None or all_weights is None:
            return None
        only = style.only_length(chosen or style.Options(), _model(sizes))
        if only is not None:
            operations = attention_operations(style, chosen, {**sizes, "n": only}, role)
            return weights, all_weights - weights, operations
        parabola = _parabola(lambda tokens: attention_operations(style, chosen, {**sizes, "n": tokens}, role))
        return weights, all_weights - weights, *parabola

    highest = 2 if style.only_length(style.Options(), _model({"d": 24, "h": 6})) is None else 3
    powers = {"d": tuple(range(highest + 1)), **_powers(options)}
    parameters, biases, *found = find_forms(count, powers, _samples(options)) or (None,) * 3
    if parameters is None and options:
        squares = powers | dict.fromkeys(options, (0, 1, 2))
        parameters, biases, *found = find_forms(count, squares, _samples(options))
    operations = _in_tokens(found)
    if operations is None and options:
        operations = _plain_operations(
            powers, options, lambda sizes: attention_operations(style, style.Options(), sizes, role)
        )
    return Costs(parameters, biases, operations)


def positional_costs(encoding: type[Positional], role: str) -> Costs:
    """Return what one encoding of a role costs."""
    options = _counted_options(encoding, lambda one, sizes: positional_weights(encoding, one, sizes, role))

    def count(sizes: Sizes) -> Counts | None:
        chosen = _chosen(encoding, options, sizes)
        weights = positional_weights(encoding, chosen, sizes, role)
        if weights is None:
            return None
        parabola = _parabola(lambda tokens: positional_operations(encoding, chosen, {**sizes, "n": tokens}, role))
        return weights, *parabola

    powers = {"d": (0, 1), "L": (0, 1), **_powers(options)}
    parameters, *found = find_forms(count, powers, _samples(options)) or (None,) * 2
    if parameters is None and options:
        squares = powers | dict.fromkeys(options, (0, 1, 2))
        parameters, *found = find_forms(count, squares, _samples(options))
    operations = _in_tokens(found)
    if operations is None and options:
        operations = _plain_operations(
            powers, options, lambda sizes: positional_operations(encoding, encoding.Options(), sizes, role)
        )
    return Costs(parameters, Form((), {}), operations)


def _plain_operations(
    powers: Mapping[str, Sequence[int]], options: Mapping[str, Sequence[int]], count: Callable[[Sizes], int | None]
) -> Form | None:
    """Return the form of the operations where the options are at their defaults."""
    left = {symbol: found for symbol, found in powers.items() if symbol not in options}
    forms = find_forms(lambda sizes: _parabola(lambda tokens: count({**sizes, "n": tokens})), left, _samples({}))
    return _in_tokens(forms)


def attention_weights(
    style: type[Attention], options: Options | None, sizes: Sizes, role: str, bias: bool = False
) -> int | None:
    """Count the weights of one attention; None where the sizes do not fit."""
    part = _attention(style, options, sizes, role, bias)
    return None if part is None else _weights(part)


def positional_weights(encoding: type[Positional], options: Options | None, sizes: Sizes, role: str) -> int | None:
    """Count the weights of an encoding; None where its options do not fit."""
    part = _positional(encoding, options, sizes, role)
    return None if part is None else _weights(part)


def attention_operations(style: type[Attention], options: Options | None, sizes: Sizes, role: str) -> int | None:
    """Count the operations of one attention over ``sizes["n"]`` tokens; None if undefined."""
    part = _attention(style, options, sizes, role, bias=False)
    return None if part is None else _counted(part, sizes)


def positional_operations(encoding: type[Positional], options: Options | None, sizes: Sizes, role: str) -> int | None:
    """Count the operations that an encoding adds to one attention, embeddings included."""
    part = _positional(encoding, options, sizes, role)
    if part is None:
        return None
    style = registered("attention", PLAIN_ATTENTION)
    attention = _attention(style, style.Options(), sizes, role, bias=False, positional=part)
    bare = _plain_attention_operations(sizes["d"], sizes["h"], sizes["n"], role)
    if attention is None or bare is None:
        return None
    counted = _counted(attention, sizes)
    embedded = _counted_embedding(part, sizes, role)
    return None if counted is None or embedded is None else counted - bare + embedded


@cache
def _plain_attention_operations(width: int, heads: int, tokens: int, role: str) -> int | None:
    """Count the operations of one plain attention, with which every encoding is compared."""
    style = registered("attention", PLAIN_ATTENTION)
    sizes = {"d": width, "h": heads, "n": tokens}
    return attention_operations(style, style.Options(), sizes, role)


def _attention(
    style: type[Attention],
    options: Options | None,
    sizes: Sizes,
    role: str,
    bias: bool,
    positional: Positional | None = None,
) -> MultiHeadAttention | None:
    """Build an attention; None where the sizes do not fit."""
    if options is None:
        return None
    try:
        context = _context(style, options, sizes, role)
    except HeadToHeadError:
        return None
    if positional is None:
        none = registered("positional", PLAIN_POSITIONAL)
        positional = none(none.Options(), context)
    return MultiHeadAttention(
        context,
        style(options, context),
        positional,
        "-inf",
        Dropout(DropoutStream([0], torch.device("cpu")), 0, 0.0),
        bias,
        "xavier",
        self_attention=role != "cross",
    )


def _positional(encoding: type[Positional], options: Options | None, sizes: Sizes, role: str) -> Positional | None:
    if options is None:
        return None
    style = registered("attention", PLAIN_ATTENTION)
    try:
        return encoding(options, _context(style, style.Options(), sizes, role))
    except HeadToHeadError:
        return None


def _context(style: type[Attention], options: Options, sizes: Sizes, role: str) -> BuildContext:
    geometry = style.geometry(options, _model(sizes))
    generators = [torch.Generator().manual_seed(1)]
    return BuildContext(role, sizes.get("L", 1), sizes["d"], geometry, generators, layer=0)


def _weights(part: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in part.parameters())


def _counted(part: MultiHeadAttention, sizes: Sizes) -> int | None:
    tokens = sizes["n"]
    if _ends_before(tokens, part.style) or _ends_before(tokens, part.positional):
        return None
    x = torch.zeros(1, tokens, sizes["d"])
    places = torch.arange(tokens).unsqueeze(0)
    keep = torch.ones(1, 1, 1, tokens, tokens, dtype=torch.bool)
    view = View(places, places, keep)
    return _operations(lambda: part.attend(x, None if part.self_attention else x, view))


def _counted_embedding(part: Positional, sizes: Sizes, role: str) -> int | None:
    if role == "cross":
        return 0
    if _ends_before(sizes["n"], part):
        return None
    places = torch.arange(sizes["n"]).unsqueeze(0)
    return _operations(lambda: part.embed(places, role))


def _ends_before(tokens: int, part: Part) -> bool:
    """Tell whether an entry is not defined for so many places."""
    limit = type(part).limit(part.options)
    return limit is not None and limit < tokens


def _operations(compute: Callable[[], Any]) -> int | None:
    """Count the operations of a computation; None if it has no meaning."""
    # The fused kernel of CPUs is not counted; the plain one is, and its products are the same.
    operations = Operations()
    try:
        with sdpa_kernel(SDPBackend.MATH), operations, torch.no_grad():
            compute()
    except HeadToHeadError:
        return None
    return operations.flops


def _model(sizes: Sizes) -> ModelConfig:
    return ModelConfig(d_model=sizes["d"], heads=sizes["h"])


# -- sizes to count at ---------------------------------------------------------------------------


def _samples(options: Mapping[str, Sequence[int]]) -> Iterator[Sizes]:
    """Yield sizes in no order that a form could follow, always the same.

    None of them is 1: torch leaves out products along such an axis.
    """
    chance = random.Random(1)
    for _ in range(SAMPLES):
        heads = chance.randint(2, 9)
        sizes = {"h": heads, "d": heads * chance.choice((2, 4, 6, 8)), "L": chance.randint(1, 4)}
        yield sizes | {name: chance.choice(values) for name, values in options.items()}


def _powers(options: Mapping[str, Sequence[int]]) -> dict[str, Sequence[int]]:
    """Return the exponents of heads and options; where many are free, none divides."""
    heads = (-1, 0, 1, 2) if len(options) < 2 else (0, 1, 2)
    return {"h": heads, **dict.fromkeys(options, (0, 1))}


def _parabola(count: Callable[[int], int | None]) -> Counts:
    """Return the coefficients of a count in the number of tokens, from the constant on.

    Three Nones if it is no polynomial of the second degree with whole numbers.
    """
    counts = [count(tokens) for tokens in TOKENS]
    if None in counts:
        return (None,) * 3
    (x, y, z), (a, b, c) = TOKENS[:3], cast("list[int]", counts)[:3]
    square = Fraction((c - b) * (y - x) - (b - a) * (z - y), (z - y) * (z - x) * (y - x))
    linear = Fraction(b - a, y - x) - square * (x + y)
    constant = a - linear * x - square * x * x
    at_all = [constant + linear * tokens + square * tokens**2 for tokens in TOKENS]
    coefficients = (constant, linear, square)
    if at_all != counts or any(one.denominator != 1 for one in coefficients):
        return (None,) * 3
    return tuple(int(one) for one in coefficients)


def _in_tokens(forms: Sequence[Form | None]) -> Form | None:
    """Join the forms of the coefficients of 1, n and n²; one alone does not depend on n."""
    if not forms or None in forms:
        return None
    found = cast("Sequence[Form]", forms)
    if len(found) == 1:
        return found[0]
    terms = {
        (power, *exponents): coefficient
        for power, form in enumerate(found)
        for exponents, coefficient in form.terms.items()
    }
    return Form(("n", *found[0].symbols), terms)


def _counted_options(entry: type, weigh: Any) -> dict[str, Sequence[int]]:
    """Return the whole-number options on which the weights depend, with values to try."""
    found: dict[str, Sequence[int]] = {}
    fields: Mapping[str, FieldInfo] = entry.Options.model_fields  # type: ignore[attr-defined]
    for name, info in fields.items():
        if not _is_whole(info):
            continue
        values = [value for value in VALUES if _valid(entry, {name: value}) is not None]
        sizes = {"d": 24, "h": 12, "L": 2}
        counts = {weigh(_valid(entry, {name: value}), sizes) for value in values} - {None}
        if len(counts) > 1:
            found[name] = values[1:]
    return found


def _is_whole(info: FieldInfo) -> bool:
    return info.annotation is int or info.annotation == (int | None)


def _valid(entry: Any, values: Mapping[str, int]) -> Options | None:
    try:
        return cast("Options", entry.Options.model_validate(dict(values)))
    except ValidationError:
        return None


def _chosen(entry: Any, options: Mapping[str, Any], sizes: Sizes) -> Options | None:
    return _valid(entry, {name: sizes[name] for name in options})
