"""Whether a variant's decoder can learn anything of the order of the source's words."""

from __future__ import annotations

from headtohead.plugins.registry import Registry
from headtohead.schema.run_config import RunConfig


def is_blind_to_order(config: RunConfig, registry: Registry) -> bool:
    """Tell whether source words are a bag: to such a variant the data's ceiling applies.

    Places can be told by an encoding, by a style whose scores depend on them, or by a mask that
    shows different keys to different queries; in the encoder and in cross-attention.
    """
    return all(_tells_nothing(config, role, registry) for role in ("encoder", "cross"))


def _tells_nothing(config: RunConfig, role: str, registry: Registry) -> bool:
    chosen = config.masking.role(role)
    masking = registry.masking(chosen.name)
    role_properties = masking(masking.Options.model_validate(chosen.options)).role_properties(role) or frozenset()
    return (
        "order-blind" in registry.positional(config.positional.role(role).name).properties
        and not registry.attention(config.attention.role(role).name).position_dependent
        and "shows-the-rest" in role_properties
        and "hides-future" not in role_properties
    )
