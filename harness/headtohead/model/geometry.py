"""The head geometry that a configuration asks for in one role."""

from __future__ import annotations

from headtohead.plugins.positional import Geometry
from headtohead.plugins.registry import current
from headtohead.schema.run_config import RunConfig


def find_geometry(config: RunConfig, role: str) -> Geometry:
    """Return heads and widths of the attention in ``role``.

    Raises:
        HeadToHeadError: If the style is unknown or its numbers do not fit the model.
    """
    chosen = config.attention.role(role)
    style = current().attention(chosen.name)
    return style.geometry(style.Options.model_validate(chosen.options), config.model)


def only_length(config: RunConfig) -> int | None:
    """Return the one number of tokens that the decoder is defined for, or None if any.

    Raises:
        HeadToHeadError: If the style of the decoder is unknown.
    """
    chosen = config.attention.decoder
    style = current().attention(chosen.name)
    return style.only_length(style.Options.model_validate(chosen.options), config.model)
