"""Sizes of a configuration's model, and the compatibility of its encodings and attention styles."""

from __future__ import annotations

from typing import NamedTuple

from headtohead.errors import HeadToHeadError
from headtohead.plugins.attention import Attention
from headtohead.plugins.component import Geometry
from headtohead.plugins.entry import Options
from headtohead.plugins.positional import Positional
from headtohead.plugins.registry import current
from headtohead.schema.run_config import ModelConfig, RunConfig

SCORES = frozenset({"rotate", "bias", "score", "values"})
"""Mechanisms that act inside attention, not on its inputs."""


def find_geometry(config: RunConfig, role: str) -> Geometry:
    """Return the head geometry of the attention in ``role``.

    Raises:
        HeadToHeadError: If the style is unknown or its sizes are inconsistent with the model.
    """
    chosen = config.attention.role(role)
    style = current().attention(chosen.name)
    return geometry_of(style, chosen.options, config.model)


def geometry_of(style: type[Attention], options: Options, model: ModelConfig) -> Geometry:
    """Return the head geometry of a style.

    Raises:
        HeadToHeadError: If its sizes are inconsistent with the model, or it returns no consistent ``Geometry``.
    """
    geometry = style.geometry(options, model)
    if not isinstance(geometry, Geometry):
        raise HeadToHeadError(
            f"{style.__name__}.geometry returned {type(geometry).__name__}; return a headtohead.plugin.Geometry"
        )
    if min(geometry.heads, geometry.kv_heads) < 1 or geometry.heads % geometry.kv_heads:
        raise HeadToHeadError(
            f"{style.__name__}.geometry returned {geometry.heads} heads and {geometry.kv_heads} key and value heads; "
            "return kv_heads that divide heads"
        )
    return geometry


def only_length(config: RunConfig) -> int | None:
    """Return the only number of target tokens that the decoder supports, or None for any.

    Raises:
        HeadToHeadError: If the style of the decoder is unknown.
    """
    chosen = config.attention.decoder
    style = current().attention(chosen.name)
    return style.only_length(chosen.options, config.model)


def misfit(
    encoding: type[Positional], mechanisms: frozenset[str], style: type[Attention], geometry: Geometry, role: str
) -> str | None:
    """Return why an encoding with these mechanisms is incompatible with a style, or None."""
    reason = _wrong_role(mechanisms, role) or _unsupported(mechanisms, style, geometry)
    return f"{encoding.entry_name} {reason}" if reason else None


def _wrong_role(mechanisms: frozenset[str], role: str) -> str | None:
    if role == "cross" and "embed" in mechanisms:
        return "is added to embeddings, and cross-attention has no embeddings; use 'none'"
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


class VocabSizes(NamedTuple):
    """Rows of the embedding tables, at least the sizes of the vocabularies; more rows belong to no token."""

    source: int
    target: int


def vocab_sizes(config: RunConfig, *words: int) -> VocabSizes:
    """Return the rows of both tables for vocabularies of these sizes; with ``tie_embeddings: embeddings``, the larger.

    They are at least ``quirks.min_vocab_size``.
    """
    rows = [max(size, config.quirks.min_vocab_size or 0) for size in words]
    return VocabSizes(*([max(rows)] * 2 if config.model.tie_embeddings == "embeddings" else rows))
