"""What a query does that may see no key at all: nothing, or everything alike.

With ``-inf`` such a row attends to nothing and its output is zero. With ``-1e9`` put in the place
of every score, all scores are equal and the row attends to everything alike, padding and future
included; with 1e9 subtracted from every score, the row attends as if nothing were masked.
"""

from __future__ import annotations

import torch
from torch import Tensor

from headtohead.model.attention import overrides
from headtohead.plugins.attention import Attention
from headtohead.schema.roles import ROLES
from headtohead.testing.invariant import invariant
from headtohead.testing.invariants.parity import FILLS
from headtohead.testing.kernels import KERNELS, forced
from headtohead.testing.seen import largest
from headtohead.testing.subject import Subject, filled
from headtohead.testing.verdict import EXACT, Verdict, does_not_apply, within, worst

ROUNDING = 1e-5
"""Accuracy that is left to outputs and gradients after 1e9 was subtracted from float64 scores."""


@invariant("masked-rows")
def fully_masked_rows_are_predictable(subject: Subject) -> Verdict:
    """Fully masked rows give zero under -inf, a uniform row under -1e9, on every path.

    Where the style normalises or mixes in its own way, -inf alone is predicted: nothing.
    """
    roles = [role for role in ROLES if subject.attention(role).style.projects]
    if not roles:
        return does_not_apply("the style has no scores")
    verdicts = []
    for fill in FILLS:
        with filled(subject.model, fill):
            asked = [role for role in roles if fill == "-inf" or _fills(subject, role)]
            verdicts += [_check(subject, role, fill) for role in asked]
    return worst(*verdicts)


@invariant("masked-keys")
def a_masked_key_has_no_weight(subject: Subject) -> Verdict:
    """Under -inf, the weight of a masked key is zero exactly, also under a random mask."""
    roles = [role for role in ROLES if subject.attention(role).style.projects]
    if not roles:
        return does_not_apply("the style masks what it reads, and has no scores")
    with filled(subject.model, "-inf"):
        return worst(*(_masked(subject, role) for role in roles))


@torch.no_grad()
def _masked(subject: Subject, role: str) -> Verdict:
    mask, _ = _half_dead(subject, role)
    x, memory = subject.activations(role)
    seen: dict[str, Tensor] = {}
    subject.attention(role)(x, memory, subject.view(role, mask=mask), None, seen.__setitem__)
    hidden = ~mask.unsqueeze(2).expand_as(seen["weights"])
    found = largest(
        seen["weights"].abs() * hidden,
        ("member", "sentence", "head", "query", "key"),
        lambda at: f"{role}: query {at['query']} in head {at['head']} weighs key {at['key']}, which is masked,",
    )
    return within(found, f"{role}: largest weight of a masked key", 0.0)


def _fills(subject: Subject, role: str) -> bool:
    """Tell whether masked scores of a role are filled and normalised by the core."""
    style = subject.attention(role).style
    own = overrides(style, Attention, "normalise") or overrides(style, Attention, "mix")
    return style.projects and not own


def _check(subject: Subject, role: str, fill: str) -> Verdict:
    attention = subject.attention(role)
    mask, dead = _half_dead(subject, role)
    x, memory = subject.activations(role)
    asked = [one.requires_grad_() for one in (x, memory) if one is not None]
    seen: dict[str, Tensor] = {}
    explicit = attention(x, memory, subject.view(role, mask=mask), None, seen.__setitem__)
    weights = seen["weights"]
    predicted = {
        "-inf": lambda: torch.zeros_like(weights),
        "-1e9": lambda: torch.full_like(weights, 1 / mask.shape[-1]),
        "additive": lambda: seen["scores"].softmax(-1),
    }[fill]()
    rows = dead.unsqueeze(2).expand(weights.shape[:-1])
    differences = [(weights - predicted)[rows].detach()]
    expected = _gradients(explicit, asked)
    for kernel in KERNELS:
        with forced(kernel):
            fused = attention(x, memory, subject.view(role, mask=mask))
        found = _gradients(fused, asked)
        differences.append((fused - explicit).detach())
        differences += [one - other for one, other in zip(found, expected, strict=True)]
    # The largest of tensors, unlike that of Python numbers, is NaN where one is NaN.
    number = float(torch.stack([one.abs().max() for one in differences]).max())
    bound = ROUNDING if fill == "additive" else EXACT
    what = f"{role}, fill {fill}: distance of keyless rows from prediction"
    return within(number, what, bound, shown=f"{what} is {number:.3g}")


def _gradients(output: Tensor, inputs: list[Tensor]) -> tuple[Tensor, ...]:
    return torch.autograd.grad(output.square().sum(), inputs, allow_unused=True, materialize_grads=True)


def _half_dead(subject: Subject, role: str) -> tuple[Tensor, Tensor]:
    """Return a random mask, and which of its rows ``[member, batch, query]`` keep no key."""
    queries, keys = subject.times(role)
    generator = torch.Generator().manual_seed(19)
    shape = (*subject.sentences.source_lengths.shape, queries, keys)
    mask = torch.rand(shape, generator=generator) < 0.6
    mask[:, :, 0] = False
    mask[:, :, 1:2, 0] = True
    return mask, ~mask.any(-1)
