"""Compatibility of encodings with attention styles, checked before a model is built."""

from __future__ import annotations

from headtohead.plugins.attention import Attention
from headtohead.plugins.component import Geometry
from headtohead.plugins.positional import Positional

SCORES = frozenset({"rotate", "bias", "score", "values"})
"""Mechanisms that act inside attention, not on its inputs."""


def misfit(
    encoding: type[Positional], mechanisms: frozenset[str], style: type[Attention], geometry: Geometry, role: str
) -> str | None:
    """Return why an encoding with these mechanisms is incompatible with a style, or None."""
    reason = _wrong_role(mechanisms, role) or _unsupported(mechanisms, style, geometry)
    return f"{encoding.entry_name} {reason}" if reason else None


def _wrong_role(mechanisms: frozenset[str], role: str) -> str | None:
    if role == "cross" and "embed" in mechanisms:
        return "adds to embeddings, and cross-attention has none of its own; use 'none'"
    if role == "cross" and "draw" in mechanisms:
        return "samples positions of a single sentence, and cross-attention has two; use 'none'"
    return None


def _unsupported(mechanisms: frozenset[str], style: type[Attention], geometry: Geometry) -> str | None:
    name = f"{style.entry_name} attention"
    if not style.projects and mechanisms & SCORES:
        return (
            f"acts on queries, keys or scores, and {name} projects none; use an encoding that is "
            "added to embeddings, or 'none'"
        )
    if not geometry.key_width and mechanisms & {"rotate", "score"}:
        return (
            f"acts on queries, and {name} has none; use an encoding that is added to embeddings or to scores, or 'none'"
        )
    if style.position_dependent and "draw" in mechanisms:
        return (
            f"samples positions in training, and the scores of {name} depend on actual positions; "
            "use an encoding without sampled positions"
        )
    for mechanism in sorted(mechanisms & set(style.unsupported)):
        return f"{style.unsupported[mechanism]}; use an encoding that is added to embeddings, or 'none'"
    return None
