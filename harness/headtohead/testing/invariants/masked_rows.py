"""Rows of attention weights without any visible key have predictable weights.

With the mask value ``-inf`` such a row is zero and so is its output. With ``-1e9`` in place of every
score, the row is uniform, padding and future included. With 1e9 subtracted from every score
(``additive``), the row is the softmax of its unmasked scores.
"""

from __future__ import annotations

import torch
from torch import Tensor

from headtohead.model.attention import overrides
from headtohead.plugins.attention import Attention
from headtohead.testing.extremum import largest
from headtohead.testing.invariant import invariant
from headtohead.testing.invariants.parity import MASK_VALUES
from headtohead.testing.kernels import KERNELS, force_kernel
from headtohead.testing.subject import Subject, with_mask_value
from headtohead.testing.verdict import EXACT, Verdict, does_not_apply, within, worst

ROUNDING = 1e-5
"""Accuracy of outputs and gradients after 1e9 was subtracted from float64 scores."""


@invariant("masked-rows")
def fully_masked_rows_are_predictable(subject: Subject) -> Verdict:
    """Fully masked rows give zero under -inf and a uniform row under -1e9, on every path.

    Where the style normalises or mixes by itself, only the zero row under -inf is predicted.
    """
    roles = [role for role in subject.roles if subject.attention(role).style.projects]
    if not roles:
        return does_not_apply("the style has no scores")
    verdicts = []
    for mask_value in MASK_VALUES:
        with with_mask_value(subject.model, mask_value):
            verdicts += [
                _check_masked_rows(subject, role, mask_value)
                for role in roles
                if mask_value == "-inf" or _normalised_by_core(subject, role)
            ]
    return worst(*verdicts)


@invariant("masked-keys")
def a_masked_key_has_no_weight(subject: Subject) -> Verdict:
    """Under -inf, the weight of a masked key is exactly zero, also under a random mask."""
    roles = [role for role in subject.roles if subject.attention(role).style.projects]
    if not roles:
        return does_not_apply("the style masks its inputs and has no scores")
    with with_mask_value(subject.model, "-inf"):
        return worst(*(_check_masked_keys(subject, role) for role in roles))


@torch.no_grad()
def _check_masked_keys(subject: Subject, role: str) -> Verdict:
    mask, _ = _random_mask(subject, role)
    x, memory = subject.activations(role)
    recorded: dict[str, Tensor] = {}
    context = subject.attention_context(role, mask=mask)
    subject.attention(role)(x, memory, context, None, recorded.__setitem__)
    hidden = ~mask.unsqueeze(2).expand_as(recorded["weights"])
    weight = largest(
        recorded["weights"].abs() * hidden,
        ("member", "sentence", "head", "query", "key"),
        lambda at: f"{role}: query {at['query']} in head {at['head']} weights the masked key {at['key']}",
    )
    return within(weight, f"{role}: largest weight of a masked key", 0.0)


def _normalised_by_core(subject: Subject, role: str) -> bool:
    """Return whether the core masks and normalises the scores of a role, and the style does not."""
    style = subject.attention(role).style
    own = overrides(style, Attention, "normalise") or overrides(style, Attention, "mix")
    return style.projects and not own


def _check_masked_rows(subject: Subject, role: str, mask_value: str) -> Verdict:
    attention = subject.attention(role)
    mask, without_key = _random_mask(subject, role)
    context = subject.attention_context(role, mask=mask)
    x, memory = subject.activations(role)
    inputs = [tensor.requires_grad_() for tensor in (x, memory) if tensor is not None]
    recorded: dict[str, Tensor] = {}
    explicit = attention(x, memory, context, None, recorded.__setitem__)
    weights = recorded["weights"]
    predicted = {
        "-inf": lambda: torch.zeros_like(weights),
        "-1e9": lambda: torch.full_like(weights, 1 / mask.shape[-1]),
        "additive": lambda: recorded["scores"].softmax(-1),
    }[mask_value]()
    rows = without_key.unsqueeze(2).expand(weights.shape[:-1])
    differences = [(weights - predicted)[rows].detach()]
    expected_gradients = _gradients(explicit, inputs)
    for kernel in KERNELS:
        with force_kernel(kernel):
            fused = attention(x, memory, context)
        differences.append((fused - explicit).detach())
        differences += [
            gradient - expected
            for gradient, expected in zip(_gradients(fused, inputs), expected_gradients, strict=True)
        ]
    # torch's max returns NaN if any entry is NaN; Python's max does not.
    largest_difference = float(torch.stack([difference.abs().max() for difference in differences]).max())
    bound = ROUNDING if mask_value == "additive" else EXACT
    return within(
        largest_difference, f"{role}, mask value {mask_value}: difference of masked rows from prediction", bound
    )


def _gradients(output: Tensor, inputs: list[Tensor]) -> tuple[Tensor, ...]:
    return torch.autograd.grad(output.square().sum(), inputs, allow_unused=True, materialize_grads=True)


def _random_mask(subject: Subject, role: str) -> tuple[Tensor, Tensor]:
    """Return a random mask, and which of its rows ``[member, batch, query]`` have no visible key."""
    queries, keys = subject.times(role)
    generator = torch.Generator().manual_seed(19)
    shape = (*subject.sentences.source_lengths.shape, queries, keys)
    mask = torch.rand(shape, generator=generator) < 0.6
    mask[:, :, 0] = False
    mask[:, :, 1:2, 0] = True
    return mask, ~mask.any(-1)
