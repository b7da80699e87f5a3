"""Head geometry and supported lengths of a configuration."""

from __future__ import annotations

from headtohead.plugins.positional import Geometry
from headtohead.plugins.registry import current
from headtohead.schema.run_config import RunConfig


def find_geometry(config: RunConfig, role: str) -> Geometry:
    """Return the head geometry of the attention in ``role``.

    Raises:
        HeadToHeadError: If the style is unknown or its sizes are inconsistent with the model.
    """
    chosen = config.attention.role(role)
    style = current().attention(chosen.name)
    return style.geometry(style.Options.model_validate(chosen.options), config.model)


def only_length(config: RunConfig) -> int | None:
    """Return the only number of target tokens that the decoder supports, or None for any.

    Raises:
        HeadToHeadError: If the style of the decoder is unknown.
    """
    chosen = config.attention.decoder
    style = current().attention(chosen.name)
    return style.only_length(style.Options.model_validate(chosen.options), config.model)
