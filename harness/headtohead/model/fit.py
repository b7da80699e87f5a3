"""Which encodings an attention style can take in a role: asked before anything is built."""

from __future__ import annotations

from headtohead.plugins.attention import Attention
from headtohead.plugins.positional import Geometry, Positional

SCORES = frozenset({"rotate", "bias", "score", "values"})
"""Ways to act on what attention computes, not on what it is given."""


def misfit(
    encoding: type[Positional], acts: frozenset[str], style: type[Attention], geometry: Geometry, role: str
) -> str | None:
    """Return why an encoding that acts in these ways has no meaning with a style, or None."""
    reason = _misplaced(acts, role) or _impossible(acts, style, geometry)
    return f"{encoding.entry_name} {reason}" if reason else None


def _misplaced(acts: frozenset[str], role: str) -> str | None:
    """Cross-attention is between two sentences, and has no embeddings of its own."""
    if role == "cross" and "embed" in acts:
        return "adds to embeddings, which cross-attention has none of; use 'none'"
    if role == "cross" and "draw" in acts:
        return "draws the places of one sentence, and cross-attention has two; use 'none'"
    return None


def _impossible(acts: frozenset[str], style: type[Attention], geometry: Geometry) -> str | None:
    """An encoding cannot act on what a style does not have."""
    name = f"{style.entry_name} attention"
    if not style.projects and acts & SCORES:
        return (
            f"acts on queries, keys or scores, and {name} projects none; use an encoding that is "
            "added to embeddings, or 'none'"
        )
    if not geometry.key_width and acts & {"rotate", "score"}:
        return (
            f"acts on queries, and {name} has none; use an encoding that is added to embeddings or to scores, or 'none'"
        )
    if style.position_dependent and "draw" in acts:
        return (
            f"draws the places it trains on, and {name} has scores for true ones; use an encoding "
            "that takes places as they are"
        )
    for act in sorted(acts & set(style.unsupported)):
        return f"{style.unsupported[act]}; use an encoding that is added to embeddings, or 'none'"
    return None
