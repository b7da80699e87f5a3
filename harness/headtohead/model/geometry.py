"""Head geometry and supported lengths of a configuration."""

from __future__ import annotations

from headtohead.errors import HeadToHeadError
from headtohead.plugins.attention import Attention
from headtohead.plugins.component import Geometry
from headtohead.plugins.entry import Options
from headtohead.plugins.registry import current
from headtohead.schema.run_config import ModelConfig, RunConfig


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
