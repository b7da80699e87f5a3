"""Scores of random queries and keys have variance one, whatever the width of a head.

That is what the scale ``key_width ** -0.5`` is for (Vaswani et al. 2017, section 3.2.1).
A style whose scores are no products (of unit vectors, of feature maps) has its own; one that drops
the scale on purpose, as T5 does, says ``temperature = None``.
"""

from __future__ import annotations

import torch
from torch import Tensor

from headtohead.plugins.attention import Attention
from headtohead.schema.roles import ROLES
from headtohead.testing.invariant import invariant
from headtohead.testing.subject import Subject
from headtohead.testing.verdict import EXACT, Verdict, does_not_apply, worst

TOKENS, HEADS = 64, 8
"""What is measured: so many tokens, in at least so many heads of members and sentences."""

LEAST, MOST = 0.8, 1.25
"""Bounds of a standard deviation that is measured on 64 by 64 pairs in every head."""


@invariant("temperature")
def scores_of_random_heads_have_variance_one(subject: Subject) -> Verdict:
    """Products of unit queries and keys, as scores, have the standard deviation the style says."""
    return worst(*(_check(subject, role) for role in ROLES))


@torch.no_grad()
def _check(subject: Subject, role: str) -> Verdict:
    style, geometry = subject.attention(role).style, subject.attention(role).context.geometry
    if style.temperature is None:
        return does_not_apply(f"{role}: the style says that its scores have no fixed variance")
    if not (style.projects and geometry.key_width):
        return does_not_apply(f"{role}: content has no say in the scores")
    # As it starts: what the style learns may have any size.
    fresh = type(style)(style.options, style.context).double()
    generator = torch.Generator().manual_seed(29)
    members, heads = style.context.members, geometry.heads
    shape = (members, -(-HEADS // (members * heads)), heads, TOKENS, geometry.key_width)
    q, k = (torch.randn(shape, generator=generator, dtype=torch.float64) for _ in range(2))
    found = _scores(fresh, q, k)
    if found is None:
        return does_not_apply(f"{role}: scores are no products of queries and keys")
    spread = float(found.std()) / style.temperature
    what = f"{role}: standard deviation of the scores of random queries and keys"
    if LEAST <= spread <= MOST:
        return Verdict("holds", spread, what)
    expected = f"{geometry.scale:.3g} where key_width ** -0.5 is {geometry.key_width**-0.5:.3g}"
    return Verdict(
        "broken",
        spread,
        f"expected {LEAST} to {MOST}: {what}",
        shown=f"{role}: heads of width {geometry.key_width} have scores of standard deviation "
        f"{spread:.3g}; the geometry's scale is {expected}",
    )


def _scores(style: Attention, q: Tensor, k: Tensor) -> Tensor | None:
    """Return scores less what stands without content, None if they are not linear in both."""
    places = torch.arange(TOKENS).unsqueeze(0)

    def scores(q: Tensor, k: Tensor) -> Tensor:
        return style.scores(*style.transform(q, k), places, places)

    still = scores(torch.zeros_like(q), torch.zeros_like(k))
    found = scores(q, k) - still
    for doubled in (scores(2 * q, k) - still, scores(q, 2 * k) - still):
        if not float((doubled - 2 * found).abs().max()) <= EXACT * max(1.0, float(found.abs().max())):
            return None
    return found
