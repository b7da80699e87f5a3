"""The attention roles of a Transformer; which of them a model has depends on its architecture."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, get_args

if TYPE_CHECKING:
    from headtohead.schema.run_config import RunConfig

Role = Literal["encoder", "decoder", "cross"]
"""Encoder self-attention, decoder self-attention, and target queries over source keys."""

ROLES: tuple[str, ...] = get_args(Role)
"""The names of all roles, for parsing and for the order of tables; `roles_of` has those of a model."""


def roles_of(config: RunConfig) -> tuple[str, ...]:
    """Return the roles of a model, in the order in which its attentions are built."""
    return config.roles
