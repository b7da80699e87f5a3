"""What a query does that may see no key at all: nothing, or everything alike.

With ``-inf`` such a row attends to nothing and its output is zero. With ``-1e9`` put in the place
of every score, all scores are equal and the row attends to everything alike, padding and future
included; with 1e9 subtracted from every score, the row attends as if nothing were masked.
"""

from __future__ import annotations

import torch
from torch import Tensor

from headtohead.families.attention import Attention
from headtohead.families.entry import ROLES
from headtohead.model.attention import overrides
from headtohead.testing.invariant import invariant
from headtohead.testing.invariants.parity import FILLS
from headtohead.testing.kernels import KERNELS, forced
from headtohead.testing.subject import Subject, filled
from headtohead.testing.verdict import EXACT, Verdict, does_not_apply, within, worst

ROUNDING = 1e-5
"""Accuracy that is left to outputs and gradients after 1e9 was subtracted from float64 scores."""


@invariant("masked-rows")
def fully_masked_rows_are_predictable(subject: Subject) -> Verdict:
    """Fully masked rows give zero under -inf, a uniform row under -1e9, on every path."""
    roles = [role for role in ROLES if _fills(subject, role)]
    if not roles:
        return does_not_apply("the style normalises in its own way")
    verdicts = []
    for fill in FILLS:
        with filled(subject.model, fill):
            verdicts += [_check(subject, role, fill) for role in roles]
    return worst(*verdicts)


def _fills(subject: Subject, role: str) -> bool:
    """Tell whether masked scores of a role are filled and normalised by the core."""
    style = subject.attention(role).style
    own = overrides(style, Attention, "normalise") or overrides(style, Attention, "mix")
    return style.projects and not own


def _check(subject: Subject, role: str, fill: str) -> Verdict:
    attention = subject.attention(role)
    keep, dead = _half_dead(subject, role)
    x, memory = subject.activations(role)
    x.requires_grad_()
    seen: dict[str, Tensor] = {}
    explicit = attention(x, memory, subject.view(role, keep=keep), None, seen.__setitem__)
    predicted = {
        "-inf": lambda: torch.zeros_like(seen["weights"]),
        "-1e9": lambda: torch.full_like(seen["weights"], 1 / keep.shape[-1]),
        "additive": lambda: seen["scores"].softmax(-1),
    }[fill]()
    rows = dead.unsqueeze(2).expand(seen["weights"].shape[:-1])
    differences = [(seen["weights"] - predicted)[rows].detach()]
    (expected,) = torch.autograd.grad(explicit.square().sum(), x)
    for kernel in KERNELS:
        with forced(kernel):
            fused = attention(x, memory, subject.view(role, keep=keep))
        (found,) = torch.autograd.grad(fused.square().sum(), x)
        differences += [(fused - explicit).detach(), found - expected]
    # The largest of tensors, unlike that of Python numbers, is NaN where one is NaN.
    number = float(torch.stack([one.abs().max() for one in differences]).max())
    bound = ROUNDING if fill == "additive" else EXACT
    return within(number, f"{role}, fill {fill}: distance of keyless rows from prediction", bound)


def _half_dead(subject: Subject, role: str) -> tuple[Tensor, Tensor]:
    """Return a random mask, and which of its rows ``[member, batch, query]`` keep no key."""
    queries, keys = subject.times(role)
    generator = torch.Generator().manual_seed(19)
    shape = (*subject.sentences.source_lengths.shape, queries, keys)
    keep = torch.rand(shape, generator=generator) < 0.6
    keep[:, :, 0] = False
    keep[:, :, 1, 0] = True
    return keep, ~keep.any(-1)
