"""Scores of random queries and keys have variance one, at every head width.

The scale ``key_width ** -0.5`` exists for that purpose (Vaswani et al. 2017, section 3.2.1). A style
whose scores are not scaled products (of unit vectors, of feature maps) declares its own standard
deviation as ``temperature``; a style without the scale, such as T5's, declares ``None``.
"""

from __future__ import annotations

import torch
from torch import Tensor

from headtohead.plugins.attention import Attention
from headtohead.testing.invariant import invariant
from headtohead.testing.subject import Subject
from headtohead.testing.verdict import EXACT, Verdict, does_not_apply, worst

TOKENS, HEADS = 64, 8
"""Tokens per sentence, and the smallest number of heads over members and sentences."""

LOWEST, HIGHEST = 0.8, 1.25
"""Bounds of the standard deviation, measured on 64 by 64 pairs in every head."""


@invariant("temperature")
def scores_of_random_heads_have_variance_one(subject: Subject) -> Verdict:
    """Scores of unit-variance queries and keys have the standard deviation that the style declares."""
    return worst(*(_check(subject, role) for role in subject.roles))


@torch.no_grad()
def _check(subject: Subject, role: str) -> Verdict:
    style, geometry = subject.attention(role).style, subject.attention(role).context.geometry
    if style.temperature is None:
        return does_not_apply(f"{role}: the style declares that its scores have no fixed variance")
    if not (style.projects and geometry.key_width):
        return does_not_apply(f"{role}: scores do not depend on the content")
    # At initialisation, since trained parameters may change the standard deviation.
    initial = type(style)(style.options, style.context).double()
    generator = torch.Generator().manual_seed(29)
    members, heads = style.context.members, geometry.heads
    shape = (members, -(-HEADS // (members * heads)), heads, TOKENS, geometry.key_width)
    q, k = (torch.randn(shape, generator=generator, dtype=torch.float64) for _ in range(2))
    scores = _bilinear_scores(initial, q, k)
    if scores is None:
        return does_not_apply(f"{role}: scores are not products of queries and keys")
    ratio = float(scores.std()) / style.temperature
    quantity = f"{role}: standard deviation of the scores of random queries and keys"
    if LOWEST <= ratio <= HIGHEST:
        return Verdict("holds", ratio, quantity)
    return Verdict(
        "violated",
        ratio,
        f"expected {LOWEST} to {HIGHEST}: {quantity}",
        counterexample=f"{role}: scores of heads of width {geometry.key_width} have a standard deviation of "
        f"{ratio:.3g}; the geometry's scale is {geometry.scale:.3g}, key_width ** -0.5 is "
        f"{geometry.key_width**-0.5:.3g}",
    )


def _bilinear_scores(style: Attention, q: Tensor, k: Tensor) -> Tensor | None:
    """Return scores minus their value at zero content, None if they are not linear in q and k."""
    positions = torch.arange(TOKENS).unsqueeze(0)

    def scores(q: Tensor, k: Tensor) -> Tensor:
        return style.scores(*style.transform(q, k), positions, positions)

    constant = scores(torch.zeros_like(q), torch.zeros_like(k))
    difference = scores(q, k) - constant
    for doubled in (scores(2 * q, k) - constant, scores(q, 2 * k) - constant):
        error = float((doubled - 2 * difference).abs().max())
        if not error <= EXACT * max(1.0, float(difference.abs().max())):
            return None
    return difference
