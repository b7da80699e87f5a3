"""The head geometry that a configuration asks for in one role."""

from __future__ import annotations

from headtohead import plugins
from headtohead.experiment.schema import RunConfig
from headtohead.families.positional import Geometry


def find_geometry(config: RunConfig, role: str) -> Geometry:
    """Return heads and widths of the attention in ``role``.

    Raises:
        HeadToHeadError: If the style is unknown or its numbers do not fit the model.
    """
    chosen = config.attention.role(role)
    style = plugins.current().attention(chosen.name)
    return style.geometry(style.Options.model_validate(chosen.options), config.model)
