"""The attention roles of a Transformer; which of them a model has depends on its architecture."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, get_args

Role = Literal["encoder", "decoder", "cross"]
"""Encoder self-attention, decoder self-attention, and target queries over source keys."""

ROLES: tuple[str, ...] = get_args(Role)
"""The names of all roles, for parsing and for the order of tables; `RunConfig.roles` has those of a model."""

ROLE_NAMES: Mapping[str, str] = {
    "encoder": "encoder",
    "decoder": "decoder",
    "cross": "cross-attention",
}
"""The readable name of each role."""
