"""Determine whether a model's output can depend on the order of the source words."""

from __future__ import annotations

from headtohead.plugins.registry import Registry
from headtohead.schema.run_config import RunConfig


def is_order_invariant(config: RunConfig, registry: Registry) -> bool:
    """Return whether the model treats the source as a bag of words.

    The data's bag-of-words upper bound applies to such a model. A model can depend on positions through
    a positional encoding, through an attention style with position-dependent scores, or through a mask
    that allows different keys for different queries, in the encoder or in cross-attention.
    """
    for role in ("encoder", "cross"):
        chosen = config.masking.role(role)
        visible = registry.masking(chosen.name)(chosen.options).role_properties(role) or frozenset()
        if (
            "order-invariant" not in registry.positional(config.positional.role(role).name).properties
            or registry.attention(config.attention.role(role).name).position_dependent
            or "shows-the-rest" not in visible
            or "hides-future" in visible
        ):
            return False
    return True
